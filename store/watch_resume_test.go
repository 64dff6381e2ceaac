package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// renewOften makes so many events.
func (s *services) renewOften(t *testing.T, lease store.Lease, times int) {
	t.Helper()
	for i := range times {
		if _, err := s.at(i).Renew(patient(t), lease.Ref(), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *services) next(t *testing.T, w *store.Watch, count int) (ids []int64) {
	t.Helper()
	for range count {
		event, err := w.Next(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, event.ID)
	}
	return ids
}

// A watch is resumed on another Service after the last event that was seen, and misses nothing; after what is not kept, it says so, and begins with
// the lock as it stands.
func TestWatchIsResumed(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 2, noPoll)
	first := s.watch(t, 0, "lock", nil)
	if first.Resumed || first.Missed || first.Lock.State != store.LockFree || first.Lock.Lock != "lock" {
		t.Errorf("a watch of a new lock began with %+v", first)
	}
	lease := s.acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "owner"})
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
		s.exec(t, c.spoil)
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
	s.release(t, 0, lease)
}

// A reader who does not read is dropped after 256 events, and holds nobody up: not the one beside him, and no lock.
func TestSlowReaderIsDropped(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 1, noPoll)
	slow := s.watch(t, 0, "lock", nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	quick := readWatch(ctx, s.watch(t, 0, "lock", nil))
	lease := s.acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "owner"})
	s.renewOften(t, lease, 255)
	await(t, "the quick one has seen what the slow one may leave unread", func() bool { return len(quick.ids()) == 256 })
	s.renewOften(t, lease, 100)
	s.release(t, 0, lease)
	s.expectAll(t, "the quick reader", quick, "lock")
	if got, want := s.next(t, slow, 256), quick.ids()[:256]; !slices.Equal(got, want) {
		t.Errorf("the slow reader saw %v, not %v", got, want)
	}
	if event, err := slow.Next(patient(t)); !errors.Is(err, store.ErrSlowReader) {
		t.Errorf("then he was told %+v, %v", event, err)
	}
	again := s.watch(t, 0, "lock", &slow.ID)
	if got, want := s.next(t, again, 101), quick.ids()[256:]; !again.Resumed || !slices.Equal(got, want) {
		t.Errorf("resumed %t, he saw %v, not %v", again.Resumed, got, want)
	}
}

// Where nobody watches and nobody waits, nothing is written and nobody is notified.
func TestNobodyIsNotifiedForNothing(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	s := newServices(t, b, 2, noPoll)
	// Both have waited once, so that they are known; and one watches another lock.
	holder := s.acquire(t, 0, store.AcquireRequest{Lock: "waited for", OwnerID: "holder"})
	var waited []<-chan outcome
	for i := range 2 {
		waited = append(waited, s.queue(t, i, store.AcquireRequest{Lock: "waited for", OwnerID: "next"}))
	}
	s.release(t, 0, holder)
	for i, answers := range waited {
		s.release(t, i, granted(t, answers))
	}
	s.watch(t, 0, "watched", nil)

	listener, err := pgx.Connect(t.Context(), b.url)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close(context.Background())
	var channels []string
	if err := b.sql.QueryRow(t.Context(), "select array_agg(fence.gateway_channel(gateway_id)) from fence.gateways").Scan(&channels); err != nil || len(channels) != 2 {
		t.Fatalf("the channels are %v (%v)", channels, err)
	}
	for _, channel := range append(channels, "fence_events", "done") {
		if _, err := listener.Exec(t.Context(), "listen "+channel); err != nil {
			t.Fatal(err)
		}
	}
	for i, scope := range []store.Scope{store.Node, store.Subtree} {
		lock := store.Name(fmt.Sprint("quiet/", i))
		lease := s.acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "owner", Scope: scope})
		s.renewOften(t, lease, 3)
		if _, err := s.at(1).Acquire(patient(t), store.AcquireRequest{Lock: lock, OwnerID: "other"}); !errors.Is(err, store.ErrLeaseHeld) {
			t.Error(err)
		}
		s.release(t, 0, lease)
		s.acquire(t, 1, store.AcquireRequest{Lock: lock, OwnerID: "owner", Mode: store.Shared})
		if _, err := s.at(1).Break(patient(t), lock, "for the test"); err != nil {
			t.Error(err)
		}
		s.acquire(t, 1, store.AcquireRequest{Lock: lock, OwnerID: "owner"})
		b.exec(t, "update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity' where ended_at is null")
		if _, err := newSweeper(t, s.Store, store.SweeperConfig{}).Sweep(patient(t)); err != nil {
			t.Error(err)
		}
	}
	b.exec(t, "notify done")
	notification, err := listener.WaitForNotification(patient(t))
	if err != nil || notification.Channel != "done" {
		t.Errorf("there was a notification: %+v (%v)", notification, err)
	}
	if n := s.count(t, "select count(*) from fence.events"); n != 0 {
		t.Errorf("%d events were kept", n)
	}

	lease := s.acquire(t, 0, store.AcquireRequest{Lock: "watched", OwnerID: "owner", TTL: time.Minute})
	notification, err = listener.WaitForNotification(patient(t))
	if err != nil || notification.Channel != "fence_events" || notification.Payload != "watched" {
		t.Errorf("of the watched lock it was notified %+v (%v)", notification, err)
	}
	s.release(t, 0, lease)
}
