package waitqueue

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

// resendPauseMin and resendPauseMax are the pauses between attempts to keep a ticket while the database is unreachable.
const resendPauseMin, resendPauseMax = 50 * time.Millisecond, time.Second

// ownRequest begins the request_id of a caller that has none.
const ownRequest = "fencegate:"

// Acquire takes a lock. It waits for it as long as the request says: first come, first served, over all gateways.
//
// It returns the errors of [postgres.Store.Acquire]; ErrLeaseHeld where the time is over; ErrDeadlock (a DeadlockError) if
// the wait would close a cycle of owners that wait for each other. When ctx ends while the caller waits, the caller
// leaves the queue, and Acquire returns an error that wraps the cause of ctx. A lease granted by then is given back.
//
// While the database is unreachable, waiters keep trying to keep their tickets.
func (q *Queue) Acquire(ctx context.Context, request store.AcquireRequest) (store.Lease, error) {
	if request.Wait == 0 {
		return q.db.Acquire(ctx, request)
	}
	request, err := request.Check()
	if err != nil {
		return store.Lease{}, err
	}
	if request.RequestID == "" { // with one, the request can be sent again if its answer is lost
		request.RequestID = ownRequest + uuid.NewString()
	}
	w := newWaiter(request)
	q.join(w)
	lease, err := q.acquire(ctx, w)
	q.quit(w, lease)
	return lease, err
}

// acquire is the path of a waiter: it sends the acquire, waits for the outcome, and starts again whenever its ticket
// may be lost.
func (q *Queue) acquire(ctx context.Context, w *waiter) (store.Lease, error) {
	pause := resendPauseMin
	for {
		acquired, err := q.sendAcquire(ctx, w)
		if err == nil && acquired.Ticket == 0 {
			return q.grantedAtOnce(ctx, w, acquired.Lease)
		}
		var end outcome
		if err == nil {
			end = q.wait(ctx, w)
			err = end.err
		}
		if end.resend {
			w.mayBeQueued, pause = true, resendPauseMin
			continue
		}
		if !errors.Is(err, store.ErrUnavailable) {
			return end.lease, err
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

// grantedAtOnce returns the lease that an acquire was answered with. If the caller left while its acquire was sent again,
// the lease is given back. One without a wait is not: the same request, sent again, may have been answered with it, and
// the database does not note that (fence.acquire_lease).
func (q *Queue) grantedAtOnce(ctx context.Context, w *waiter, lease store.Lease) (store.Lease, error) {
	if w.mayBeQueued && lease.Waited > 0 && ctx.Err() != nil {
		return store.Lease{}, q.leaveOnCancel(ctx, w, outcome{lease: lease})
	}
	return lease, nil
}

// sendAcquire sends the acquire, and notes the ticket in the answer. The end of ctx does not interrupt it: the waiter
// would not know whether it is in the queue.
func (q *Queue) sendAcquire(ctx context.Context, w *waiter) (store.Acquired, error) {
	request := w.request
	request.Wait = max(time.Until(w.deadline), time.Millisecond).Truncate(time.Millisecond)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	if err := q.ensureHeartbeat(ctx); err != nil {
		return store.Acquired{}, store.NotApplied(err)
	}
	send := q.db.Enqueue
	if beside := q.beginSending(w); beside {
		send = q.db.EnqueueBeside
	}
	if w.mayBeQueued {
		send = q.db.Requeue
	}
	acquired, err := send(ctx, request, q.gateway)
	q.endSending(w, acquired)
	return acquired, err
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

// wait returns the outcome of a waiter with a ticket: the one that is delivered, or that of leaving.
func (q *Queue) wait(ctx context.Context, w *waiter) outcome {
	timer := time.NewTimer(time.Until(w.deadline))
	defer timer.Stop()
	select {
	case delivered := <-w.outcome:
		if delivered.lease.Token > 0 && ctx.Err() != nil { // both came
			return outcome{err: q.leaveOnCancel(ctx, w, delivered)}
		}
		return delivered
	case <-timer.C:
		lease, err := q.leaveOnTimeout(w)
		return outcome{lease: lease, err: err}
	case <-ctx.Done():
		return outcome{err: q.leaveOnCancel(ctx, w, outcome{})}
	}
}
