package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

// resendPauseMin and resendPauseMax are the pauses between attempts to keep a ticket while the database is unreachable.
const resendPauseMin, resendPauseMax = 50 * time.Millisecond, time.Second

// ownRequest begins the request_id of a caller that has none.
const ownRequest = "fencegate:"

// Acquire takes a lock, and stores the lease. It waits for it as long as the request says, at least a millisecond: first
// come, first served, over all gateways.
//
// It returns the errors of [postgres.Store.Acquire]; ErrLeaseHeld where the time is over; ErrDeadlock (a DeadlockError) if
// the wait would close a cycle of owners that wait for each other. When ctx ends while the caller waits, the caller
// leaves the queue, and Acquire returns an error that wraps the cause of ctx. A lease granted by then is given back.
//
// While the database is unreachable, waiters keep trying to keep their tickets.
func (q *Queue) Acquire(ctx context.Context, request *store.AcquireRequest, lease *store.Lease) error {
	w, err := q.enter(request)
	if err != nil {
		return err
	}
	err = q.acquire(ctx, w)
	q.quit(w, &w.lease)
	*lease = w.lease
	return err
}

// enter checks the request of a caller that may wait, and adds the caller to the Queue.
func (q *Queue) enter(given *store.AcquireRequest) (*waiter, error) {
	request, err := given.Check()
	if err != nil {
		return nil, err
	}
	if request.RequestID == "" { // with one, the request can be sent again if its answer is lost
		request.RequestID = ownRequest + uuid.NewString()
	}
	w := newWaiter(request)
	q.join(w)
	return w, nil
}

// acquire is the path of a waiter: it sends the acquire, waits for the outcome, and starts again whenever its ticket
// may be lost. It leaves the lease in the waiter: copies of leases in the frames of thousands of callers that wait would
// be most of their memory.
func (q *Queue) acquire(ctx context.Context, w *waiter) error {
	pause := resendPauseMin
	for {
		queued, err := q.sendAside(ctx, w)
		resend := false
		switch {
		case err == nil && !queued:
			return q.grantedAtOnce(ctx, w)
		case err == nil:
			resend, err = q.wait(ctx, w)
		}
		if resend {
			w.mayBeQueued, pause = true, resendPauseMin
			continue
		}
		if !errors.Is(err, store.ErrUnavailable) {
			return err
		}

		w.mayBeQueued = w.mayBeQueued || w.ticket > 0 || store.OutcomeOf(err) == store.OutcomeUnknown
		crowded := errors.Is(err, store.ErrLocked) || errors.Is(err, store.ErrNoConnection)
		if !w.mayBeQueued && !crowded || time.Now().After(w.deadline) || ctx.Err() != nil {
			return q.leaveOnError(w, err)
		}
		q.db.CountRetry(err)
		timing.Sleep(ctx, pause)
		pause = min(2*pause, resendPauseMax)
	}
}

// grantedAtOnce ends an acquire that was answered with a lease. If the caller left while its acquire was sent again, the
// lease is given back. One without a wait is not: the same request, sent again, may have been answered with it, and the
// database does not note that (fence.acquire_lease).
func (q *Queue) grantedAtOnce(ctx context.Context, w *waiter) error {
	if w.mayBeQueued && w.lease.Waited > 0 && ctx.Err() != nil {
		return q.leaveOnCancel(ctx, w, &outcome{lease: w.lease})
	}
	return nil
}

// sendAside calls sendAcquire in a goroutine of its own, whose stack is free when it ends: a statement needs up to 32
// KiB of stack, and Go would not take all of it back while the caller waits. A panic is the caller's.
func (q *Queue) sendAside(ctx context.Context, w *waiter) (queued bool, err error) {
	var panicked string
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		defer func() {
			if cause := recover(); cause != nil {
				panicked = fmt.Sprintf("%v\n%s", cause, debug.Stack())
			}
		}()
		queued, err = q.sendAcquire(ctx, w)
	}()
	<-sent
	if panicked != "" {
		panic(panicked)
	}
	return queued, err
}

// sendAcquire sends the acquire, and notes the ticket or the lease in the answer. The end of ctx does not interrupt it:
// the waiter would not know whether it is in the queue.
func (q *Queue) sendAcquire(ctx context.Context, w *waiter) (queued bool, err error) {
	request := w.request
	request.Wait = max(time.Until(w.deadline), time.Millisecond).Truncate(time.Millisecond)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	if err := q.ensureHeartbeat(ctx); err != nil {
		return false, store.NotApplied(err)
	}
	to := store.ToQueue{Beside: q.beginSending(w), Again: w.mayBeQueued}
	acquired, err := q.db.Enqueue(ctx, request, q.gateway, to)
	q.endSending(w, acquired)
	w.lease = acquired.Lease
	return acquired.Ticket > 0, err
}

// beginSending notes that the waiter sends its acquire, so that no notification is missed before the answer. It reports
// whether others wait for the lock.
func (q *Queue) beginSending(w *waiter) (beside bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lq := q.locks[w.request.Lock]
	lq.setTicket(w, 0)
	lq.sending++
	return lq.waiters > 1
}

// endSending notes the ticket in the answer, 0 for none. It starts a grant if a notification came meanwhile.
func (q *Queue) endSending(w *waiter, acquired store.Acquired) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lock := w.request.Lock
	lq := q.locks[lock]
	lq.sending--
	lq.setTicket(w, acquired.Ticket)
	if acquired.Ticket > 0 && acquired.Ticket != w.checked {
		w.checked = acquired.Ticket
		q.checkDeadlock(acquired.Ticket, deadlockCheck{lock: lock, begun: !acquired.Requeued})
	}
	if acquired.Left > 0 {
		q.arm(lock, lq, acquired.Left)
	}
	if lq.missed && lq.first(false) > 0 {
		q.grantNext(lock, lq)
	}
	if lq.sending == 0 {
		lq.missed = false
	}
}

// wait waits for the outcome of a waiter with a ticket: the one that is delivered, or that of leaving.
func (q *Queue) wait(ctx context.Context, w *waiter) (resend bool, err error) {
	timer := time.NewTimer(time.Until(w.deadline))
	defer timer.Stop()
	select {
	case delivered := <-w.outcome:
		if delivered.lease.Token > 0 && ctx.Err() != nil { // both came
			return false, q.leaveOnCancel(ctx, w, delivered)
		}
		w.lease = delivered.lease
		return delivered.resend, delivered.err
	case <-timer.C:
		return false, q.leaveOnTimeout(w)
	case <-ctx.Done():
		return false, q.leaveOnCancel(ctx, w, nil)
	}
}
