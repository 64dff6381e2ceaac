package waitqueue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
)

// Two callers of one request are told of its lease. One takes it and is off; the other goes away at this moment, and must not give back what
// is not his alone. When both go away, the last one does.
func TestOneOfTwoTakesTheLease(t *testing.T) {
	st, err := store.Open(t.Context(), store.Config{DatabaseURL: pgtest.Migrated(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	for name, taken := range map[store.Name]bool{"taken": true, "left": false} {
		lease, err := st.Acquire(t.Context(), store.AcquireRequest{Lock: name, OwnerID: "twice", RequestID: "r"})
		if err != nil {
			t.Fatal(err)
		}
		l := New(st, uuid.New(), Config{})
		first, second := &waiter{request: "r", told: make(chan told, 1)}, &waiter{request: "r", told: make(chan told, 1)}
		for _, w := range []*waiter{first, second} {
			l.join(name, w)
			l.queues[name].setTicket(w, 1)
		}
		if !l.queues[name].tell(store.QueueResult{Ticket: 1, RequestID: "r", Done: true, Lease: lease}) {
			t.Fatal("nobody was told")
		}
		if taken {
			l.quit(name, second, (<-second.told).lease)
		} else if err := l.goAway(name, second); err != nil {
			t.Fatal(err)
		}
		if err := l.goAway(name, first); err != nil {
			t.Fatal(err)
		}
		_, err = st.Renew(t.Context(), lease.Ref(), 0)
		if taken && err != nil || !taken && !errors.Is(err, store.ErrLeaseLost) {
			t.Errorf("%s: the renewal of the lease returned %v", name, err)
		}
	}
}

// A lease of one who has left is given back when that is possible: where another session has locked its fence, not before, and not only at the
// end of its TTL.
func TestGivingBackLate(t *testing.T) {
	url := pgtest.Migrated(t)
	st, err := store.Open(t.Context(), store.Config{DatabaseURL: url, LockTimeout: 20 * time.Millisecond})
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
	l := New(st, uuid.New(), Config{})
	if err := l.giveBack(t.Context(), lease); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("giving back the lease of a locked fence returned %v", err)
	}
	if err := l.leaveLate(t.Context()); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("giving it back again returned %v", err)
	}
	if _, err := conn.Exec(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	if err := l.leaveLate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Renew(t.Context(), lease.Ref(), 0); !errors.Is(err, store.ErrLeaseLost) || len(l.orphans) > 0 {
		t.Errorf("the renewal of the lease returned %v; %d are to be given back", err, len(l.orphans))
	}
}

// One who stands first for long does not have the queue remember all that came and went behind it.
func TestQueueForgetsTickets(t *testing.T) {
	q := newQueue()
	first := &waiter{request: "first"}
	q.add(first)
	q.setTicket(first, 1)
	for ticket := int64(2); ticket < 10_000; ticket++ {
		w := &waiter{request: "other"}
		q.add(w)
		q.setTicket(w, ticket)
		q.remove(w)
	}
	for _, h := range []*ticketHeap{&q.tickets, &q.nodes} {
		if n := len(h.order); n > 2*ticketsOverMin || len(h.queued) != n {
			t.Errorf("%d tickets are remembered, in a set of %d", n, len(h.queued))
		}
	}
	last := &waiter{request: "last"}
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
