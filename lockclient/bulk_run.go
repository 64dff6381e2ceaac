package lockclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// run keeps a connection open while there is something to send, until the writer ends.
func (b *BulkWriter) run() {
	policy := b.retry.withDefaults()
	var failed int
	var failing time.Time
	for b.awaitWork() {
		settled, err := b.send()
		if settled > 0 || err == nil {
			failed = 0
		}
		if err == nil {
			continue
		}
		if b.ctx.Err() != nil {
			break
		}
		if failed++; failed == 1 {
			failing = time.Now()
		}
		pause := policy.pause(failed, hintOf(err), jitter())
		if !retryable(err) || failed >= policy.Attempts || time.Since(failing)+pause > policy.Within {
			b.fail(err)
			failed = 0
			continue
		}
		b.client.retries.report(b.ctx, Retry{Err: err, Attempt: failed, Pause: pause})
		if sleep(b.ctx, pause) != nil {
			break
		}
	}
	if b.ctx.Err() != nil {
		b.fail(context.Cause(b.ctx))
	}
}

// awaitWork waits until there is something to send. It returns false when the writer ends.
func (b *BulkWriter) awaitWork() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.held == 0 && !b.closing && b.ctx.Err() == nil {
		b.work.Wait()
	}
	return b.held > 0 && b.ctx.Err() == nil
}

// send sends the window, and takes verdicts, over one connection. It returns how many writes got their results, and why
// the connection ended: nil if that was no failure.
func (b *BulkWriter) send() (settled int, err error) {
	l, err := b.connect()
	if err != nil {
		return 0, err
	}
	settled, err = l.follow()
	if err != nil && b.ctx.Err() == nil && errors.Is(err, ErrUnavailable) {
		b.client.prefer(int64(l.stream.index), (l.stream.index+1)%len(b.client.gateways))
	}
	return settled, err
}

// fail settles all writes in the window with an error.
func (b *BulkWriter) fail(cause error) {
	b.mu.Lock()
	var failed []*PendingWrite
	for w := b.first; w != nil; w = w.next {
		if !w.settled {
			failed = append(failed, w)
		}
	}
	b.mu.Unlock()
	for _, w := range failed {
		b.settle(w, api.BulkVerdict{}, w.noVerdict(cause))
	}
}

// noVerdict makes the error of a write that no gateway gave a verdict on.
func (w *PendingWrite) noVerdict(cause error) error {
	outcome, then := api.OutcomeNotApplied, "Nothing was applied."
	if w.doubt != nil {
		outcome = api.OutcomeUnknown
		then = "It may have been applied; the next write of this lease that is admitted settles it."
	}
	detail := fmt.Sprintf("there was no verdict: %v. %s", cause, then)
	err := unanswered(w.op, "No verdict", outcome, detail, cause)
	err.Earlier = w.doubt
	switch {
	case isLost(cause):
		return lostDuring(err, cause)
	case errors.Is(cause, context.Canceled):
		return canceledDuring(err, cause)
	}
	return err
}
