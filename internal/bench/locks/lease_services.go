//go:build unix

package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/fencegate/fencegate/internal/bench/peers"
	"github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/redislease"
)

const nameRedislock = "redislock"

const (
	// redisServers are as many as the largest redlock has. The smaller ones use the first of them.
	redisServers = 5
	// leaseTTL outlasts all measurements, in which leases are not renewed for a while.
	leaseTTL = time.Hour
	// redisTimeout is longer than a server waits for the processor while everything is busy on a few cores.
	redisTimeout = 10 * time.Second
)

// leaseRig is all that runs while leases are measured.
type leaseRig struct {
	config   Config
	st       *store.Store
	servers  []*peers.Redis
	services []service
	closers  []func() error
}

// openLeases starts what is on this machine, and notes in the report what is not. Whatever fails, close ends what was
// started.
func (c Config) openLeases(ctx context.Context, report *Report) (r *leaseRig, err error) {
	r = &leaseRig{config: c}
	r.st, err = store.Open(ctx, store.Config{DatabaseURL: c.DatabaseURL, ConnectionsMax: c.Connections})
	if err != nil {
		return r, err
	}
	r.onClose(r.st.Close)
	if err := r.st.Migrate(ctx); err != nil {
		return r, err
	}
	if err := r.addFencegate(ctx, store.ProviderPostgres, 0); err != nil {
		return r, err
	}
	switch err := r.startRedis(ctx); {
	case errors.Is(err, peers.ErrAbsent):
		report.skip(c, "leases in Redis", err.Error())
		return r, nil
	case err != nil:
		return r, err
	}
	report.Peers[nameRedis] = r.servers[0].Version
	for _, of := range []struct {
		provider store.Provider
		servers  int
	}{{store.ProviderRedis, 1}, {store.ProviderRedlock, 3}, {store.ProviderRedlock, 5}} {
		if err := r.addFencegate(ctx, of.provider, of.servers); err != nil {
			return r, err
		}
	}
	r.addRedsync(1)
	r.addRedsync(3)
	r.addRedislock()
	return r, nil
}

func (r *leaseRig) onClose(end func()) {
	r.closers = append(r.closers, func() error {
		end()
		return nil
	})
}

// close ends everything, what was started last first.
func (r *leaseRig) close() error {
	var errs []error
	for _, end := range slices.Backward(r.closers) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// fencegate are the services whose tokens are PostgreSQL's.
func (r *leaseRig) fencegate() []service {
	return slices.DeleteFunc(slices.Clone(r.services), func(s service) bool { return s.peer != nil })
}

// startRedis runs the servers. They vote in redlock at once: nobody has lost a lease by their start.
func (r *leaseRig) startRedis(ctx context.Context) error {
	settings := []string{"--save", "", "--appendonly", "no"}
	if r.config.RedisFsync {
		settings = []string{"--save", "", "--appendonly", "yes", "--appendfsync", "always"}
	}
	for range redisServers {
		server, err := peers.StartRedis(ctx, settings...)
		if err != nil {
			return err
		}
		r.closers = append(r.closers, server.Stop)
		r.servers = append(r.servers, server)
		client := server.Connect()
		runID := client.InfoMap(ctx, "server").Item("Server", "run_id")
		err = client.Set(ctx, "fencegate//server", runID+" 1", 0).Err()
		if err := errors.Join(err, client.Close()); err != nil {
			return err
		}
	}
	return nil
}

// addFencegate adds a provider over the first servers: its engine in this process, and a gateway.
func (r *leaseRig) addFencegate(ctx context.Context, provider store.Provider, servers int) error {
	name := string(provider)
	if servers > 1 {
		name = fmt.Sprintf("%s %d", provider, servers)
	}
	var urls []string
	for _, server := range r.servers[:servers] {
		urls = append(urls, "redis://"+server.Address)
	}
	local, err := r.startEngine(provider, urls)
	if err != nil {
		return err
	}
	r.services = append(r.services, service{name: name, gateways: 1,
		connect: func(_ context.Context, client int) (locker, error) {
			return engineHolder(local, fmt.Sprintf("bench-%d", client)), nil
		}})
	gateway, err := r.startGateway(ctx, provider, urls)
	if err != nil {
		return err
	}
	r.services = append(r.services, service{name: name + " http", gateways: 1,
		connect: func(_ context.Context, client int) (locker, error) {
			l, err := newGatewayLocker(gateway.URL, fmt.Sprintf("bench-%d", client), HTTP1)
			if err != nil {
				return nil, err
			}
			l.ttl = leaseTTL
			return holder{func(ctx context.Context, lock string) (held, error) {
				return l.holdAs(ctx, lock, l.owner)
			}, l.close}, nil
		}})
	return nil
}

// startEngine runs an engine over the store of all engines.
func (r *leaseRig) startEngine(provider store.Provider, urls []string) (*engine.Engine, error) {
	config := engine.Config{Leases: provider}
	if provider != store.ProviderPostgres {
		keeper, err := redislease.New(r.st, redislease.Config{
			Provider: provider, URLs: urls, Timeout: redisTimeout, TTLMax: leaseTTL,
		})
		if err != nil {
			return nil, err
		}
		r.onClose(keeper.Close)
		config.Keepers = []engine.Keeper{keeper}
	}
	e, err := engine.New(r.st, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx, func(err error) { r.config.progress("%s: %s", provider, err) }) })
	r.onClose(func() {
		cancel()
		running.Wait()
	})
	return e, nil
}

