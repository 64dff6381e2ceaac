package redislease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/redislease"
)

// never is an interval of polls that no test outlives.
const never = time.Hour

// waitSuite is a process that does not poll.
type waitSuite struct{ here *redislease.Leases }

// TestWaiting checks who is granted the lock next, and what wakes the waiters.
func TestWaiting(t *testing.T) {
	t.Parallel()
	db, server := openDB(t), redis.Start(t)
	s := &waitSuite{open(t, db, redislease.Config{PollInterval: never}, server)}
	awaitSubscribers(t, server, 1)
	t.Run("in the order of arrival", s.inOrder)
	t.Run("the client leaves", s.clientLeaves)
	t.Run("the time is over", s.timeIsOver)
	t.Run("the same request sent again", s.sameRequest)
	await.True(t, "nobody waits any more", func() bool { return s.here.Waiting() == 0 })
}

func (s *waitSuite) inOrder(t *testing.T) {
	lease := acquire(t, s.here, request("order", "holder"))
	var queue []<-chan outcome
	for i := range 4 {
		queue = append(queue, inBackground(await.Context(t), t, s.here, waiting("order", fmt.Sprint("waiter ", i))))
	}
	_, err := s.here.Acquire(t.Context(), request("order", "try"))
	var found *store.HeldError
	if !errors.As(err, &found) || found.OwnerID != "holder" || found.QueueLength != 4 {
		t.Errorf("a try while 4 wait: %v, want it held by the holder", err)
	}
	for i, next := range queue {
		release(t, s.here, lease)
		lease = granted(t, fmt.Sprint("the lock for waiter ", i), next)
		if want := fmt.Sprint("waiter ", i); lease.OwnerID != want {
			t.Errorf("granted to %s, want %s", lease.OwnerID, want)
		}
	}
	release(t, s.here, lease)
}

func (s *waitSuite) clientLeaves(t *testing.T) {
	lease := acquire(t, s.here, request("leave", "holder"))
	ctx, cancel := context.WithCancel(t.Context())
	first := inBackground(ctx, t, s.here, waiting("leave", "first"))
	second := inBackground(ctx, t, s.here, waiting("leave", "second"))
	third := inBackground(await.Context(t), t, s.here, waiting("leave", "third"))
	cancel()
	for _, left := range []<-chan outcome{first, second} {
		fails(t, "a waiter that left", await.Receive(t, "its end", left).err, context.Canceled)
	}
	release(t, s.here, lease)
	release(t, s.here, granted(t, "the lock for the waiter behind", third))
}

func (s *waitSuite) timeIsOver(t *testing.T) {
	lease := acquire(t, s.here, request("time", "holder"))
	first, behind := waiting("time", "first"), waiting("time", "behind")
	first.Wait, behind.Wait = short, time.Millisecond
	waits := inBackground(await.Context(t), t, s.here, first)
	_, err := s.here.Acquire(await.Context(t), behind)
	fails(t, "a waiter that was never the first", err, store.ErrLeaseHeld)
	fails(t, "the first waiter", await.Receive(t, "its end", waits).err, store.ErrLeaseHeld)
	release(t, s.here, lease)
}

func (s *waitSuite) sameRequest(t *testing.T) {
	r := waiting("same", "A")
	r.RequestID = "r"
	first := acquire(t, s.here, r)
	next := inBackground(await.Context(t), t, s.here, waiting("same", "B"))
	if again := acquire(t, s.here, r); again.ID != first.ID {
		t.Errorf("got %+v, want %+v", again, first)
	}
	release(t, s.here, first)
	release(t, s.here, granted(t, "the lock for B", next))
}

// TestWaitersPollWithoutPublish checks that waiters find the release if the user may neither subscribe nor publish. It
// has no other rights than those that docs/other-locks.md demands.
func TestWaitersPollWithoutPublish(t *testing.T) {
	t.Parallel()
	db, server := openDB(t), redis.Start(t)
	server.Do("ACL", "SETUSER", "mute", "on", ">pw", "~*", "resetchannels", "+eval", "+evalsha", "+get", "+set",
		"+del", "+pexpire", "+pttl", "+time", "+ping", "+publish", "+subscribe")
	config := redislease.Config{URLs: []string{server.UserURL("mute", "pw")}, PollInterval: 20 * time.Millisecond}
	here, there := open(t, db, config), open(t, db, config)
	held := acquire(t, there, request("lock", "there"))
	next := inBackground(await.Context(t), t, here, waiting("lock", "here"))
	release(t, there, held)
	granted(t, "the lock by a poll", next)
}

// awaitSubscribers waits until so many listen to releases.
func awaitSubscribers(t *testing.T, server *redis.Server, want int) {
	t.Helper()
	await.True(t, "all listen to releases", func() bool {
		return server.Do("PUBLISH", "fencegate:released", "") == fmt.Sprint(want)
	})
}

// TestPolls checks that a waiter seldom polls a lease whose end is announced to it, and often what another program has.
func TestPolls(t *testing.T) {
	t.Parallel()
	db, server := openDB(t), redis.Start(t)
	config := redislease.Config{PollInterval: 10 * time.Millisecond}
	ofLease, ofOther := open(t, db, config, server), open(t, db, config, server)
	awaitSubscribers(t, server, 2)
	acquire(t, ofLease, request("lease", "A"))
	server.Do("SET", "other", "another program's", "PX", "600000")
	const few = 20
	ctx, cancel := context.WithCancel(t.Context())
	first := inBackground(ctx, t, ofLease, waiting("lease", "B"))
	second := inBackground(ctx, t, ofOther, waiting("other", "B"))
	calls := func(of *redislease.Leases) uint64 { return of.Stats()[0].Calls }
	await.True(t, "polls of the other program's key", func() bool { return calls(ofOther) > 5*few })
	if polls := calls(ofLease); polls > 2*few {
		t.Errorf("%d calls for the lease, and %d for the key of another program", polls, calls(ofOther))
	}
	cancel()
	for _, left := range []<-chan outcome{first, second} {
		fails(t, "a waiter that left", await.Receive(t, "its end", left).err, context.Canceled)
	}
}

// TestListensAgain checks that a waiter tries again when the connection for published releases was lost for a while.
func TestListensAgain(t *testing.T) {
	t.Parallel()
	server := redis.Start(t)
	leases := open(t, openDB(t), redislease.Config{PollInterval: never}, server)
	awaitSubscribers(t, server, 1)
	acquire(t, leases, request("lock", "A"))
	next := inBackground(await.Context(t), t, leases, waiting("lock", "B"))
	server.Do("DEL", "lock")
	server.Do("CLIENT", "KILL", "TYPE", "pubsub")
	granted(t, "the lock by the next subscription", next)
}
