package store

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// batchCallsMax bounds the calls of one batch.
	batchCallsMax = 128
	// batchSlashesMax bounds the slashes in the names of a batch, and so the gates that it takes: the lock table of a server
	// with default settings holds some thousands of locks, for all. A single name has fewer.
	batchSlashesMax = 512
	// secondBatchCalls is how many calls are worth a second batch beside one in flight, whose fixed cost is that of about
	// ten calls.
	secondBatchCalls = 16
	// batchAnswerGrace is how long after the statement timeout the answer to a batch may come: that does not bound a
	// commit that waits for a standby.
	batchAnswerGrace = 5 * time.Second
)

// batcher decides calls about locks together: those that come while a batch is in flight are in the next one. No timer
// delays a call. A batch has one call for each lock; what exec does not decide, the caller sends alone.
type batcher[Q, A any] struct {
	lockOf  func(Q) Name
	timeout time.Duration // of a batch
	// exec decides calls in one statement, and notes the answers to those that it has decided. With an error, none is.
	exec func(context.Context, batch[Q, A]) error

	mu            sync.Mutex
	waiting       []*batchedCall[Q, A]
	inFlight      int // batches
	callsInFlight int
}

// batch is the calls of one statement, in the order of their arrival. There is one for each lock.
type batch[Q, A any] struct {
	calls  []*batchedCall[Q, A]
	byLock map[Name]*batchedCall[Q, A]
}

// batchedCall is one call. batcher.mu guards sent; the rest belongs to the batch until done is closed.
type batchedCall[Q, A any] struct {
	ctx     context.Context
	request Q
	answer  A
	decided bool
	err     error
	sent    bool
	done    chan struct{}
}

func (c *batchedCall[Q, A]) decide(answer A) { c.answer, c.decided = answer, true }

// do returns the answer to a request; decided is false where it has to be sent alone. It returns ErrUnavailable if the
// batch failed, or if ctx ended before it was answered.
func (b *batcher[Q, A]) do(ctx context.Context, request Q) (answer A, decided bool, err error) {
	call := &batchedCall[Q, A]{ctx: ctx, request: request, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, call)
	taken := b.take()
	b.mu.Unlock()
	if len(taken.calls) > 0 {
		go b.run(taken)
	}
	select {
	case <-call.done:
		return call.answer, call.decided, call.err
	case <-ctx.Done():
		return answer, false, b.leave(call)
	}
}

// leave withdraws a call whose caller leaves, unless it was sent.
func (b *batcher[Q, A]) leave(call *batchedCall[Q, A]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if call.sent {
		return &UnavailableError{OutcomeUnknown, context.Cause(call.ctx)}
	}
	b.waiting = slices.DeleteFunc(b.waiting, func(c *batchedCall[Q, A]) bool { return c == call })
	return NotApplied(context.Cause(call.ctx))
}

// take returns the next batch, or one without calls where none may be started. A second call for a lock is answered
// undecided: it would have to wait for the first. The caller has locked mu.
func (b *batcher[Q, A]) take() batch[Q, A] {
	worthwhile := b.inFlight == 0 || b.inFlight == 1 && len(b.waiting) >= max(secondBatchCalls, b.callsInFlight/2)
	if len(b.waiting) == 0 || !worthwhile {
		return batch[Q, A]{}
	}
	room := min(len(b.waiting), batchCallsMax)
	next := batch[Q, A]{make([]*batchedCall[Q, A], 0, room), make(map[Name]*batchedCall[Q, A], room)}
	taken, slashes := 0, 0
	for _, call := range b.waiting {
		lock := b.lockOf(call.request)
		slashes += strings.Count(string(lock), "/")
		if len(next.calls) == batchCallsMax || slashes > batchSlashesMax {
			break
		}
		taken++
		call.sent = true
		if _, another := next.byLock[lock]; another {
			close(call.done)
			continue
		}
		next.byLock[lock] = call
		next.calls = append(next.calls, call)
	}
	b.waiting = slices.Delete(b.waiting, 0, taken)
	b.inFlight++
	b.callsInFlight += len(next.calls)
	return next
}

// run decides a batch, and then those that came meanwhile, until there are none.
func (b *batcher[Q, A]) run(taken batch[Q, A]) {
	for len(taken.calls) > 0 {
		b.decide(taken)
		b.mu.Lock()
		b.inFlight--
		b.callsInFlight -= len(taken.calls)
		taken = b.take()
		b.mu.Unlock()
	}
}

// decide executes a batch and answers its calls. If the database refused the statement, nothing was decided: each call
// is sent alone, and the one at fault gets the error.
func (b *batcher[Q, A]) decide(taken batch[Q, A]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(taken.calls[0].ctx), b.timeout)
	defer cancel()
	err := b.exec(ctx, taken)
	for _, call := range taken.calls {
		if err != nil { // what is in its rows was not committed
			var none A
			call.answer, call.decided = none, false
		}
		if OutcomeOf(err) != "" {
			call.err = err
		}
		close(call.done)
	}
}