func (r *leaseRig) startGateway(
	ctx context.Context, provider store.Provider, urls []string,
) (*gateway.Process, error) {
	flags := []string{
		"--database-url", r.config.DatabaseURL, "--database-connections-max", strconv.Itoa(r.config.Connections),
		"--leases", string(provider), "--redis-timeout", redisTimeout.String(), "--redlock-ttl-max", leaseTTL.String(),
	}
	switch provider {
	case store.ProviderRedis:
		flags = append(flags, "--redis-url", urls[0])
	case store.ProviderRedlock:
		flags = append(flags, "--redlock-urls", strings.Join(urls, ","))
	}
	gateway, err := gateway.Run(ctx, r.config.Program, flags...)
	if err == nil {
		r.closers = append(r.closers, gateway.Stop)
	}
	return gateway, err
}

func engineHolder(on *engine.Engine, owner string) holder {
	return holder{hold: func(ctx context.Context, lock string) (held, error) {
		lease, err := on.Acquire(ctx, store.AcquireRequest{
			Lock: store.Name(lock), OwnerID: owner, TTL: leaseTTL, Wait: store.WaitMax,
		})
		return held{
			renew: func(ctx context.Context) error {
				_, err := on.Renew(ctx, lease.Ref(), 0)
				return err
			},
			release: func(ctx context.Context) error { return on.Release(ctx, lease.Ref()) },
		}, err
	}}
}

// client is one for all clients of a library, as programs use it, with as many connections as fencegate's has.
func (r *leaseRig) client(server *peers.Redis) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: server.Address, MaxRetries: -1, ReadTimeout: redisTimeout})
	r.closers = append(r.closers, client.Close)
	return client
}

// add adds a library.
func (r *leaseRig) add(name string, hold func(ctx context.Context, lock string) (held, error)) {
	r.services = append(r.services, service{name: name, peer: r.servers[0].Peer, gateways: 1,
		connect: func(context.Context, int) (locker, error) { return holder{hold: hold}, nil }})
}

func (r *leaseRig) addRedsync(servers int) {
	var pools []redsyncredis.Pool
	for _, server := range r.servers[:servers] {
		pools = append(pools, goredis.NewPool(r.client(server)))
	}
	locks := redsync.New(pools...)
	r.add(fmt.Sprintf("redsync %d", servers), func(ctx context.Context, lock string) (held, error) {
		mutex := locks.NewMutex(lock, redsync.WithExpiry(leaseTTL))
		checked := func(did func(context.Context) (bool, error)) func(context.Context) error {
			return func(ctx context.Context) error {
				ok, err := did(ctx)
				if err == nil && !ok {
					err = errLockLost
				}
				return err
			}
		}
		return held{checked(mutex.ExtendContext), checked(mutex.UnlockContext)}, mutex.LockContext(ctx)
	})
}

func (r *leaseRig) addRedislock() {
	locks := redislock.New(r.client(r.servers[0]))
	r.add(nameRedislock, func(ctx context.Context, lock string) (held, error) {
		got, err := locks.Obtain(ctx, lock, leaseTTL, nil)
		return held{
			renew:   func(ctx context.Context) error { return got.Refresh(ctx, leaseTTL, nil) },
			release: func(ctx context.Context) error { return got.Release(ctx) },
		}, err
	})
}
