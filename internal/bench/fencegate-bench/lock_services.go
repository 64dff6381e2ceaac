//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/bench/peers"
	"github.com/fencegate/fencegate/internal/bench/rig"
	"github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/lockclient"
)

const (
	// waitMax bounds every wait for a lock: longer than any should take, and as long as the API allows.
	waitMax = 10 * time.Minute
	// lockTTL is longer than a cycle takes.
	lockTTL = time.Minute
	// closeTimeout bounds a goodbye to an etcd that has ended: an interrupt from the terminal reaches it, too.
	closeTimeout = 5 * time.Second
)

// services are fencegate and those on this machine that it is compared with. All run all the time, and only one of them
// is busy.
func (c *locksCmd) services(ctx context.Context, r *rig.Rig) (services []service, err error) {
	var gateways []*gateway.Process
	for range slices.Max(c.Gateways) {
		gateway, err := r.Gateway(ctx)
		if err != nil {
			return nil, err
		}
		gateways = append(gateways, gateway)
	}
	for _, count := range c.Gateways {
		services = append(services, fencegate(gateways[:count]))
	}
	for _, peer := range []struct {
		name  string
		start func(context.Context, *rig.Rig, string) (service, error)
	}{{"etcd", startEtcdLocks}, {"redis", startRedisLocks}, {redisFsync, startRedisLocks}} {
		s, err := peer.start(ctx, r, peer.name)
		if takesPart, err := r.TakesPart(peer.name, err); err != nil {
			return nil, err
		} else if takesPart {
			services = append(services, s)
		}
	}
	return services, nil
}

// fencegate is so many gateways: "fencegate x2".
func fencegate(gateways []*gateway.Process) service {
	s := service{name: "fencegate", gateways: len(gateways), queues: true,
		connect: func(_ context.Context, client int) (locker, error) {
			return newGatewayLocker(gateways[client%len(gateways)].URL, fmt.Sprintf("bench-%d", client), false)
		}}
	if len(gateways) > 1 {
		s.name = fmt.Sprintf("fencegate x%d", len(gateways))
	}
	for _, gateway := range gateways {
		s.servers = append(s.servers, gateway.PID())
	}
	return s
}

// gatewayLocker is a client of one gateway, as one owner.
type gatewayLocker struct {
	api       *lockclient.API
	transport *http.Transport
	owner     string
	ttl       time.Duration
}

func newGatewayLocker(url, owner string, http2 bool) (*gatewayLocker, error) {
	transport := &http.Transport{Protocols: new(http.Protocols), MaxIdleConnsPerHost: 1}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	client, err := lockclient.New(url, lockclient.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		return nil, fmt.Errorf("the gateway's URL: %w", err)
	}
	return &gatewayLocker{client.API(), transport, owner, lockTTL}, nil
}

func (l *gatewayLocker) hold(ctx context.Context, lock string) (held, error) {
	return l.holdAs(ctx, lock, l.owner)
}

func (l *gatewayLocker) holdAs(ctx context.Context, lock, owner string) (held, error) {
	lease, err := l.api.Acquire(ctx, lock, api.AcquireRequest{
		OwnerID: owner, TTLMS: new(l.ttl.Milliseconds()), WaitMS: waitMax.Milliseconds(),
	})
	return held{
		renew: func(ctx context.Context) error {
			_, err := l.api.Renew(ctx, lock, api.RenewRequest{
				OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken,
			})
			return err
		},
		release: func(ctx context.Context) error {
			return l.api.Release(ctx, lock, api.ReleaseRequest{
				OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken,
			})
		},
	}, err
}

// waiting sends a try, which is rejected with the length of the queue.
func (l *gatewayLocker) waiting(ctx context.Context, lock string) (int, error) {
	_, err := l.api.Acquire(ctx, lock, api.AcquireRequest{OwnerID: "bench-onlooker",
		TTLMS: new((100 * time.Millisecond).Milliseconds())})
	var problem *api.Problem
	switch {
	case err == nil:
		return 0, fmt.Errorf("%s is not held", lock)
	case !errors.Is(err, lockclient.ErrLockHeld):
		return 0, err
	case !errors.As(err, &problem) || problem.QueueLength == nil:
		return 0, fmt.Errorf("no queue_length in %w", err)
	}
	return *problem.QueueLength, nil
}

func (l *gatewayLocker) close() error {
	l.transport.CloseIdleConnections()
	return nil
}

func startEtcdLocks(ctx context.Context, r *rig.Rig, name string) (service, error) {
	etcd, err := peers.StartEtcd(ctx)
	if err != nil {
		return service{}, err
	}
	r.OnClose(etcd.Stop)
	r.Report.Peers[name] = etcd.Version
	return service{name: name, queues: true, servers: []int{etcd.PID()},
		connect: func(context.Context, int) (locker, error) {
			client, err := etcd.Connect()
			if err != nil {
				return nil, err
			}
			session, err := concurrency.NewSession(client, concurrency.WithTTL(int(lockTTL.Seconds())))
			if err != nil {
				return nil, errors.Join(err, client.Close())
			}
			return &etcdLocker{client, session}, nil
		}}, nil
}

// etcdLocker is a session.
type etcdLocker struct {
	client  *clientv3.Client
	session *concurrency.Session
}

func (l *etcdLocker) hold(ctx context.Context, lock string) (held, error) {
	mutex := concurrency.NewMutex(l.session, lock)
	return held{release: mutex.Unlock}, mutex.Lock(ctx)
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

// redisFsync is Redis with every change on disk before it is answered; "redis" is Redis as it comes.
const redisFsync = "redis fsync"

var errLockLost = errors.New("the key was not the client's any more")

// compareAndDelete deletes the key if it is the client's own.
var compareAndDelete = redis.NewScript(
	`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`,
)

func startRedisLocks(ctx context.Context, r *rig.Rig, name string) (service, error) {
	var settings []string
	if name == redisFsync {
		settings = []string{"--appendonly", "yes", "--appendfsync", "always"}
	}
	server, err := peers.StartRedis(ctx, settings...)
	if err != nil {
		return service{}, err
	}
	r.OnClose(server.Stop)
	r.Report.Peers[name] = server.Version
	return service{name: name, servers: []int{server.PID()}, connect: func(ctx context.Context, _ int) (locker, error) {
		client := server.Connect()
		return &redisLocker{client}, compareAndDelete.Load(ctx, client).Err()
	}}, nil
}

type redisLocker struct{ client *redis.Client }

// hold tries again after a random pause of 1 to 5 ms.
func (l *redisLocker) hold(ctx context.Context, lock string) (held, error) {
	secret := uuid.NewString()
	for {
		taken, err := l.client.SetNX(ctx, lock, secret, lockTTL).Result()
		if err != nil {
			return held{}, err
		}
		if taken {
			break
		}
		if !pause(ctx, time.Millisecond+rand.N(4*time.Millisecond)) { //nolint:gosec // the pauses are no secret
			return held{}, ctx.Err()
		}
	}
	return held{release: func(ctx context.Context) error {
		deleted, err := compareAndDelete.Run(ctx, l.client, []string{lock}, secret).Int()
		if err == nil && deleted == 0 {
			err = errLockLost
		}
		return err
	}}, nil
}

func (l *redisLocker) close() error { return l.client.Close() }
