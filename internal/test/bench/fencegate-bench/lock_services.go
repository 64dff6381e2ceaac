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

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/peers"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	// waitMax bounds every wait for a lock: longer than any should take, and as long as the API allows.
	waitMax = 10 * time.Minute
	// lockTTL is longer than a cycle takes, leaseTTL outlasts all measurements in which leases are not renewed.
	lockTTL  = time.Minute
	leaseTTL = time.Hour
	// closeTimeout bounds a goodbye to an etcd that has ended: an interrupt from the terminal reaches it, too.
	closeTimeout = 5 * time.Second
	// redisFsync is Redis with every change on disk before it is answered; "redis" is Redis as it comes.
	redisFsync = "redis fsync"
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
	for _, name := range []string{"etcd", "redis", redisFsync} {
		s, err := peerLocks(ctx, r, name)
		if takesPart, err := r.TakesPart(name, err); err != nil {
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
			to := gateways[client%len(gateways)].URL
			return gatewayClient{to, fmt.Sprintf("bench-%d", client), lockTTL, false}.locker()
		}}
	if len(gateways) > 1 {
		s.name = fmt.Sprintf("fencegate x%d", len(gateways))
	}
	for _, gateway := range gateways {
		s.servers = append(s.servers, gateway.PID())
	}
	return s
}

// gatewayClient is a client of one gateway, as one owner.
type gatewayClient struct {
	url, owner string
	ttl        time.Duration
	http2      bool
}

// dial makes the client's connection.
func (c gatewayClient) dial() (*lockclient.API, func() error, error) {
	transport := &http.Transport{Protocols: new(http.Protocols), MaxIdleConnsPerHost: 1}
	transport.Protocols.SetHTTP1(!c.http2)
	transport.Protocols.SetUnencryptedHTTP2(c.http2)
	client, err := lockclient.New(c.url, lockclient.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		return nil, nil, fmt.Errorf("the gateway's URL: %w", err)
	}
	return client.API(), closing(transport.CloseIdleConnections), nil
}

func (c gatewayClient) locker() (locker, error) {
	gateway, end, err := c.dial()
	return locker{
		hold:    func(ctx context.Context, lock string) (held, error) { return c.hold(ctx, gateway, lock) },
		waiting: func(ctx context.Context, lock string) (int, error) { return queueLength(ctx, gateway, lock) },
		close:   end,
	}, err
}

func (c gatewayClient) hold(ctx context.Context, gateway *lockclient.API, lock string) (held, error) {
	lease, err := gateway.Acquire(ctx, lock, api.AcquireRequest{
		OwnerID: c.owner, TTLMS: new(c.ttl.Milliseconds()), WaitMS: waitMax.Milliseconds(),
	})
	return held{
		renew: func(ctx context.Context) error {
			_, err := gateway.Renew(ctx, lock, api.RenewRequest{
				OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken,
			})
			return err
		},
		release: func(ctx context.Context) error { return release(ctx, gateway, lease) },
	}, err
}

func release(ctx context.Context, gateway *lockclient.API, lease api.Lease) error {
	return gateway.Release(ctx, lease.Lock, api.ReleaseRequest{
		OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken,
	})
}

// queueLength sends a try, which is rejected with the length of the queue.
func queueLength(ctx context.Context, gateway *lockclient.API, lock string) (int, error) {
	_, err := gateway.Acquire(ctx, lock, api.AcquireRequest{OwnerID: "bench-onlooker",
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

// peerLocks starts another service.
func peerLocks(ctx context.Context, r *rig.Rig, name string) (service, error) {
	s := service{name: name, queues: name == "etcd"}
	var server *peers.Peer
	var err error
	switch name {
	case "etcd":
		server, err = peers.StartEtcd(ctx)
		s.connect = func(context.Context, int) (locker, error) { return etcdLocker(server.Address) }
	case redisFsync:
		server, err = peers.StartRedis(ctx, "--appendonly", "yes", "--appendfsync", "always")
	default:
		server, err = peers.StartRedis(ctx)
	}
	if err := r.Keep(name, server, err); err != nil {
		return service{}, err
	}
	s.servers, s.address = []int{server.PID()}, server.Address
	if s.connect == nil {
		s.connect = func(ctx context.Context, _ int) (locker, error) { return redisLocker(ctx, server.Address) }
	}
	return s, nil
}

// etcdLocker is a session.
func etcdLocker(address string) (locker, error) {
	client, err := connectEtcd(address)
	if err != nil {
		return locker{}, err
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(int(lockTTL.Seconds())))
	if err != nil {
		return locker{}, errors.Join(err, client.Close())
	}
	return locker{hold: func(ctx context.Context, lock string) (held, error) {
		mutex := concurrency.NewMutex(session, lock)
		return held{release: mutex.Unlock}, mutex.Lock(ctx)
	}, waiting: func(ctx context.Context, lock string) (int, error) {
		// The oldest key of a mutex holds it, the others wait.
		keys, err := client.Get(ctx, lock+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return 0, err
		}
		return int(keys.Count) - 1, nil
	}, close: func() error { // and revokes the session, or it would expire while something else is measured
		session.Orphan()
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_, err := client.Revoke(ctx, session.Lease())
		return errors.Join(err, client.Close())
	}}, nil
}

var errLockLost = errors.New("the key was not the client's any more")

// compareAndDelete deletes the key if it is the client's own.
var compareAndDelete = redis.NewScript(
	`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`,
)

// redisLocker tries again after a random pause of 1 to 5 ms.
func redisLocker(ctx context.Context, address string) (locker, error) {
	client := connectRedis(address)
	return locker{close: client.Close, hold: func(ctx context.Context, lock string) (held, error) {
		secret := uuid.NewString()
		for {
			taken, err := client.SetNX(ctx, lock, secret, lockTTL).Result()
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
			deleted, err := compareAndDelete.Run(ctx, client, []string{lock}, secret).Int()
			if err == nil && deleted == 0 {
				err = errLockLost
			}
			return err
		}}, nil
	}}, compareAndDelete.Load(ctx, client).Err()
}
