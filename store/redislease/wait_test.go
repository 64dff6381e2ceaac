package redislease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/redistest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/redislease"
)

// never is an interval of polls that no test outlives.
const never = time.Hour

// TestWaiting checks who is granted the lock next, and what wakes the waiters.
func TestWaiting(t *testing.T) {
	t.Parallel()
	db, server := openDB(t), redistest.Start(t)
	here := open(t, db, redislease.Config{PollInterval: never}, server)
	there := open(t, db, redislease.Config{PollInterval: never}, server)
	awaitSubscribers(t, server, 2)

	t.Run("in the order of arrival", func(t *testing.T) {
		held := acquire(t, here, request("order", "holder"))
		var queue []<-chan outcome
		for i := range 4 {
			queue = append(queue, inBackground(await.Context(t), t, here, waiting("order", fmt.Sprint("waiter ", i))))
		}
		_, err := here.Acquire(t.Context(), request("order", "try"))
		var found *store.HeldError
		if !errors.As(err, &found) || found.OwnerID != "holder" || found.QueueLength != 4 {
			t.Errorf("a try while 4 wait: %v, want it held by the holder", err)
		}
		for i, next := range queue {
			release(t, here, held)
			held = granted(t, fmt.Sprint("the lock for waiter ", i), next)
		}
		release(t, here, held)
	})

	t.Run("a release in another process", func(t *testing.T) {
		held := acquire(t, there, request("publish", "there"))
		next := inBackground(await.Context(t), t, here, waiting("publish", "here"))
		release(t, there, held)
		release(t, here, granted(t, "the lock by the published release", next))
	})

	t.Run("the client leaves", func(t *testing.T) {
		held := acquire(t, here, request("leave", "holder"))
		ctx, cancel := context.WithCancel(t.Context())
		first := inBackground(ctx, t, here, waiting("leave", "first"))
		second := inBackground(ctx, t, here, waiting("leave", "second"))
		third := inBackground(await.Context(t), t, here, waiting("leave", "third"))
		cancel()
		for _, left := range []<-chan outcome{first, second} {
			fails(t, "a waiter that left", await.Receive(t, "its end", left).err, context.Canceled)
		}
		release(t, here, held)
		release(t, here, granted(t, "the lock for the waiter behind", third))
	})

	t.Run("the time is over", func(t *testing.T) {
		held := acquire(t, here, request("time", "holder"))
		first := waiting("time", "first")
		first.Wait = short
		waits := inBackground(await.Context(t), t, here, first)
		behind := first
		behind.OwnerID, behind.Wait = "behind", time.Millisecond
		for _, r := range []store.AcquireRequest{behind} {
			_, err := here.Acquire(await.Context(t), r)
			fails(t, "a waiter that was never the first", err, store.ErrLeaseHeld)
		}
		fails(t, "the first waiter", await.Receive(t, "its end", waits).err, store.ErrLeaseHeld)
		release(t, here, held)
	})

	t.Run("the same request sent again", func(t *testing.T) {
		r := waiting("same", "A")
		r.RequestID = "r"
		first := acquire(t, here, r)
		inBackground(t.Context(), t, here, waiting("same", "B"))
		if again := acquire(t, here, r); again.ID != first.ID {
			t.Errorf("got %+v, want %+v", again, first)
		}
	})
	if n := here.Waiting(); n > 1 {
		t.Errorf("%d wait, want no more than B", n)
	}
}

// TestWaitersPollWithoutPublish checks that the release is found by a user that may neither subscribe nor publish.
func TestWaitersPollWithoutPublish(t *testing.T) {
	t.Parallel()
	db, server := openDB(t), redistest.Start(t)
	server.Do("ACL", "SETUSER", "mute", "on", ">pw", "~*", "resetchannels", "+@all")
	config := redislease.Config{URLs: []string{server.UserURL("mute", "pw")}, PollInterval: 20 * time.Millisecond}
	here, there := open(t, db, config), open(t, db, config)
	held := acquire(t, there, request("lock", "there"))
	next := inBackground(await.Context(t), t, here, waiting("lock", "here"))
	release(t, there, held)
	granted(t, "the lock by a poll", next)
}

// awaitSubscribers waits until so many listen to releases.
func awaitSubscribers(t *testing.T, server *redistest.Server, want int) {
	t.Helper()
	await.True(t, "all listen to releases", func() bool {
		return server.Do("PUBLISH", "fencegate:released", "") == fmt.Sprint(want)
	})
}

// TestLossDuringTheMint checks what becomes of an acquire between its reservation and its confirmation.
func TestLossDuringTheMint(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	db := &mintHook{Database: openDB(t)}
	leases, other := open(t, db, redislease.Config{}, server), open(t, db, redislease.Config{}, server)
	broken := errors.New("broken for the test")
	deleteKey := func(lock string) func() error {
		return func() error {
			server.Do("DEL", lock)
			return nil
		}
	}

	t.Run("the mint fails", func(t *testing.T) {
		db.set(func() error { return store.NotApplied(broken) }, nil)
		_, err := leases.Acquire(t.Context(), request("fails", "A"))
		fails(t, "the acquire", err, broken)
		acquire(t, other, request("fails", "B"))
	})

	t.Run("the key is lost", func(t *testing.T) {
		r := request("key", "A")
		r.RequestID = "r"
		db.set(nil, deleteKey("key"))
		_, err := leases.Acquire(t.Context(), r)
		fails(t, "the acquire", err, store.ErrProviderUnavailable)
		acquire(t, leases, r) // the request_id is free again
	})

	t.Run("another takes the lock, and has the lower token", func(t *testing.T) {
		var won store.Lease
		db.set(func() error {
			server.Do("DEL", "lower")
			won = acquire(t, other, request("lower", "B"))
			return nil
		}, nil)
		_, err := leases.Acquire(t.Context(), request("lower", "A"))
		fails(t, "the acquire", err, store.ErrProviderUnavailable)
		_, err = other.Renew(t.Context(), won.Ref(), 0)
		lost(t, "a renewal of the lease that is shut out at the fence", err, "superseded")
		acquire(t, other, request("lower", "C"))
	})

	t.Run("another takes the lock, and has the higher token", func(t *testing.T) {
		var won store.Lease
		db.set(nil, func() error {
			server.Do("DEL", "higher")
			won = acquire(t, other, request("higher", "B"))
			return nil
		})
		_, err := leases.Acquire(t.Context(), request("higher", "A"))
		fails(t, "the acquire", err, store.ErrProviderUnavailable)
		if _, err := other.Renew(t.Context(), won.Ref(), 0); err != nil {
			t.Errorf("a renewal of the newest lease: %v", err)
		}
	})

	t.Run("the client leaves", func(t *testing.T) {
		for _, wait := range []time.Duration{0, store.WaitMax} {
			ctx, cancel := context.WithCancel(t.Context())
			db.set(nil, func() error { cancel(); return nil })
			r := request("client", "A")
			r.Wait = wait
			_, err := leases.Acquire(ctx, r)
			fails(t, "the acquire", err, context.Canceled)
			release(t, other, acquire(t, other, request("client", "B")))
		}
	})
}
