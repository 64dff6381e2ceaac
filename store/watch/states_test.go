package watch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/watch"
)

// reader reads a watch and checks that the versions rise.
type reader struct {
	*watch.Subscription
	last int64
}

func (s *engines) watch(t *testing.T, index int, lock store.Name) *reader {
	t.Helper()
	w, err := s.At(index).Watch(await.Context(t), lock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return &reader{Subscription: w}
}

func (r *reader) next(t *testing.T) store.Lock {
	t.Helper()
	state, err := r.Next(await.Context(t))
	if err != nil || state.Version <= r.last {
		t.Fatalf("after the version %d there is %+v (%v)", r.last, state, err)
	}
	r.last = state.Version
	return state.Lock
}

// expect expects the next state to be this one: the owner of the holder, "" for none, and the length of the queue.
func (r *reader) expect(t *testing.T, state store.LockState, owner string, queue int64) store.Lock {
	t.Helper()
	lock := r.next(t)
	var holder store.Lease
	if lock.Holder() != nil {
		holder = *lock.Holder()
	}
	if lock.State != state || holder.OwnerID != owner || lock.QueueLength != queue {
		t.Fatalf("the state is %+v, want %s, held by %q, %d waiting", lock, state, owner, queue)
	}
	return lock
}

func (s *engines) sweep(t *testing.T) {
	t.Helper()
	if _, err := enginetest.NewSweeper(t, s.Store, postgres.SweeperConfig{}).Sweep(await.Context(t)); err != nil {
		t.Error(err)
	}
}

// A watch returns the state of its lock at once, and a state with a greater version after each change, by notifications
// alone and on every engine. A renewal is no change.
func TestWatchReturnsEachChange(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 2, enginetest.NoPoll)
	w := s.watch(t, 1, "lock")
	if free := w.expect(t, store.LockFree, "", 0); free.Token != 0 || free.Lock != "lock" {
		t.Errorf("a lock that was never granted is %+v", free)
	}
	lease := s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "a", Metadata: []byte(`{"at":1}`)})
	held := w.expect(t, store.LockHeld, "a", 0)
	if holder := held.Holder(); holder.Token != lease.Token || held.Token != lease.Token || !holder.ExpiresAt.Equal(lease.ExpiresAt) ||
		string(holder.Metadata) != `{"at":1}` || holder.ID == lease.ID {
		t.Errorf("the state is %+v, want that of %+v without its ID", held, lease)
	}
	if _, err := s.At(0).Renew(await.Context(t), lease.Ref(), 0); err != nil {
		t.Fatal(err)
	}

	leaving, leave := context.WithCancel(t.Context())
	left := s.QueueFor(leaving, t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "gone"})
	if queued := w.expect(t, store.LockHeld, "a", 1); !queued.Holder().ExpiresAt.After(lease.ExpiresAt) {
		t.Errorf("the state is %+v, want the renewed lease", queued)
	}
	leave()
	enginetest.Answered(t, left)
	w.expect(t, store.LockHeld, "a", 0)
	next := s.Queue(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "b"})
	w.expect(t, store.LockHeld, "a", 1)
	s.Release(t, 0, lease) // handed over in one transaction
	w.expect(t, store.LockHeld, "b", 0)
	s.Release(t, 0, enginetest.Granted(t, next))
	w.expect(t, store.LockFree, "", 0)

	s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "c"})
	w.expect(t, store.LockHeld, "c", 0)
	s.Exec(t, "update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity' where ended_at is null")
	s.sweep(t)
	w.expect(t, store.LockExpired, "c", 0)
	if _, err := s.At(0).Break(await.Context(t), "lock", "for the test"); err != nil {
		t.Fatal(err)
	}
	w.expect(t, store.LockFree, "", 0)
	s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "d", Mode: store.Shared})
	w.expect(t, store.LockHeld, "d", 0)
	s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "e", Mode: store.Shared})
	if held := w.next(t); len(held.Holders) != 2 {
		t.Errorf("the state is %+v, want two readers", held)
	}

	session, err := s.CreateSession(await.Context(t), store.SessionRequest{OwnerID: "f", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	waits := s.Queue(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "f", SessionID: session.ID})
	w.expect(t, store.LockHeld, "d", 1)
	if _, err := s.EndSession(await.Context(t), session.ID); err != nil {
		t.Fatal(err)
	}
	enginetest.Answered(t, waits)
	w.expect(t, store.LockHeld, "d", 0)
}

// A reader that does not read gets the newest state alone. It delays neither the one beside it nor a lock.
func TestSlowReaderGetsTheNewestState(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 1, enginetest.NoPoll)
	slow, quick := s.watch(t, 0, "lock"), s.watch(t, 0, "lock")
	quick.expect(t, store.LockFree, "", 0)
	for i := range 20 {
		owner := fmt.Sprint("owner ", i)
		lease := s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: owner})
		quick.expect(t, store.LockHeld, owner, 0)
		s.Release(t, 0, lease)
		quick.expect(t, store.LockFree, "", 0)
	}
	s.watch(t, 0, "lock").Close() // after the delivery of the last state has ended
	if slow.next(t); slow.last != quick.last {
		t.Errorf("the slow reader got the version %d, want the newest, %d", slow.last, quick.last)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if state, err := slow.Next(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("then it got %+v (%v), want nothing", state, err)
	}
}

