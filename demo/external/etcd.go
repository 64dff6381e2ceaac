package external

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/fencegate/fencegate/demo"
)

// Etcd is a demo.Service by the mutex of etcd's client library. The token is the create revision of the lock's own key.
type Etcd struct{ client *clientv3.Client }

// DialEtcd returns the service of the etcd at an address.
func DialEtcd(address string) (*Etcd, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{address}, DialTimeout: dialTimeout, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	return &Etcd{client}, nil
}

// Acquire queues for the lock with a key of its own, bound to a session that is kept alive.
func (e *Etcd) Acquire(ctx context.Context, lock string, ttl time.Duration) (demo.Grant, error) {
	session, err := concurrency.NewSession(e.client, concurrency.WithTTL(int(ttl.Seconds())))
	if err != nil {
		return demo.Grant{}, err
	}
	mutex := concurrency.NewMutex(session, "/"+lock)
	if err := mutex.Lock(ctx); err != nil {
		return demo.Grant{}, err
	}
	got, err := e.client.Get(ctx, mutex.Key())
	if err != nil {
		return demo.Grant{}, err
	}
	if len(got.Kvs) != 1 {
		return demo.Grant{}, fmt.Errorf("the session has expired: there is no key %s", mutex.Key())
	}
	return demo.Grant{Token: got.Kvs[0].CreateRevision, Number: "create revision"}, nil
}
