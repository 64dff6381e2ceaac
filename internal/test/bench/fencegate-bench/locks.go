//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/peers"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

type locksCmd struct {
	rig.Servers
	rig.Pace `set:"clients=1,8,64" set:"rounds=3" set:"duration=2s" set:"warmup=500ms"` //nolint:staticcheck // kong takes several "set"

	Measure    []string      `help:"What to measure: ${enum}." enum:"wake-up,cycles,leases,crowd" default:"wake-up,cycles,leases,crowd"`
	HandOffs   int           `help:"Wake-up: how many hand-offs of a lock are measured in a round." default:"500"`
	Gateways   []int         `help:"Wake-up, cycles: numbers of gateways to measure with." default:"1,2"`
	RedisFsync bool          `name:"redis-fsync" help:"Leases: Redis flushes each change before it answers (appendfsync always). Default: it keeps nothing on disk."`
	Waiters    int           `help:"Crowd: how many wait for one lock." default:"10000"`
	Idle       time.Duration `help:"Crowd: how long the load is observed while nothing happens." default:"10s"`
}

// Validate is called by kong.
func (c locksCmd) Validate() error {
	if len(c.Gateways) == 0 || slices.Min(c.Gateways) < 1 || c.HandOffs < 1 || c.Waiters < 2 || c.Idle <= 0 {
		return errors.New("--gateways, --hand-offs and --idle must be positive, and --waiters at least 2")
	}
	return nil
}

// Run measures.
func (c *locksCmd) Run(ctx context.Context, to output) error {
	return measure(ctx, to, c.Servers, c.Pace, rig.Private{}, func(r *rig.Rig) error {
		var services []service
		for _, measure := range c.Measure {
			var err error
			if services == nil && (measure == "wake-up" || measure == "cycles") {
				if services, err = c.services(ctx, r); err != nil {
					return err
				}
			}
			switch measure {
			case "wake-up":
				err = wakeUps(ctx, r, services, c.HandOffs)
			case "cycles":
				err = cycles(ctx, r, services)
			case "leases":
				err = leases(ctx, r, c.RedisFsync)
			case "crowd":
				for round := 1; err == nil && round <= c.Rounds; round++ {
					err = c.crowd(ctx, r, round)
				}
			}
			if err != nil {
				return fmt.Errorf("%s: %w", measure, err)
			}
		}
		return nil
	}, c.goals)
}

func (c *locksCmd) goals(r rig.Report) (goals []rig.Goal) {
	for clients, limit := range map[int]float64{1: 1, 8: 1, 64: 1.7} {
		goals = append(goals, rig.Goal{Name: fmt.Sprintf("a lock each, %d clients: fencegate / etcd", clients), Limit: limit,
			Figure: r.Ratio("cycles", ownLocks+clientsName(clients), "fencegate", "etcd", rig.PerSecond)})
	}
	return append(goals, rig.Goal{Name: "one lock, 64 clients: cycles/s", Limit: 3000,
		Figure: r.Spread("cycles", oneLock+clientsName(64), "fencegate", rig.PerSecond)},
		rig.Goal{Name: "waiters of one lock: grants/s while they drain", Limit: 4000,
			Figure: r.Spread(c.crowdTable(), grantsPerSecond, "fencegate", crowdValue)})
}

// service is a lock service that is measured.
type service struct {
	name string
	// gateways is how many of them clients take turns between; 0 for others' services.
	gateways int
	// queues says that its lockers tell how many wait.
	queues  bool
	servers []int
	address string // of a peer
	// connect makes the client of that number, from 0, with a connection of its own.
	connect func(ctx context.Context, client int) (locker, error)
}

// locker is one client of a service.
type locker struct {
	// hold waits until the lock is granted.
	hold func(ctx context.Context, lock string) (held, error)
	// waiting is how many wait for a lock that is held; nil: the service has no queue.
	waiting func(ctx context.Context, lock string) (int, error)
	// close ends the connection; nil: it has none of its own.
	close func() error
}

// held is a lease that a client has. renew is nil where it is not measured.
type held struct {
	renew, release func(context.Context) error
}

// connectAll makes clients, and the function that closes them all.
func (s service) connectAll(ctx context.Context, count int) (lockers []locker, closeAll func() error, err error) {
	closeAll = func() error {
		var closing errgroup.Group
		for _, l := range lockers {
			if l.close != nil {
				closing.Go(l.close)
			}
		}
		return closing.Wait()
	}
	for client := range count {
		l, err := s.connect(ctx, client)
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("%s: connect client %d: %w", s.name, client, err), closeAll())
		}
		lockers = append(lockers, l)
	}
	return lockers, closeAll, nil
}

// Whether every client has a lock of its own, or all have one.
const (
	ownLocks = "own locks, "
	oneLock  = "one lock, "
)

// cycles measures acquires and releases in turn, with each number of clients.
func cycles(ctx context.Context, r *rig.Rig, services []service) error {
	for _, which := range []string{ownLocks, oneLock} {
		for _, clients := range r.Clients {
			if which == oneLock && clients == 1 {
				continue // is the same as one client with a lock of its own
			}
			var targets []rig.Target
			for _, s := range services {
				if clients >= s.gateways {
					targets = append(targets, s.cycle(r.Prefix, which, "etcd"))
				}
			}
			c := rig.Case{Table: "cycles", Name: which + clientsName(clients), Clients: clients}
			if err := r.Compare(ctx, c, targets); err != nil {
				return err
			}
		}
	}
	return nil
}

// cycle is an acquire and a release.
func (s service) cycle(prefix, which, base string) rig.Target {
	return rig.Target{Name: s.name, Base: base, Servers: s.servers,
		Open: func(ctx context.Context, clients, _ int) (rig.Session, error) {
			lockers, closeAll, err := s.connectAll(ctx, clients)
			return rig.Session{Close: closeAll, Do: func(ctx context.Context, client, _ int) error {
				lease, err := lockers[client].hold(ctx, s.lock(prefix, which, client))
				if err != nil {
					return err
				}
				return lease.release(ctx)
			}}, err
		}}
}

// heartbeat is a renewal of a lease that the client holds.
func (s service) heartbeat(prefix, base string) rig.Target {
	return rig.Target{Name: s.name, Base: base, Servers: s.servers,
		Open: func(ctx context.Context, clients, _ int) (rig.Session, error) {
			lockers, closeAll, err := s.connectAll(ctx, clients)
			if err != nil {
				return rig.Session{}, err
			}
			var leases []held
			session := rig.Session{Close: func() (err error) {
				for _, lease := range leases {
					err = errors.Join(err, lease.release(ctx))
				}
				return errors.Join(err, closeAll())
			}, Do: func(ctx context.Context, client, _ int) error { return leases[client].renew(ctx) }}
			for client, l := range lockers {
				lease, err := l.hold(ctx, s.lock(prefix, ownLocks, client))
				if err != nil {
					return session, errors.Join(err, session.Close())
				}
				leases = append(leases, lease)
			}
			return session, nil
		}}
}

// lock is the name of a client's lock. It keeps the services apart: some of them share servers.
func (s service) lock(prefix, which string, client int) string {
	prefix += "/" + strings.ReplaceAll(s.name, " ", "-")
	if which == oneLock {
		return prefix + "/one"
	}
	return fmt.Sprintf("%s/own/%d", prefix, client)
}

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