// A change whose notification is lost is found by polling.
func TestPollFindsLostChanges(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 1, engine.Config{PollInterval: 20 * time.Millisecond})
	w := s.watch(t, 0, "lock")
	w.expect(t, store.LockFree, "", 0)
	for range 3 {
		s.Exec(t, "update fence.watched set until = clock_timestamp()") // so the change notifies of nothing
		lease := s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "a"})
		w.expect(t, store.LockHeld, "a", 0)
		s.Release(t, 0, lease)
		w.expect(t, store.LockFree, "", 0)
	}
}

// What happens while the connection for notifications is cut is found after the reconnect, without polling.
func TestReconnectingFindsWhatWasMissed(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 2, enginetest.NoPoll)
	w := s.watch(t, 1, "lock")
	w.expect(t, store.LockFree, "", 0)
	for i := range 3 {
		s.CutListeners(t)
		owner := fmt.Sprint("owner ", i)
		s.Release(t, 0, s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "before"}))
		s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: owner})
		await.True(t, "the last change is seen", func() bool {
			lock := w.next(t)
			return lock.Holder() != nil && lock.Holder().OwnerID == owner
		})
		if _, err := s.At(0).Break(await.Context(t), "lock", "for the next round"); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the break is seen", func() bool { return w.next(t).State == store.LockFree })
		await.True(t, "the other listens again, too", s.At(0).Listening)
	}
}

// After a crash of the database that loses the row of the watch, a watch continues, and versions rise: also those of a
// reader that watches again, at another engine.
func TestWatchOutlivesTheDatabase(t *testing.T) {
	t.Parallel()
	b, cluster := enginetest.NewCrashing(t)
	s := newEngines(t, b, 2, engine.Config{PollInterval: 20 * time.Millisecond})
	w := s.watch(t, 0, "lock")
	w.expect(t, store.LockFree, "", 0)
	lease := s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "a"})
	w.expect(t, store.LockHeld, "a", 0)
	cluster.Kill()
	cluster.Restart()
	if err := enginetest.Insist(func() error {
		_, err := s.SQL.Exec(t.Context(), "delete from fence.watched")
		if err != nil {
			return store.ErrUnavailable
		}
		return s.At(0).Release(t.Context(), lease.Ref())
	}); err != nil {
		t.Fatal(err)
	}
	w.expect(t, store.LockFree, "", 0)
	again := s.watch(t, 1, "lock")
	again.last = w.last
	again.expect(t, store.LockFree, "", 0)
}

// Where there is no watch and no waiter, no notification is sent.
func TestNoNotificationWithoutSubscribers(t *testing.T) {
	t.Parallel()
	b := enginetest.New(t)
	s := newEngines(t, b, 2, enginetest.NoPoll)
	// Both have waited once, so that they are known; and one watches another lock.
	holder := s.Acquire(t, 0, store.AcquireRequest{Lock: "waited for", OwnerID: "holder"})
	var waited []<-chan enginetest.Outcome
	for i := range 2 {
		waited = append(waited, s.Queue(t, i, store.AcquireRequest{Lock: "waited for", OwnerID: "next"}))
	}
	s.Release(t, 0, holder)
	for i, answers := range waited {
		s.Release(t, i, enginetest.Granted(t, answers))
	}
	s.watch(t, 0, "watched")

	listener, err := pgx.Connect(t.Context(), b.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close(context.Background())
	var channels []string
	if err := b.SQL.QueryRow(t.Context(), "select array_agg(fence.gateway_channel(gateway_id)) from fence.gateways").Scan(&channels); err != nil || len(channels) != 2 {
		t.Fatalf("the channels are %v (%v)", channels, err)
	}
	for _, channel := range append(channels, store.ChangesChannel, "done") {
		if _, err := listener.Exec(t.Context(), "listen "+channel); err != nil {
			t.Fatal(err)
		}
	}
	for i, scope := range []store.Scope{store.Node, store.Subtree} {
		lock := store.Name(fmt.Sprint("quiet/", i))
		lease := s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "owner", Scope: scope})
		if _, err := s.At(1).Acquire(await.Context(t),
			store.AcquireRequest{Lock: lock, OwnerID: "other"}); !errors.Is(err, store.ErrLeaseHeld) {
			t.Error(err)
		}
		s.Release(t, 0, lease)
		s.Acquire(t, 1, store.AcquireRequest{Lock: lock, OwnerID: "owner", Mode: store.Shared})
		if _, err := s.At(1).Break(await.Context(t), lock, "for the test"); err != nil {
			t.Error(err)
		}
		s.Acquire(t, 1, store.AcquireRequest{Lock: lock, OwnerID: "owner"})
		b.Exec(t, "update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity' where ended_at is null")
		s.sweep(t)
	}
	b.Exec(t, "notify done")
	notification, err := listener.WaitForNotification(await.Context(t))
	if err != nil || notification.Channel != "done" {
		t.Errorf("there was a notification: %+v (%v)", notification, err)
	}

	lease := s.Acquire(t, 0, store.AcquireRequest{Lock: "watched", OwnerID: "owner", TTL: time.Minute})
	notification, err = listener.WaitForNotification(await.Context(t))
	if err != nil || notification.Channel != store.ChangesChannel {
		t.Errorf("of the watched lock it was notified %+v (%v)", notification, err)
	}
	if _, err := s.At(0).Renew(await.Context(t), lease.Ref(), 0); err != nil {
		t.Error(err)
	}
	b.Exec(t, "notify done")
	notification, err = listener.WaitForNotification(await.Context(t))
	if err != nil || notification.Channel != "done" {
		t.Errorf("of a renewal it was notified %+v (%v)", notification, err)
	}
}
