package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store"
)

// heldBatches is a batcher of names, whose batches wait until the test lets them go. It decides each name as itself,
// also where it fails.
type heldBatches struct {
	batcher[store.Name, store.Name]
	sent    chan []store.Name
	answers chan error
}

func newHeldBatches() *heldBatches {
	h := &heldBatches{sent: make(chan []store.Name, 100), answers: make(chan error)}
	h.batcher = batcher[store.Name, store.Name]{lockOf: func(n store.Name) store.Name { return n }, timeout: await.Limit}
	h.exec = func(_ context.Context, batch batch[store.Name, store.Name]) error {
		var names []store.Name
		for _, call := range batch.calls {
			names = append(names, call.request)
		}
		h.sent <- names
		err := <-h.answers
		for _, call := range batch.calls {
			err = cmp.Or(err, batch.decide(call.request, call.request, nil))
		}
		return err
	}
	return h
}

// known returns how many calls wait or are in flight.
func (h *heldBatches) known() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.waiting) + h.callsInFlight
}

// queue sends calls in the background, one after the other, and returns when all of them wait or are in flight.
func (h *heldBatches) queue(ctx context.Context, t *testing.T, names ...store.Name) *sync.WaitGroup {
	t.Helper()
	var calls sync.WaitGroup
	for _, name := range names {
		before := h.known()
		calls.Go(func() { _, _, _ = h.do(ctx, name) })
		await.True(t, "the call waits", func() bool { return h.known() > before })
	}
	return &calls
}

// TestBatcher checks what goes together: all that came while a batch was in flight, and no lock twice.
func TestBatcher(t *testing.T) {
	t.Parallel()
	h := newHeldBatches()
	first := h.queue(t.Context(), t, "a")
	if got := <-h.sent; !slices.Equal(got, []store.Name{"a"}) {
		t.Fatalf("the first batch has %v", got)
	}
	leaving, leave := context.WithCancelCause(t.Context())
	left := make(chan error, 1)
	go func() {
		_, _, err := h.do(leaving, "left")
		left <- err
	}()
	await.True(t, "the call waits", func() bool { return h.known() == 2 })
	leave(errors.New("the caller leaves"))
	if err := <-left; store.OutcomeOf(err) != store.OutcomeNotApplied {
		t.Errorf("a call that left before it was sent: %v, want outcome not_applied", err)
	}
	others := h.queue(t.Context(), t, "b", "a", "b", "c")
	h.answers <- nil
	first.Wait()
	if got := <-h.sent; !slices.Equal(got, []store.Name{"b", "a", "c"}) {
		t.Errorf("the second batch has %v, want each lock once", got)
	}
	h.answers <- nil
	others.Wait() // the second b was answered at once, undecided
}

// TestBatcherStartsASecondBatch checks that many calls do not wait for a batch that hangs.
func TestBatcherStartsASecondBatch(t *testing.T) {
	t.Parallel()
	h := newHeldBatches()
	calls := h.queue(t.Context(), t, "first")
	<-h.sent
	var names []store.Name
	for i := range secondBatchCalls {
		names = append(names, store.Name(rune('a'+i)))
	}
	more := h.queue(t.Context(), t, names...)
	if got := <-h.sent; len(got) != secondBatchCalls {
		t.Errorf("the second batch has %d calls, want %d", len(got), secondBatchCalls)
	}
	h.answers <- nil
	h.answers <- nil
	calls.Wait()
	more.Wait()
}

// TestBatcherBoundsSlashes checks that deep names share batches, whose names have a bounded number of slashes.
func TestBatcherBoundsSlashes(t *testing.T) {
	t.Parallel()
	h := newHeldBatches()
	deep := strings.Repeat("/d", batchSlashesMax/2)
	calls := h.queue(t.Context(), t, "first")
	<-h.sent
	more := h.queue(t.Context(), t, store.Name("a"+deep), store.Name("b"+deep), store.Name("c"+deep))
	for _, want := range [][]store.Name{{store.Name("a" + deep), store.Name("b" + deep)}, {store.Name("c" + deep)}} {
		h.answers <- nil
		if got := await.Receive(t, "the batch", h.sent); !slices.Equal(got, want) {
			t.Errorf("the batch has %d names, want %d", len(got), len(want))
		}
	}
	h.answers <- nil
	calls.Wait()
	more.Wait()
}

