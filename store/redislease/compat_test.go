package redislease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	testredis "github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/redislease"
)

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
	db := openDB(t)
	for _, of := range libraries {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			c := &compat{library: of}
			servers := startVoting(t, of.servers)
			for _, server := range servers {
				c.clients = append(c.clients, connect(t, server))
			}
			c.leases = open(t, db, redislease.Config{PollInterval: 20 * time.Millisecond}, servers...)
			c.released(t, "released/"+of.name)
			c.expired(t, "expired/"+of.name)
		})
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
	_, err := c.leases.Acquire(await.Context(t), request(lock, "A"))
	var found *store.HeldError
	if !errors.As(err, &found) || found.OwnerID != "(not fencegate)" ||
		found.Remaining > long || found.Remaining < long-await.Limit {
		t.Fatalf("a try beside the other's lock: %+v, want it held for an hour", err)
	}
	next := inBackground(await.Context(t), t, c.leases, waiting(lock, "A"))
	if err := unlock(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	lease := granted(t, "the lock after the other's release", next)

	c.taken(t, lock)
	fails(t, "the other's second release", unlock(await.Context(t)), errNotHeld)
	c.taken(t, lock)
	release(t, c.leases, lease)
	if err := c.lock(t, lock, long)(await.Context(t)); err != nil {
		t.Error(err)
	}
}

// expired checks that each gets the lock when that of the other has expired, and that the other can't release it then.
func (c *compat) expired(t *testing.T, lock string) {
	unlock := c.lock(t, lock, short)
	shortly := waiting(lock, "A")
	shortly.TTL = short
	lease := acquire(t, c.leases, shortly)
	fails(t, "the other's late release", unlock(await.Context(t)), errNotHeld)

	var last error
	await.True(t, "the lock after the lease has expired", func() bool {
		unlock, last = c.try(await.Context(t), c.clients, lock, long)
		return !errors.Is(last, errTaken)
	})
	if last != nil {
		t.Fatal(last)
	}
	_, err := c.leases.ReleaseLease(await.Context(t), lease.Ref())
	if err != nil {
		fails(t, "the late release of the lease", err, store.ErrLeaseLost)
	}
	held(t, c.leases, lock, "(not fencegate)")
	if err := unlock(await.Context(t)); err != nil {
		t.Error(err)
	}
}
