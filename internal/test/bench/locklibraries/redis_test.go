// Package locklibraries checks that fencegate and other programs' lock libraries exclude each other.
package locklibraries

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	testredis "github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/redislease"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// long is a TTL that no test outlives; short is one that a test waits for.
const long, short = time.Hour, 300 * time.Millisecond

// library is another program's way to lock in Redis.
type library struct {
	name    string
	servers int
	// try takes a lock if it is free, and returns how to unlock it; errTaken if it is not free.
	try func(ctx context.Context, on []redis.UniversalClient, lock string, ttl time.Duration) (unlocker, error)
}

// unlocker returns errNotHeld if the lock was lost before.
type unlocker func(context.Context) error

var errTaken, errNotHeld = errors.New("the lock is taken"), errors.New("the lock is not held")

var libraries = []library{
	{"redsync at one server", 1, tryRedsync},
	{"redsync at three servers", 3, tryRedsync},
	{"redislock", 1, tryRedislock},
}

func tryRedsync(ctx context.Context, on []redis.UniversalClient, lock string, ttl time.Duration) (unlocker, error) {
	var pools []redsyncredis.Pool
	for _, client := range on {
		pools = append(pools, goredis.NewPool(client))
	}
	mutex := redsync.New(pools...).NewMutex(lock, redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(1))
	err := mutex.TryLockContext(ctx)
	if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) {
		return nil, errTaken
	}
	return func(ctx context.Context) error {
		ok, err := mutex.UnlockContext(ctx)
		if !ok {
			return errNotHeld
		}
		return err
	}, err
}

func tryRedislock(ctx context.Context, on []redis.UniversalClient, lock string, ttl time.Duration) (unlocker, error) {
	obtained, err := redislock.Obtain(ctx, on[0], lock, ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil, errTaken
	}
	return func(ctx context.Context) error {
		err := obtained.Release(ctx)
		if errors.Is(err, redislock.ErrLockNotHeld) {
			return errNotHeld
		}
		return err
	}, err
}

// TestOtherLibraries checks that programs which lock with redsync or redislock and clients of fencegate exclude each
// other, as they do while a team moves from one to the other.
func TestOtherLibraries(t *testing.T) {
	t.Parallel()
	db := enginetest.OpenStore(t, postgres.Config{DatabaseURL: pgtest.Migrated(t)})
	for _, of := range libraries {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			c := &compat{library: of}
			c.start(t, db)
			c.released(t, "released/"+of.name)
			c.expired(t, "expired/"+of.name)
		})
	}
}

// start starts the servers, connects to them, and opens leases in them, which run until the test ends.
func (c *compat) start(t *testing.T, db *postgres.Store) {
	t.Helper()
	config := redislease.Config{
		Provider: store.ProviderRedis, PollInterval: 20 * time.Millisecond, Timeout: 10 * time.Second,
	}
	if c.servers > 1 {
		config.Provider, config.TTLMax = store.ProviderRedlock, 2*long
	}
	for _, server := range testredis.StartN(t, c.servers) {
		server.Vote()
		config.URLs = append(config.URLs, server.URL())
		c.clients = append(c.clients, connect(t, server))
	}
	leases, err := redislease.New(db, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		leases.Run(ctx, func(err error) { t.Log("Run:", err) })
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		leases.Close()
	})
	c.leases = leases
}

// acquire takes a lock once it is free.
func (c *compat) acquire(ctx context.Context, lock string, ttl time.Duration) (store.Lease, error) {
	request := store.AcquireRequest{Lock: store.Name(lock), OwnerID: "A", TTL: ttl, Wait: store.WaitMax}
	for {
		lease, err := c.leases.Acquire(ctx, request)
		if !errors.Is(err, store.ErrProviderUnavailable) { // a busy machine may not reserve it within so short a TTL
			return lease, err
		}
	}
}

// heldByOther expects that fencegate finds a lock held by a program that is not fencegate.
func (c *compat) heldByOther(t *testing.T, lock string) {
	t.Helper()
	_, err := c.leases.Acquire(await.Context(t), store.AcquireRequest{Lock: store.Name(lock), OwnerID: "try", TTL: long})
	var found *store.HeldError
	if !errors.As(err, &found) || found.OwnerID != "(not fencegate)" || found.Remaining > long {
		t.Fatalf("a try beside the other's lock: %+v, want it held by it", err)
	}
}

func fails(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func connect(t *testing.T, server *testredis.Server) redis.UniversalClient {
	t.Helper()
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// compat is a library beside fencegate, at the same servers.
type compat struct {
	library

	clients []redis.UniversalClient
	leases  *redislease.Leases
}

// lock takes a free lock with the library.
func (c *compat) lock(t *testing.T, lock string, ttl time.Duration) unlocker {
	t.Helper()
	unlock, err := c.try(await.Context(t), c.clients, lock, ttl)
	if err != nil {
		t.Fatalf("%s can't lock: %v", c.name, err)
	}
	return unlock
}

// taken expects that the library finds a lock taken.
func (c *compat) taken(t *testing.T, lock string) {
	t.Helper()
	_, err := c.try(await.Context(t), c.clients, lock, long)
	fails(t, "a try beside a lease", err, errTaken)
}

// released checks that each excludes the other until it releases the lock.
func (c *compat) released(t *testing.T, lock string) {
	unlock := c.lock(t, lock, long)
	c.heldByOther(t, lock)
	type outcome struct {
		lease store.Lease
		err   error
	}
	ctx, before, waiter := await.Context(t), c.leases.Waiting(), make(chan outcome, 1)
	go func() {
		lease, err := c.acquire(ctx, lock, long)
		waiter <- outcome{lease, err}
	}()
	await.True(t, "a waiter", func() bool { return c.leases.Waiting() > before })
	if err := unlock(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	next := await.Receive(t, "the lock after the other's release", waiter)
	if next.err != nil {
		t.Fatal(next.err)
	}

	c.taken(t, lock)
	fails(t, "the other's second release", unlock(await.Context(t)), errNotHeld)
	c.taken(t, lock)
	if _, err := c.leases.ReleaseLease(await.Context(t), next.lease.Ref()); err != nil {
		t.Fatal(err)
	}
	if err := c.lock(t, lock, long)(await.Context(t)); err != nil {
		t.Error(err)
	}
}

// expired checks that each gets the lock when that of the other has expired, and that the other can't release it then.
func (c *compat) expired(t *testing.T, lock string) {
	unlock := c.lock(t, lock, short)
	lease, err := c.acquire(await.Context(t), lock, short)
	if err != nil {
		t.Fatal(err)
	}
	fails(t, "the other's late release", unlock(await.Context(t)), errNotHeld)

	var last error
	await.True(t, "the lock after the lease has expired", func() bool {
		unlock, last = c.try(await.Context(t), c.clients, lock, long)
		return !errors.Is(last, errTaken)
	})
	if last != nil {
		t.Fatal(last)
	}
	if _, err = c.leases.ReleaseLease(await.Context(t), lease.Ref()); err != nil {
		fails(t, "the late release of the lease", err, store.ErrLeaseLost)
	}
	c.heldByOther(t, lock)
	if err := unlock(await.Context(t)); err != nil {
		t.Error(err)
	}
}
