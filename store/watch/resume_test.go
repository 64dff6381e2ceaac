package watch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/watch"
)

// renewOften makes so many events.
func (s *engines) renewOften(t *testing.T, lease store.Lease, times int) {
	t.Helper()
	for i := range times {
		if _, err := s.At(i).Renew(await.Context(t), lease.Ref(), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *engines) next(t *testing.T, w *watch.Subscription, count int) (ids []int64) {
	t.Helper()
	for range count {
		event, err := w.Next(await.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, event.ID)
	}
	return ids
}

// A subscription resumes on another engine after the last event that was seen, and misses nothing. Where the events
// since then are not kept, it says so, and begins with the lock as it is.
func TestWatchIsResumed(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 2, enginetest.NoPoll)
	first := s.watch(t, 0, "lock", nil)
	if first.Resumed || first.Missed || first.Lock.State != store.LockFree || first.Lock.Lock != "lock" {
		t.Errorf("a watch of a new lock began with %+v", first)
	}
	lease := s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "owner"})
	s.renewOften(t, lease, 10)
	seen := s.next(t, first, 5)
	first.Close()
	s.renewOften(t, lease, 10)

	second := s.watch(t, 1, "lock", &first.ID)
	if !second.Resumed || second.Missed {
		t.Errorf("resumed %t, missed %t", second.Resumed, second.Missed)
	}
	s.renewOften(t, lease, 10)
	seen = append(seen, s.next(t, second, 26)...)
	if want := s.eventIDs(t, "lock", 0); !slices.Equal(seen, want) {
		t.Errorf("it saw %v, not %v", seen, want)
	}

	for what, c := range map[string]struct {
		after int64
		spoil string
	}{
		"before it was kept":       {0, "select"},
		"an ID that was not yet":   {1 << 40, "select"},
		"the watch had lapsed":     {first.ID, "update fence.watched set until = clock_timestamp()"},
		"the events are forgotten": {seen[3], "update fence.watched set since = " + fmt.Sprint(seen[len(seen)-1])},
	} {
		s.Exec(t, c.spoil)
		missed := s.watch(t, 1, "lock", &c.after)
		if missed.Resumed || !missed.Missed || missed.Lock.Token != lease.Token || missed.Lock.State != store.LockHeld {
			t.Errorf("%s: resumed %t, missed %t, with %+v", what, missed.Resumed, missed.Missed, missed.Lock)
		}
	}
	newest := s.watch(t, 0, "lock", nil)
	s.renewOften(t, lease, 1001)
	if far := s.watch(t, 0, "lock", &newest.ID); far.Resumed || !far.Missed {
		t.Errorf("a watch that is 1001 events behind was resumed")
	}
	s.Release(t, 0, lease)
}

// A subscriber that does not read is ended after 256 events. It delays neither the one beside it nor a lock.
func TestSlowReaderIsDropped(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 1, enginetest.NoPoll)
	slow := s.watch(t, 0, "lock", nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	quick := readWatch(ctx, s.watch(t, 0, "lock", nil))
	lease := s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "owner"})
	s.renewOften(t, lease, 255)
	await.True(t, "the quick one has seen what the slow one may leave unread",
		func() bool { return len(quick.ids()) == 256 })
	s.renewOften(t, lease, 100)
	s.Release(t, 0, lease)
	s.expectAll(t, "the quick reader", quick, "lock")
	if got, want := s.next(t, slow, 256), quick.ids()[:256]; !slices.Equal(got, want) {
		t.Errorf("the slow reader saw %v, not %v", got, want)
	}
	if event, err := slow.Next(await.Context(t)); !errors.Is(err, store.ErrSlowReader) {
		t.Errorf("then it got %+v, %v", event, err)
	}
	again := s.watch(t, 0, "lock", &slow.ID)
	if got, want := s.next(t, again, 101), quick.ids()[256:]; !again.Resumed || !slices.Equal(got, want) {
		t.Errorf("resumed %t, it saw %v, not %v", again.Resumed, got, want)
	}
}

// Where there is no subscription and no waiter, no event is written and no notification is sent.
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
	s.watch(t, 0, "watched", nil)

	listener, err := pgx.Connect(t.Context(), b.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close(context.Background())
	var channels []string
	if err := b.SQL.QueryRow(t.Context(), "select array_agg(fence.gateway_channel(gateway_id)) from fence.gateways").Scan(&channels); err != nil || len(channels) != 2 {
		t.Fatalf("the channels are %v (%v)", channels, err)
	}
	for _, channel := range append(channels, "fence_events", "done") {
		if _, err := listener.Exec(t.Context(), "listen "+channel); err != nil {
			t.Fatal(err)
		}
	}
	for i, scope := range []store.Scope{store.Node, store.Subtree} {
		lock := store.Name(fmt.Sprint("quiet/", i))
		lease := s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "owner", Scope: scope})
		s.renewOften(t, lease, 3)
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
		if _, err := enginetest.NewSweeper(t, s.Store, postgres.SweeperConfig{}).Sweep(await.Context(t)); err != nil {
			t.Error(err)
		}
	}
	b.Exec(t, "notify done")
	notification, err := listener.WaitForNotification(await.Context(t))
	if err != nil || notification.Channel != "done" {
		t.Errorf("there was a notification: %+v (%v)", notification, err)
	}
	if n := s.Count(t, "select count(*) from fence.events"); n != 0 {
		t.Errorf("%d events were kept", n)
	}

	lease := s.Acquire(t, 0, store.AcquireRequest{Lock: "watched", OwnerID: "owner", TTL: time.Minute})
	notification, err = listener.WaitForNotification(await.Context(t))
	if err != nil || notification.Channel != "fence_events" {
		t.Errorf("of the watched lock it was notified %+v (%v)", notification, err)
	}
	s.Release(t, 0, lease)
}

// What happens while the connection for notifications is cut is found after the reconnect, without polling.
func TestReconnectingFindsWhatWasMissed(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 2, enginetest.NoPoll)
	for range 3 {
		holder := s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "holder"})
		next := s.Queue(t, 1, store.AcquireRequest{Lock: "lock", OwnerID: "next"})
		w := s.watch(t, 1, "lock", nil)
		s.CutListeners(t)
		s.Release(t, 0, holder)
		s.Release(t, 0, enginetest.Granted(t, next))
		s.next(t, w, 3)
		await.True(t, "the other listens again, too", s.At(0).Listening)
	}
	s.ExpectQuiet(t)
}
