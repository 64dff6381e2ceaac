package waitqueue

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
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
		first, second := q.join(request), q.join(request)
		for _, w := range []*waiter{first, second} {
			w.ticket = 1
			q.answered(w, &store.Acquired{Ticket: 1}, nil)
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
		w := q.join(store.AcquireRequest{Lock: "job", OwnerID: "gone", RequestID: "r", Wait: time.Hour})
		w.ticket = 1
		q.answered(w, &store.Acquired{Ticket: 1}, nil)
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

// The table in the package comment is the one of the code.
func TestTransitions(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	states := []string{"·", "sending", "again", "queued", "leaving", "granted", "refused", "gone"}
	rows := regexp.MustCompile(`(?m)^//\t(\w+) +((?:\S+ +){6}\S+)$`).FindAllStringSubmatch(string(text), -1)
	for _, row := range rows {
		for e, to := range strings.Fields(row[2]) {
			from := slices.Index(states, row[1])
			if from < 0 || transitions[from][e] != state(slices.Index(states, to)) {
				t.Errorf("%s, event %d: the comment says %s, the code %s", row[1], e, to, states[transitions[max(from, 0)][e]])
			}
		}
	}
	if len(rows) != len(states)-1 {
		t.Errorf("the comment has %d states, want %d", len(rows), len(states)-1)
	}
}

// A lease is not delivered to a caller that sent the same request_id as another owner, or as another principal. Its own
// acquire is refused by the database.
func TestLeaseIsDeliveredToItsOwner(t *testing.T) {
	t.Parallel()
	q := New(nil, uuid.New(), Config{})
	request := store.AcquireRequest{Lock: "job", OwnerID: "a", Principal: "p", RequestID: "r"}
	other, another := request, request
	other.OwnerID, another.Principal = "b", "q"
	owner, lease := q.join(request), store.Lease{Token: 1, OwnerID: "a", Principal: "p"}
	for _, request := range []store.AcquireRequest{other, another} {
		w := q.join(request)
		if owner.lock.deliver(store.QueueResult{RequestID: "r", Lease: lease}); w.state != sending || owner.state != granted {
			t.Errorf("the state of %s of %s is %d, of the owner %d", request.OwnerID, request.Principal, w.state, owner.state)
		}
	}
}

// A waiter whose ticket is removed while its acquire is sent again does not take the answer for its ticket: it sends the
// acquire once more.
func TestRefusalBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	q := New(nil, uuid.New(), Config{})
	w := q.join(store.AcquireRequest{Lock: "job", RequestID: "r"})
	w.ticket = 1
	w.lock.deliver(store.QueueResult{Ticket: 1, RequestID: "r", Err: store.ErrDeadlock})
	q.answered(w, &store.Acquired{Ticket: 1}, nil)
	if resend, err := q.wait(t.Context(), w); !resend || err != nil {
		t.Errorf("the waiter is to send its acquire again: %v, %v", resend, err)
	}
}

// lateGrants answers a grant only when it may.
type lateGrants struct {
	*postgres.Store
	granted, answer, gaveBack chan struct{}
	first                     *sync.Once
	inFlight, atOnce          *atomic.Int32
}

func (l lateGrants) GrantNext(
	ctx context.Context, gateway uuid.UUID, lock store.Name, scope store.Scope, lockWait time.Duration,
) ([]store.QueueResult, error) {
	l.atOnce.Store(max(l.atOnce.Load(), l.inFlight.Add(1)))
	defer l.inFlight.Add(-1)
	results, err := l.Store.GrantNext(ctx, gateway, lock, scope, lockWait)
	l.first.Do(func() { close(l.granted) })
	<-l.answer
	return results, err
}

func (l lateGrants) GiveBack(ctx context.Context, lease store.Lease) error {
	defer close(l.gaveBack)
	return l.Store.GiveBack(ctx, lease)
}

// A caller that finds its lease by a second acquire, before the answer to the grant is there, keeps it, though no waiter is
// left when the answer comes. No other grant of the lock is in flight meanwhile.
func TestLeaseFoundBeforeItIsDelivered(t *testing.T) {
	t.Parallel()
	st, err := postgres.Open(t.Context(), postgres.Config{DatabaseURL: pgtest.Migrated(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	held, err := st.Acquire(t.Context(), store.AcquireRequest{Lock: "job", OwnerID: "holder"})
	if err != nil {
		t.Fatal(err)
	}
	late := lateGrants{st, make(chan struct{}), make(chan struct{}), make(chan struct{}), new(sync.Once), new(atomic.Int32),
		new(atomic.Int32)}
	q := New(late, uuid.New(), Config{DeadAfter: time.Minute})
	var lease store.Lease
	acquired := make(chan error, 1)
	go func() {
		acquired <- q.Acquire(await.Context(t), &store.AcquireRequest{Lock: "job", OwnerID: "next", Wait: time.Minute}, &lease)
	}()
	await.True(t, "the acquire is in the queue", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		lq := q.locks[q.keyOf("job")]
		if lq == nil {
			return false
		}
		first, _ := lq.first()
		return first != nil
	})
	if _, err := st.ReleaseLease(t.Context(), held.Ref()); err != nil {
		t.Fatal(err)
	}
	key := q.keyOf("job")
	q.Notified("0 " + hex.EncodeToString(key[:]))
	await.Receive(t, "the grant is committed", late.granted)
	q.Notified("0 " + hex.EncodeToString(key[:])) // is due after that
	q.RequeueAll()
	if err := await.Receive(t, "the second acquire is answered", acquired); err != nil || lease.OwnerID != "next" {
		t.Fatalf("the caller got %+v, %v", lease, err)
	}
	close(late.answer)
	await.Receive(t, "no waiter took the lease in the answer", late.gaveBack)
	if late.atOnce.Load() != 1 {
		t.Errorf("%d grants of the lock were in flight at once", late.atOnce.Load())
	}
	if _, err := st.Renew(t.Context(), lease.Ref(), 0); err != nil {
		t.Errorf("the lease of the caller that found it: %v", err)
	}
}

// A caller that leaves because the database is unreachable owes it its ticket, unless another caller waits with it; and it
// is counted no more.
func TestCallerThatLeavesOwesItsTicket(t *testing.T) {
	t.Parallel()
	q := New(nil, uuid.New(), Config{})
	request := store.AcquireRequest{Lock: "job", RequestID: "r", Scope: store.Subtree}
	for i, w := range []*waiter{q.join(request), q.join(request)} {
		w.mayBeQueued = true
		if err := q.leave(t.Context(), w, store.NotApplied(store.ErrLocked)); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("caller %d left with %v, want ErrUnavailable", i, err)
		}
		if q.quit(w, &store.Lease{}); len(q.debts) != i || w.lock.subtrees != 1-i || q.Len() != 1-i {
			t.Errorf("after %d have left, %d are owed, %d wait for a subtree, %d wait", i+1, len(q.debts), w.lock.subtrees, q.Len())
		}
	}
}
