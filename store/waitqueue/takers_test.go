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
		lease.Waited = time.Second
		q := New(st, uuid.New(), Config{})
		request := store.AcquireRequest{Lock: name, OwnerID: "twice", RequestID: "r"}
		first, second := newWaiter(request), newWaiter(request)
		for _, w := range []*waiter{first, second} {
			q.join(w)
			q.answered(w, &store.Acquired{Ticket: 1, Requeued: true}, nil)
		}
		if !first.lock.deliver(store.QueueResult{Ticket: 1, RequestID: "r", Done: true, Lease: lease}) {
			t.Fatal("no waiter took the lease")
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if taken {
			q.quit(second, &store.Lease{})
		} else if err := q.leave(gone, second, nil); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := q.leave(gone, first, nil); !errors.Is(err, context.Canceled) {
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
		lease.Waited = time.Second
		w := newWaiter(store.AcquireRequest{Lock: "job", OwnerID: "gone", RequestID: "r", Wait: time.Hour})
		q.join(w)
		q.answered(w, &store.Acquired{Ticket: 1, Requeued: true}, nil)
		w.lock.deliver(store.QueueResult{Ticket: 1, RequestID: "r", Done: true, Lease: lease})
		resend, err := q.wait(gone, w)
		if !resend {
			err = q.leave(gone, w, err)
		}
		if q.quit(w, &lease); !errors.Is(err, context.Canceled) || lease.Token > 0 {
			t.Fatalf("round %d: the caller that left got %v, %+v, want the error of its context", round, err, lease)
		}
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
	if err := q.payDebts(t.Context()); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("giving it back again returned %v, want ErrLocked", err)
	}
	if _, err := conn.Exec(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	if err := q.payDebts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Renew(t.Context(), lease.Ref(), 0); !errors.Is(err, store.ErrLeaseLost) || len(q.debts) > 0 {
		t.Errorf("the renewal of the lease returned %v; %d are to be given back", err, len(q.debts))
	}
}