// TestBatcherErrors checks that the failure of a batch is that of its calls, if it says what became of them, and leaves
// them undecided if the database refused the statement.
func TestBatcherErrors(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"unavailable": store.NotApplied(errors.New("no database")), "refused": store.ErrInvalid} {
		h := newHeldBatches()
		type answer struct {
			decided bool
			err     error
		}
		answers := make(chan answer, 1)
		go func() {
			_, decided, err := h.do(t.Context(), "a")
			answers <- answer{decided, err}
		}()
		<-h.sent
		h.answers <- failure
		want := answer{}
		if name == "unavailable" {
			want.err = failure
		}
		if got := <-answers; got.decided || !errors.Is(got.err, want.err) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// TestBatcherAbandonsWhatWasSent checks that the outcome of a call in flight is unknown to a caller that leaves.
func TestBatcherAbandonsWhatWasSent(t *testing.T) {
	t.Parallel()
	h := newHeldBatches()
	leaving, leave := context.WithCancelCause(t.Context())
	left := make(chan error, 1)
	go func() {
		_, _, err := h.do(leaving, "a")
		left <- err
	}()
	<-h.sent
	leave(errors.New("the caller leaves"))
	if err := <-left; store.OutcomeOf(err) != store.OutcomeUnknown {
		t.Errorf("%v, want outcome unknown", err)
	}
	h.answers <- nil
}

// inOneBatch makes calls in the background, each of which begins with one of the batcher's, and sends the latter together
// when all of them wait. It returns when the calls have ended.
func inOneBatch[Q, A any](t *testing.T, b *batcher[Q, A], calls ...func()) {
	t.Helper()
	b.mu.Lock()
	b.inFlight += 2 // so that no batch starts
	b.mu.Unlock()
	ended := make(chan struct{}, len(calls))
	for i, call := range calls {
		go func() {
			call()
			ended <- struct{}{}
		}()
		await.True(t, "the call waits", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.waiting) == i+1
		})
	}
	b.mu.Lock()
	b.inFlight -= 2
	taken := b.take()
	b.mu.Unlock()
	b.run(taken)
	for range calls {
		await.Receive(t, "the end of the call", ended)
	}
}

