package waitqueue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// Two callers of one request get the same lease. One takes it; the other leaves at this moment, and does not give the
// lease back. When both leave, the last one gives it back.
func TestLastOfTwoTakersGivesTheLeaseBack(t *testing.T) {
	st, err := postgres.Open(t.Context(), postgres.Config{DatabaseURL: pgtest.Migrated(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	for name, taken := range map[store.Name]bool{"taken": true, "left": false} {
		lease, err := st.Acquire(t.Context(), store.AcquireRequest{Lock: name, OwnerID: "twice", RequestID: "r"})
		if err != nil {
			t.Fatal(err)
		}
		q := New(st, uuid.New(), Config{})
		request := store.AcquireRequest{Lock: name, RequestID: "r"}
		first, second := newWaiter(request), newWaiter(request)
		for _, w := range []*waiter{first, second} {
			q.join(w)
			q.locks[name].setTicket(w, 1)
		}
		if !q.locks[name].deliver(store.QueueResult{Ticket: 1, RequestID: "r", Done: true, Lease: lease}) {
			t.Fatal("no waiter took the lease")
		}
		if taken {
			q.quit(second, &(<-second.outcome).lease)
		} else if err := q.leaveWith(t.Context(), second, nil, false); err != nil {
			t.Fatal(err)
		}
		if err := q.leaveWith(t.Context(), first, nil, false); err != nil {
			t.Fatal(err)
		}
		_, err = st.Renew(t.Context(), lease.Ref(), 0)
		if taken && err != nil || !taken && !errors.Is(err, store.ErrLeaseLost) {
			t.Errorf("%s: the renewal of the lease returned %v", name, err)
		}
	}
}

// A caller that left at the moment of its grant gets no lease, whichever of the two it sees first, and the lease is given
// back.
func TestCallerThatLeftGetsNoLease(t *testing.T) {
	st, err := postgres.Open(t.Context(), postgres.Config{DatabaseURL: pgtest.Migrated(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	q := New(st, uuid.New(), Config{})
	gone, leave := context.WithCancel(t.Context())
	leave()
	for round := range 20 { // a choice between the two would take the lease in one of them
		lease, err := st.Acquire(t.Context(), store.AcquireRequest{Lock: "job", OwnerID: "gone"})
		if err != nil {
			t.Fatalf("round %d: %v, want the lock to be free", round, err)
		}
		w := newWaiter(store.AcquireRequest{Lock: "job", RequestID: "r", Wait: time.Hour})
		q.join(w)
		q.locks["job"].setTicket(w, 1)
		q.locks["job"].deliver(store.QueueResult{Ticket: 1, RequestID: "r", Done: true, Lease: lease})
		if _, err := q.wait(gone, w); !errors.Is(err, context.Canceled) || w.lease.Token > 0 {
			t.Fatalf("round %d: the caller that left got %v, %+v, want the error of its context", round, err, w.lease)
		}
		q.quit(w, &store.Lease{})
	}
}

// The lease of a caller that left is given back as soon as its fence is not locked, long before its TTL is over.
func TestLeaseOfALockedFenceIsGivenBackLater(t *testing.T) {
	url := pgtest.Migrated(t)
	st, err := postgres.Open(t.Context(), postgres.Config{DatabaseURL: url, LockTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	lease, err := st.Acquire(t.Context(), store.AcquireRequest{Lock: "job", OwnerID: "gone", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, sql := range []string{"begin", "select from fence.fences where resource = 'job' for update"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	q := New(st, uuid.New(), Config{})
	if err := q.GiveBack(t.Context(), lease); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("giving back the lease of a locked fence returned %v, want ErrLocked", err)
	}
	if err := q.finishLeaving(t.Context()); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("giving it back again returned %v, want ErrLocked", err)
	}
	if _, err := conn.Exec(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	if err := q.finishLeaving(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Renew(t.Context(), lease.Ref(), 0); !errors.Is(err, store.ErrLeaseLost) || len(q.orphans) > 0 {
		t.Errorf("the renewal of the lease returned %v; %d are to be given back", err, len(q.orphans))
	}
}

// While one waiter is first for long, the tickets of those that came and left behind it are forgotten.
func TestTicketsThatAreOverAreForgotten(t *testing.T) {
	q := newLockQueue()
	first := newWaiter(store.AcquireRequest{RequestID: "first"})
	q.add(first)
	q.setTicket(first, 1)
	for ticket := int64(2); ticket < 10_000; ticket++ {
		w := newWaiter(store.AcquireRequest{RequestID: "other"})
		q.add(w)
		q.setTicket(w, ticket)
		q.remove(w)
	}
	if n, nodes := len(q.tickets), len(q.nodes); n > 2*endedMin || nodes > 2*endedMin {
		t.Errorf("%d and %d tickets are remembered, want at most %d", n, nodes, 2*endedMin)
	}
	last := newWaiter(store.AcquireRequest{RequestID: "last"})
	q.add(last)
	q.setTicket(last, 20_000)
	if q.first(false) != 1 {
		t.Errorf("the first is %d", q.first(false))
	}
	q.remove(first)
	if q.first(false) != 20_000 || q.first(true) != 20_000 {
		t.Errorf("the first is %d and %d", q.first(false), q.first(true))
	}
}
