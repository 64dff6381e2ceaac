package redislease_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/spec/drive"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/redislease"
)

// TestMain makes random runs few, since the scenarios are the same for every provider.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "10"); err != nil {
		panic(err)
	}
	os.Exit(pgtest.Main(m))
}

// long is a TTL that no test outlives; short is one that a test waits for.
const long, short = time.Hour, 300 * time.Millisecond

// hasty is the timeout of calls that are to fail. By default, tests wait longer than a busy machine needs.
const hasty = 300 * time.Millisecond

func openDB(t *testing.T) *postgres.Store {
	t.Helper()
	return enginetest.OpenStore(t, postgres.Config{DatabaseURL: pgtest.Migrated(t)})
}

// open returns Leases that run until the test ends. A server is redis, several are redlock.
func open(t *testing.T, db redislease.Database, config redislease.Config, servers ...*redis.Server) *redislease.Leases {
	t.Helper()
	if config.URLs == nil {
		for _, s := range servers {
			config.URLs = append(config.URLs, s.URL())
		}
	}
	config.Provider = store.ProviderRedis
	if len(config.URLs) > 1 {
		config.Provider = store.ProviderRedlock
		if config.TTLMax == 0 {
			config.TTLMax = 2 * long
		}
	}
	if config.Timeout == 0 {
		config.Timeout = 10 * time.Second
	}
	leases, err := redislease.New(db, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { leases.Run(ctx, func(err error) { t.Log("Run:", err) }) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		leases.Close()
	})
	return leases
}

func startVoting(t *testing.T, count int) []*redis.Server {
	t.Helper()
	servers := redis.StartN(t, count)
	for _, server := range servers {
		server.Vote()
	}
	return servers
}

func request(lock, owner string) store.AcquireRequest {
	return store.AcquireRequest{Lock: store.Name(lock), OwnerID: owner, TTL: long}
}

func waiting(lock, owner string) store.AcquireRequest {
	r := request(lock, owner)
	r.Wait = store.WaitMax
	return r
}

func acquire(t *testing.T, on *redislease.Leases, request store.AcquireRequest) store.Lease {
	t.Helper()
	lease, err := on.Acquire(await.Context(t), request)
	// A busy machine may not reserve a lock within so short a TTL. The try then stands in the way for as long.
	if request.TTL == short && errors.Is(err, store.ErrProviderUnavailable) {
		await.True(t, "a lease that is so short", func() bool {
			lease, err = on.Acquire(await.Context(t), request)
			return !errors.Is(err, store.ErrProviderUnavailable) && !errors.Is(err, store.ErrLeaseHeld)
		})
	}
	if err != nil {
		t.Fatalf("acquire of %s by %s: %v", request.Lock, request.OwnerID, err)
	}
	return lease
}

func renew(t *testing.T, on *redislease.Leases, lease store.Lease) error {
	t.Helper()
	_, err := on.Renew(await.Context(t), lease.Ref(), 0)
	return err
}

func release(t *testing.T, on *redislease.Leases, lease store.Lease) {
	t.Helper()
	if _, err := on.ReleaseLease(await.Context(t), lease.Ref()); err != nil {
		t.Fatalf("release of %s by %s: %v", lease.Lock, lease.OwnerID, err)
	}
}

// held expects that a try finds the lock held, by somebody.
func held(t *testing.T, on *redislease.Leases, lock, by string) {
	t.Helper()
	_, err := on.Acquire(await.Context(t), request(lock, "try"))
	var found *store.HeldError
	if !errors.As(err, &found) || found.OwnerID != by {
		t.Errorf("a try for %s: %v, want it held by %s", lock, err, by)
	}
}