// newBatchStore returns a Store with a lock that is held, with policies, and with locks that have a fence and a lease that
// has ended.
func newBatchStore(t *testing.T) (s *Store, held store.Lease) {
	t.Helper()
	s, err := Open(t.Context(), Config{DatabaseURL: postgres.Migrated(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, policy := range []store.Policy{
		{Prefix: "external", Rule: store.RuleStrict, Authority: store.AuthorityExternal},
		{Prefix: "limited", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin, MaxHold: time.Minute},
	} {
		if err := s.PutPolicy(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
	}
	held, err = s.Acquire(t.Context(), store.AcquireRequest{Lock: "held", OwnerID: "holder"})
	if err != nil {
		t.Fatal(err)
	}
	for _, lock := range []store.Name{"free", "twice", "two owners", "limited"} {
		lease, err := s.Acquire(t.Context(), store.AcquireRequest{Lock: lock, OwnerID: "before"})
		if err := errors.Join(err, s.Release(t.Context(), lease.Ref())); err != nil {
			t.Fatal(err)
		}
	}
	return s, held
}

// TestBatchOfUnequalCalls checks that each call of a batch has its own answer, whatever the others are: acquires of free
// and held locks, under policies, by two owners, and sent twice; and releases that are right, wrong, and sent twice.
func TestBatchOfUnequalCalls(t *testing.T) {
	t.Parallel()
	s, held := newBatchStore(t)
	requests := []store.AcquireRequest{
		{Lock: "external", OwnerID: "a"}, {Lock: "free", OwnerID: "a"}, {Lock: "held", OwnerID: "a"},
		{Lock: "new", OwnerID: "a"}, {Lock: "twice", OwnerID: "a", RequestID: "r"}, {Lock: "twice", OwnerID: "a", RequestID: "r"},
		{Lock: "two owners", OwnerID: "a"}, {Lock: "two owners", OwnerID: "b"},
		{Lock: "limited", OwnerID: "a", TTL: time.Hour, Metadata: []byte(`{"a": 1}`)},
	}
	leases, failures := make([]store.Lease, len(requests)), make([]error, len(requests))
	var calls []func()
	for i, request := range requests {
		calls = append(calls, func() { leases[i], failures[i] = s.Acquire(t.Context(), request) })
	}
	inOneBatch(t, &s.leases.acquires, calls...)
	for i, want := range []error{store.ErrExternalAuthority, nil, store.ErrLeaseHeld, nil, nil, nil} {
		if !errors.Is(failures[i], want) || want == nil && leases[i].Lock != requests[i].Lock {
			t.Errorf("the acquire of %s in a batch returned %+v and %v, want the error %v", requests[i].Lock, leases[i],
				failures[i], want)
		}
	}
	if leases[4].ID != leases[5].ID || leases[4].ID == uuid.Nil {
		t.Errorf("a request that was twice in a batch was granted %+v and %+v, want one lease", leases[4], leases[5])
	}
	if (failures[6] == nil) == (failures[7] == nil) || !errors.Is(errors.Join(failures[6:8]...), store.ErrLeaseHeld) {
		t.Errorf("two owners in a batch got the errors %v and %v, want one lease and one ErrLeaseHeld", failures[6], failures[7])
	}

	free, limited := leases[1], leases[8]
	if failures[8] != nil || string(limited.Metadata) != `{"a": 1}` || limited.ExpiresAt != limited.HoldUntil ||
		limited.TTL != time.Hour || free.Metadata != nil || !free.HoldUntil.IsZero() {
		t.Errorf("the batch granted %+v and %+v (%v), want metadata and a limit of the second only", free, limited, failures[8])
	}

	wrong := held.Ref()
	wrong.ID = uuid.New()
	refs := []store.LeaseRef{wrong, leases[1].Ref(), {Lock: "none", OwnerID: "a", ID: uuid.New(), Token: 1}, leases[4].Ref(),
		leases[4].Ref()}
	calls = nil
	for i, ref := range refs {
		calls = append(calls, func() { failures[i] = s.Release(t.Context(), ref) })
	}
	inOneBatch(t, &s.leases.releases, calls...)
	for i, want := range []error{store.ErrLeaseLost, nil, store.ErrNotFound, nil, nil} {
		if !errors.Is(failures[i], want) {
			t.Errorf("the release of %s in a batch returned %v, want %v", refs[i].Lock, failures[i], want)
		}
	}
	if _, err := s.Renew(t.Context(), held.Ref(), 0); err != nil {
		t.Errorf("the lease that a wrong release named: %v", err)
	}
}

// TestBatchOfAnUnsuitableText checks that a text which the database refuses costs only its own call: the others of the
// batch are granted.
func TestBatchOfAnUnsuitableText(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Config{DatabaseURL: postgres.Migrated(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	answers := make([]error, 3)
	calls := make([]func(), len(answers))
	for i := range calls {
		request := store.AcquireRequest{Lock: store.Name(fmt.Sprint("lock/", i)), OwnerID: "a"}
		if i == 1 {
			request.Principal = "nul \x00" // principals are not checked: gateways make them
		}
		calls[i] = func() { _, answers[i] = s.Acquire(t.Context(), request) }
	}
	inOneBatch(t, &s.leases.acquires, calls...)
	if answers[0] != nil || answers[1] == nil || answers[2] != nil {
		t.Errorf("the calls of the batch returned %v, want an error of the second only", answers)
	}
}

// TestBatchOutlivesItsFirstCaller checks that a batch is not cut off when the caller of its first call leaves.
func TestBatchOutlivesItsFirstCaller(t *testing.T) {
	t.Parallel()
	h := newHeldBatches()
	cut := make(chan error, 1)
	answer := h.exec
	h.exec = func(ctx context.Context, batch batch[store.Name, store.Name]) error {
		err := answer(ctx, batch)
		cut <- ctx.Err()
		return err
	}
	leaving, leave := context.WithCancel(t.Context())
	left := h.queue(leaving, t, "a")
	await.Receive(t, "the batch", h.sent)
	leave()
	left.Wait()
	h.answers <- nil
	if err := await.Receive(t, "the end of the batch", cut); err != nil {
		t.Errorf("the batch was cut off: %v", err)
	}
}

// TestLeftOfALeaseThatHasJustExpired checks that a waiter asks again where the lease in its way expired after it was
// found: a session's keepalive races with an acquire.
func TestLeftOfALeaseThatHasJustExpired(t *testing.T) {
	for ms, want := range map[int64]time.Duration{-3: time.Millisecond, 0: time.Millisecond, 20: 20 * time.Millisecond} {
		if got := leftOf(pgtype.Int8{Int64: ms, Valid: true}); got != want {
			t.Errorf("%d ms left: the waiter asks again after %s, not %s", ms, got, want)
		}
	}
	if got := leftOf(pgtype.Int8{}); got != 0 {
		t.Errorf("no lease known in the way: the waiter asks again after %s", got)
	}
}
