//go:build unix

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/internal/test/testenv/peers"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/redislease"
)

const (
	// redisServers are as many as the largest redlock has. The smaller ones use the first of them.
	redisServers = 5
	// redisTimeout is longer than a server waits for the processor while everything is busy on a few cores.
	redisTimeout = 10 * time.Second
)

// leases measures what keeps leases, beside libraries that lock in Redis.
func leases(ctx context.Context, r *rig.Rig, fsync bool) error {
	l := &leaseServices{Rig: r}
	if err := l.start(ctx, fsync); err != nil {
		return err
	}
	for _, clients := range r.Clients {
		for _, operation := range []string{"acquire and release", "heartbeat"} {
			var targets []rig.Target
			for _, s := range l.services {
				if operation == "heartbeat" {
					targets = append(targets, s.heartbeat(r.Prefix+"/leases", "redislock"))
				} else {
					targets = append(targets, s.cycle(r.Prefix+"/leases", ownLocks, "redislock"))
				}
			}
			c := rig.Case{Table: "leases", Name: operation + ", " + clientsName(clients), Clients: clients}
			if err := r.Compare(ctx, c, targets); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaseServices are fencegate's providers, each by the engine in this process and by a gateway, and libraries.
type leaseServices struct {
	*rig.Rig

	servers  []*peers.Peer
	services []service
}

func (l *leaseServices) start(ctx context.Context, fsync bool) error {
	if err := l.addFencegate(ctx, store.ProviderPostgres, 0); err != nil {
		return err
	}
	if takesPart, err := l.TakesPart("leases in Redis", l.startRedis(ctx, fsync)); !takesPart {
		return err
	}
	for _, of := range []struct {
		provider store.Provider
		servers  int
	}{{store.ProviderRedis, 1}, {store.ProviderRedlock, 3}, {store.ProviderRedlock, 5}} {
		if err := l.addFencegate(ctx, of.provider, of.servers); err != nil {
			return err
		}
	}
	l.addRedsync(1)
	l.addRedsync(3)
	l.addRedislock()
	return nil
}

// startRedis runs the servers. They vote in redlock at once: nobody has lost a lease by their start.
func (l *leaseServices) startRedis(ctx context.Context, fsync bool) error {
	settings := []string{"--save", "", "--appendonly", "no"}
	if fsync {
		settings = []string{"--save", "", "--appendonly", "yes", "--appendfsync", "always"}
	}
	for range redisServers {
		server, err := peers.StartRedis(ctx, settings...)
		if err := l.Keep("leases in Redis, "+strings.Join(settings, " "), server, err); err != nil {
			return err
		}
		l.servers = append(l.servers, server)
		client := l.client(server)
		runID := client.InfoMap(ctx, "server").Item("Server", "run_id")
		if err := client.Set(ctx, "fencegate//server", runID+" 1", 0).Err(); err != nil {
			return err
		}
	}
	return nil
}

// addFencegate adds a provider over the first servers: its engine in this process, and a gateway.
func (l *leaseServices) addFencegate(ctx context.Context, provider store.Provider, servers int) error {
	name := string(provider)
	if servers > 1 {
		name = fmt.Sprintf("%s %d", provider, servers)
	}
	var urls []string
	var pids []int
	for _, server := range l.servers[:servers] {
		urls, pids = append(urls, "redis://"+server.Address), append(pids, server.PID())
	}
	local, err := l.startEngine(provider, urls)
	if err != nil {
		return err
	}
	flags := []string{"--leases", string(provider), "--redis-timeout", redisTimeout.String(), "--redlock-ttl-max",
		leaseTTL.String()}
	switch provider {
	case store.ProviderRedis:
		flags = append(flags, "--redis-url", urls[0])
	case store.ProviderRedlock:
		flags = append(flags, "--redlock-urls", strings.Join(urls, ","))
	}
	gateway, err := l.Gateway(ctx, flags...)
	if err != nil {
		return err
	}
	l.services = append(l.services,
		service{name: name, servers: pids, connect: func(_ context.Context, client int) (locker, error) {
			return engineLocker(local, fmt.Sprintf("bench-%d", client)), nil
		}},
		service{name: name + " http", servers: append(pids, gateway.PID()),
			connect: func(_ context.Context, client int) (locker, error) {
				return gatewayClient{gateway.URL, fmt.Sprintf("bench-%d", client), leaseTTL, false}.locker()
			}})
	return nil
}

// startEngine runs an engine over the store of all engines.
func (l *leaseServices) startEngine(provider store.Provider, urls []string) (*engine.Engine, error) {
	config := engine.Config{Leases: provider}
	if provider != store.ProviderPostgres {
		provider, err := redislease.New(l.Store, redislease.Config{
			Provider: provider, URLs: urls, Timeout: redisTimeout, TTLMax: leaseTTL,
		})
		if err != nil {
			return nil, err
		}
		l.OnEnd(provider.Close)
		config.Providers = []engine.LeaseProvider{provider}
	}
	e, err := engine.New(l.Store, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx, func(err error) { l.Progress("%s: %s", provider, err) }) })
	l.OnEnd(func() {
		cancel()
		running.Wait()
	})
	return e, nil
}

func engineLocker(on *engine.Engine, owner string) locker {
	return locker{hold: func(ctx context.Context, lock string) (held, error) {
		var lease store.Lease
		err := on.Acquire(ctx, &store.AcquireRequest{
			Lock: store.Name(lock), OwnerID: owner, TTL: leaseTTL, Wait: store.WaitMax,
		}, &lease)
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
func (l *leaseServices) client(server *peers.Peer) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: server.Address, MaxRetries: -1, ReadTimeout: redisTimeout})
	l.OnClose(client.Close)
	return client
}

func (l *leaseServices) addLibrary(name string, take func(ctx context.Context, lock string) (held, error)) {
	l.services = append(l.services, service{name: name, servers: []int{l.servers[0].PID()},
		connect: func(context.Context, int) (locker, error) { return locker{hold: take}, nil }})
}

func (l *leaseServices) addRedsync(servers int) {
	var pools []redsyncredis.Pool
	for _, server := range l.servers[:servers] {
		pools = append(pools, goredis.NewPool(l.client(server)))
	}
	locks := redsync.New(pools...)
	checked := func(did func(context.Context) (bool, error)) func(context.Context) error {
		return func(ctx context.Context) error {
			ok, err := did(ctx)
			if err == nil && !ok {
				err = errLockLost
			}
			return err
		}
	}
	l.addLibrary(fmt.Sprintf("redsync %d", servers), func(ctx context.Context, lock string) (held, error) {
		mutex := locks.NewMutex(lock, redsync.WithExpiry(leaseTTL))
		return held{checked(mutex.ExtendContext), checked(mutex.UnlockContext)}, mutex.LockContext(ctx)
	})
}

func (l *leaseServices) addRedislock() {
	locks := redislock.New(l.client(l.servers[0]))
	l.addLibrary("redislock", func(ctx context.Context, lock string) (held, error) {
		got, err := locks.Obtain(ctx, lock, leaseTTL, nil)
		return held{
			renew:   func(ctx context.Context) error { return got.Refresh(ctx, leaseTTL, nil) },
			release: func(ctx context.Context) error { return got.Release(ctx) },
		}, err
	})
}