func fails(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func lost(t *testing.T, what string, err error, reason string) {
	t.Helper()
	var found *store.LostError
	if !errors.As(err, &found) || found.Reason != reason {
		t.Errorf("%s: %v, want the lease lost: %s", what, err, reason)
	}
}

// outcome is what an acquire in the background returned.
type outcome struct {
	lease store.Lease
	err   error
}

// inBackground sends an acquire, and returns when as many wait in the process as then should.
func inBackground(
	ctx context.Context, t *testing.T, on *redislease.Leases, request store.AcquireRequest,
) <-chan outcome {
	t.Helper()
	before := on.Waiting()
	came := make(chan outcome, 1)
	go func() {
		lease, err := on.Acquire(ctx, request)
		came <- outcome{lease, err}
	}()
	await.True(t, request.OwnerID+" waits", func() bool { return on.Waiting() > before })
	return came
}

func granted(t *testing.T, what string, from <-chan outcome) store.Lease {
	t.Helper()
	got := await.Receive(t, what, from)
	if got.err != nil {
		t.Fatalf("%s: %v", what, got.err)
	}
	return got.lease
}

// mintHook is a database that does something before and after it mints a token, and before it takes one back.
type mintHook struct {
	redislease.Database
	mu            sync.Mutex
	before, after func() error
	givenBack     func()
}

func (h *mintHook) GiveBack(ctx context.Context, lease store.Lease) error {
	if h.givenBack != nil {
		h.givenBack()
	}
	return h.Database.GiveBack(ctx, lease)
}

func (h *mintHook) set(before, after func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before, h.after = before, after
}

func (h *mintHook) GrantElsewhere(ctx context.Context, grant store.ElsewhereGrant) (store.Lease, error) {
	h.mu.Lock()
	before, after := h.before, h.after
	h.before, h.after = nil, nil
	h.mu.Unlock()
	if before != nil {
		if err := before(); err != nil {
			return store.Lease{}, err
		}
	}
	lease, err := h.Database.GrantElsewhere(ctx, grant)
	if err == nil && after != nil {
		err = after()
	}
	return lease, err
}

// TestProvider checks that leases in Redis, as a gateway serves them, are as every provider must keep them.
func TestProvider(t *testing.T) {
	t.Parallel()
	for provider, servers := range map[store.Provider]int{store.ProviderRedis: 1, store.ProviderRedlock: 3} {
		t.Run(string(provider), func(t *testing.T) {
			t.Parallel()
			db, servers := enginetest.New(t), startVoting(t, servers)
			config := redislease.Config{Provider: provider, TTLMax: store.TTLMax, Timeout: 10 * time.Second}
			for _, server := range servers {
				config.URLs = append(config.URLs, server.URL())
			}
			leases, err := redislease.New(db.Store, config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(leases.Close)
			sweeper := enginetest.NewSweeper(t, db.Store, postgres.SweeperConfig{})
			target := drive.Store{
				Service: enginetest.Run(t, db.Store, engine.Config{Leases: provider, RefusalsRememberedMax: -1,
					Providers: []engine.LeaseProvider{leases}}),
				SQL: db.SQL,
				Sweep: func(ctx context.Context) error {
					_, err := sweeper.Sweep(ctx)
					return err
				},
				Expire: func(lock store.Name) {
					for _, server := range servers {
						server.Do("DEL", string(lock))
					}
				},
			}
			drive.Scenarios(t, target, true)
			drive.Sequences(t, target, spec.Generator{
				Names: []store.Name{"a", "b", "b/c"}, Owners: []string{"A", "B", "A/1"}, Principals: []string{"A", "", "b"},
				Newest: true, Elsewhere: true, TTL: long / 2, TTLSpread: time.Second,
				Weights: []spec.Weight{
					{Kind: spec.Acquire, Share: 8}, {Kind: spec.Together, Share: 4}, {Kind: spec.Renew, Share: 4},
					{Kind: spec.Release, Share: 4}, {Kind: spec.Break, Share: 2}, {Kind: spec.Expire, Share: 4},
					{Kind: spec.Sweep, Share: 1}, {Kind: spec.Put, Share: 4}, {Kind: spec.SetPolicy, Share: 2},
					{Kind: spec.DeletePolicy, Share: 1}, {Kind: spec.ReadLock, Share: 3}, {Kind: spec.ReadFence, Share: 2},
				},
			})
		})
	}
}
