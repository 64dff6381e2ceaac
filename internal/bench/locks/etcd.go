package locks

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/fencegate/fencegate/internal/bench/peers"
)

const nameEtcd = "etcd"

// closeTimeout bounds a goodbye to an etcd that has ended: an interrupt from the terminal reaches it, too.
const closeTimeout = 5 * time.Second

func startEtcd(ctx context.Context, name string) (service, error) {
	etcd, err := peers.StartEtcd(ctx)
	if err != nil {
		return service{}, err
	}
	connect := func(context.Context, int) (locker, error) {
		client, err := etcd.Connect()
		if err != nil {
			return nil, err
		}
		session, err := concurrency.NewSession(client, concurrency.WithTTL(int(ttl.Seconds())))
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		return &etcdLocker{client, session}, nil
	}
	return service{name: name, peer: etcd.Peer, gateways: 1, queues: true, connect: connect}, nil
}

// etcdLocker is a session.
type etcdLocker struct {
	client  *clientv3.Client
	session *concurrency.Session
}

func (l *etcdLocker) acquire(ctx context.Context, lock string) (func(context.Context) error, error) {
	mutex := concurrency.NewMutex(l.session, lock)
	if err := mutex.Lock(ctx); err != nil {
		return nil, err
	}
	return mutex.Unlock, nil
}

// waiting counts the keys of a mutex: the oldest holds it, the others wait.
func (l *etcdLocker) waiting(ctx context.Context, lock string) (int, error) {
	keys, err := l.client.Get(ctx, lock+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return int(keys.Count) - 1, nil
}

// close revokes the session, too, or it would expire while something else is measured.
func (l *etcdLocker) close() error {
	l.session.Orphan()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_, err := l.client.Revoke(ctx, l.session.Lease())
	return errors.Join(err, l.client.Close())
}
