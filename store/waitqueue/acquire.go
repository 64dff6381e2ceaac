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
	q.quit(w, lease)
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
	return q.join(request), nil
}

// acquire is the path of a waiter: it sends the acquire, waits for the outcome, and starts again whenever its ticket
// may be lost. It leaves the lease in the waiter: copies of leases in the frames of thousands of callers that wait would
// be most of their memory.
func (q *Queue) acquire(ctx context.Context, w *waiter) error {
	pause := resendPauseMin
	for {
		resend := false
		err := q.sendAside(ctx, w)
		if err == nil {
			resend, err = q.wait(ctx, w)
			pause = resendPauseMin
		}
		crowded := errors.Is(err, store.ErrLocked) || errors.Is(err, store.ErrNoConnection)
		switch {
		case resend:
			continue
		case !errors.Is(err, store.ErrUnavailable), !w.mayBeQueued && !crowded,
			time.Now().After(w.deadline), ctx.Err() != nil:
			return q.leave(ctx, w, err)
		}
		q.db.CountRetry(err)
		timing.Sleep(ctx, pause)
		pause = min(2*pause, resendPauseMax)
	}
}

// sendAside calls send in a goroutine of its own, whose stack is free when it ends: a statement needs up to 32 KiB of
// stack, and Go would not take all of it back while the caller waits. A panic is the caller's.
func (q *Queue) sendAside(ctx context.Context, w *waiter) (err error) {
	var panicked string
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		defer func() {
			if cause := recover(); cause != nil {
				panicked = fmt.Sprintf("%v\n%s", cause, debug.Stack())
			}
		}()
		err = q.send(ctx, w)
	}()
	<-sent
	if panicked != "" {
		panic(panicked)
	}
	return err
}

// send sends the acquire; once the time is over, it does not join the queue again. The end of ctx does not interrupt it:
// the waiter would not know whether it is in the queue.
func (q *Queue) send(ctx context.Context, w *waiter) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	if err := q.ensureHeartbeat(ctx); err != nil {
		return store.NotApplied(err)
	}
	request := w.request
	request.Wait = max(time.Until(w.deadline), time.Millisecond).Truncate(time.Millisecond)
	q.mu.Lock()
	w.apply(onSend)
	if w.state == leaving {
		request.Wait = 0
	}
	to := store.ToQueue{Beside: len(w.lock.waiters) > 1, Again: w.mayBeQueued}
	q.mu.Unlock()
	acquired, err := q.db.Enqueue(ctx, request, q.gateway, to)
	q.answered(w, &acquired, err)
	return err
}

// answered notes the lease or the ticket in the answer to an acquire.
func (q *Queue) answered(w *waiter, acquired *store.Acquired, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if acquired.Lease.Token > 0 {
		w.take(&grant{Lease: acquired.Lease})
	}
	if acquired.Ticket > 0 {
		w.apply(onTicket)
		switch {
		case w.ticket == acquired.Ticket:
		case acquired.Requeued:
			q.checkDeadlock(w, full)
		default:
			q.checkDeadlock(w, begun)
		}
		w.ticket = acquired.Ticket
	}
	w.mayBeQueued = w.mayBeQueued || acquired.Ticket > 0 || store.OutcomeOf(err) == store.OutcomeUnknown
	if acquired.Left > 0 {
		q.wake(w.lock, acquired.Left)
	}
}

// wait waits until the waiter is not queued any more, its time is over, or ctx ends. It reports whether its acquire is to
// be sent again: its ticket may be lost; or it is removed, because the time is over, and a lease that was granted before
// is still to be found.
func (q *Queue) wait(ctx context.Context, w *waiter) (resend bool, err error) {
	if w.woken != nil {
		timer := time.NewTimer(time.Until(w.deadline))
		defer timer.Stop()
		select {
		case <-w.woken:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	q.mu.Lock()
	if ctx.Err() == nil && w.state == queued {
		w.apply(onTimeUp)
	}
	is, shared := w.state, w.lock.wanted(w.request.RequestID)
	q.mu.Unlock()
	switch {
	case is == granted, ctx.Err() != nil:
		return false, nil
	case is == refused:
		return false, w.refusal
	case is == leaving && !shared:
		err = q.pay(context.WithoutCancel(ctx), debt{lock: w.request.Lock, requestID: w.request.RequestID})
	}
	return err == nil, err
}
