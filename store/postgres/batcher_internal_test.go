package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/await"
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
			call.decide(call.request)
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
