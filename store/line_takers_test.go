package store

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/pgtest"
)

// Two callers of one request are told of its lease. One takes it and is off; the other goes away at this moment, and must not give back what
// is not his alone. When both go away, the last one does.
func TestOneOfTwoTakesTheLease(t *testing.T) {
	st, err := Open(t.Context(), Config{DatabaseURL: pgtest.Migrated(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	for name, taken := range map[Name]bool{"taken": true, "left": false} {
		lease, err := st.Acquire(t.Context(), AcquireRequest{Lock: name, OwnerID: "twice", RequestID: "r"})
		if err != nil {
			t.Fatal(err)
		}
		l := newLine(st, uuid.New(), ServiceConfig{})
		first, second := &waiter{request: "r", told: make(chan told, 1)}, &waiter{request: "r", told: make(chan told, 1)}
		for _, w := range []*waiter{first, second} {
			l.join(name, w)
			l.queues[name].setTicket(w, 1)
		}
		if !l.queues[name].tell(claimed{ticket: 1, request: "r", told: &told{lease: lease}}) {
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
		if taken && err != nil || !taken && !errors.Is(err, ErrLeaseLost) {
			t.Errorf("%s: the renewal of the lease returned %v", name, err)
		}
	}
}
