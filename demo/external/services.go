// Package external lets the workers of the demo acquire their lock from etcd, ZooKeeper or Redis. fencegate then only
// checks the writes, by the number that the service gave its lock.
//
// It is a module of its own: the clients of these services never enter fencegate's product.
package external

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/fencegate/fencegate/demo"
	"github.com/fencegate/fencegate/internal/test/testenv/peers"
)

const (
	dialTimeout   = 5 * time.Second
	retryInterval = 100 * time.Millisecond
)

// Names are those of the services, as Connect and Start take them.
const (
	NameEtcd      = "etcd"
	NameZooKeeper = "zookeeper"
	NameRedis     = "redis"
)

// Connect returns the service with a name.
func Connect(name, address string) (demo.Service, error) {
	switch name {
	case NameEtcd:
		return DialEtcd(address)
	case NameZooKeeper:
		return NewZooKeeper(address), nil
	case NameRedis:
		return NewRedis(address), nil
	}
	return nil, fmt.Errorf("there is no service %q", name)
}

// Start runs a server of a service until its Stop. It returns peers.ErrAbsent if the machine has none.
func Start(ctx context.Context, name string) (*peers.Peer, error) {
	switch name {
	case NameEtcd:
		return peers.StartEtcd(ctx)
	case NameZooKeeper:
		return peers.StartZooKeeper(ctx, "tickTime=500") // a session may be no shorter than two ticks
	case NameRedis:
		return peers.StartRedis(ctx)
	}
	return nil, fmt.Errorf("there is no service %q", name)
}

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

// Redis is a demo.Service by a key that expires, as most Redis locks are. The token is a counter that the script which
// takes the lock increments.
type Redis struct{ client *redis.Client }

// NewRedis returns the service of the Redis at an address.
func NewRedis(address string) *Redis {
	return &Redis{redis.NewClient(&redis.Options{Addr: address})}
}

// takeLock answers with the token, or nil if the lock is held. The braces keep both keys on one node of a cluster.
var takeLock = redis.NewScript(`
	if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then
		return redis.call('incr', KEYS[2])
	end
	return false`)

// Acquire tries until the lock is free.
func (r *Redis) Acquire(ctx context.Context, lock string, ttl time.Duration) (demo.Grant, error) {
	keys := []string{"lock:{" + lock + "}", "token:{" + lock + "}"}
	for {
		token, err := takeLock.Run(ctx, r.client, keys, uuid.NewString(), ttl.Milliseconds()).Int64()
		if !errors.Is(err, redis.Nil) {
			return demo.Grant{Token: token, Number: "counter"}, err
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return demo.Grant{}, ctx.Err()
		}
	}
}

// ZooKeeper is a demo.Service by the lock of go-zookeeper. The token is the czxid of the lock's own node: the number of
// the transaction that created it.
type ZooKeeper struct{ address string }

// NewZooKeeper returns the service of the ZooKeeper at an address.
func NewZooKeeper(address string) *ZooKeeper { return &ZooKeeper{address} }

// Acquire queues for the lock with a sequential node of a session of its own.
func (z *ZooKeeper) Acquire(_ context.Context, lock string, ttl time.Duration) (demo.Grant, error) {
	connection, _, err := zk.Connect([]string{z.address}, ttl, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return demo.Grant{}, err
	}
	root := "/" + lock
	if err := zk.NewLock(connection, root, zk.WorldACL(zk.PermAll)).Lock(); err != nil {
		return demo.Grant{}, err
	}
	nodes, _, err := connection.Children(root)
	if err != nil {
		return demo.Grant{}, err
	}
	for _, node := range nodes {
		_, stat, err := connection.Exists(path.Join(root, node))
		switch {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return demo.Grant{}, err
		case stat.EphemeralOwner == connection.SessionID():
			return demo.Grant{Token: stat.Czxid, Number: "czxid"}, nil
		}
	}
	return demo.Grant{}, fmt.Errorf("the session has expired: no node in %s is its own", root)
}

type silent struct{}

func (silent) Printf(string, ...any) {}
