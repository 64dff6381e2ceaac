package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencegate/fencegate/store"
)

const (
	// leaveTimeout bounds the statements by which a caller leaves the queue.
	leaveTimeout = 10 * time.Second
	// orphansMax bounds the leases that are still to be given back. Those above it end with their TTL.
	orphansMax = 10_000
	// moveTime is how long the place of a caller that is to wait elsewhere is kept. A gateway that dies keeps it longer.
	moveTime = 3 * time.Second
)

// departure is a waiter that left, and whose row may still be in the database.
type departure struct {
	lock      store.Name
	requestID string
	since     time.Time // zero: no statement is in flight that would queue it
	due       time.Time // until then its row is kept
}

// orphan is a lease that no caller took.
type orphan struct {
	lease store.Lease
	since time.Time
}

// leaveOnTimeout leaves the queue because the time is over. It finds a lease granted at the last moment, or returns
// ErrLeaseHeld with the holder.
func (q *Queue) leaveOnTimeout(w *waiter) error {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	q.mu.Lock()
	w.leaving = true
	shared := q.locks[w.request.Lock].others(w)
	q.mu.Unlock()
	if !shared {
		if err := q.db.LeaveQueue(ctx, q.gateway, w.request.Lock, w.request.RequestID); err != nil {
			return err
		}
	}
	try := w.request
	try.Wait = 0
	acquired, err := q.db.Enqueue(ctx, try, q.gateway, store.ToQueue{Again: true}) // the request_id finds a lease that was granted
	w.lease = acquired.Lease
	return err
}

// leaveOnCancel leaves the queue because ctx has ended: the caller is gone. It returns the cause, and what failed. A lease
// granted at the last moment is given back: here if it is in got, or was delivered; otherwise by the grant that finds no
// caller. A lease that another gateway was granted for the same request is not touched.
func (q *Queue) leaveOnCancel(ctx context.Context, w *waiter, got *outcome) error {
	w.lease = store.Lease{}
	leaving, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	err := errors.Join(context.Cause(ctx), q.leaveWith(leaving, w, got, errors.Is(context.Cause(ctx), store.ErrMoved)))
	return fmt.Errorf("left the queue for %s: %w", w.request.Lock, err)
}

// leaveWith leaves the queue, and gives back the lease in got, or one that was delivered, unless another caller has it.
// got may be nil. The place of a caller that moves to another gateway, and has a request_id for that, is kept for the
// moveTime.
func (q *Queue) leaveWith(ctx context.Context, w *waiter, got *outcome, moves bool) error {
	q.mu.Lock()
	w.leaving, w.gone = true, true
	shared := q.locks[w.request.Lock].others(w)
	if got == nil || got.lease.Token == 0 {
		got = &outcome{}
		select {
		case got = <-w.outcome:
		default:
		}
	}
	moved := moves && !strings.HasPrefix(w.request.RequestID, ownRequest)
	last := !shared
	if got.takers != nil {
		*got.takers--
		last = *got.takers == 0
	}
	if moved && !shared && got.lease.Token == 0 {
		q.leaving = append(q.leaving, departure{lock: w.request.Lock, requestID: w.request.RequestID, due: time.Now().Add(moveTime)})
	}
	q.mu.Unlock()
	switch {
	case got.lease.Token > 0 && last:
		return q.GiveBack(ctx, got.lease)
	case got.lease.Token > 0, shared, moved:
		return nil // another caller has the lease, or the ticket, or will have it
	}
	return q.db.LeaveQueue(ctx, q.gateway, w.request.Lock, w.request.RequestID)
}

// leaveOnError leaves the queue because of err, which it returns unless a lease was delivered meanwhile. The row in the
// database is removed when that is reachable.
func (q *Queue) leaveOnError(w *waiter, err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !w.gone {
		select {
		case delivered := <-w.outcome:
			if delivered.lease.Token > 0 {
				w.lease = delivered.lease
				return nil
			}
		default:
		}
	}
	w.leaving, w.gone = true, true
	if w.mayBeQueued && !q.locks[w.request.Lock].others(w) {
		q.leaving = append(q.leaving, departure{lock: w.request.Lock, requestID: w.request.RequestID, since: time.Now()})
	}
	return err
}

// GiveBack releases a lease whose owner has left. On failure it is repeated later: a lease without an owner would keep
// the lock until its TTL is over.
func (q *Queue) GiveBack(ctx context.Context, lease store.Lease) error {
	err := q.db.GiveBack(ctx, lease)
	if errors.Is(err, store.ErrUnavailable) {
		q.mu.Lock()
		defer q.mu.Unlock()
		if len(q.orphans) < orphansMax {
			q.orphans = append(q.orphans, orphan{lease, time.Now()})
		}
	}
	return err
}

// finishLeaving removes waiters from the queue that could not leave while the database was unreachable: they would
// block others until their time is over. It repeats that until no statement can be in flight that would queue them
// after all. Then it gives back orphans. A lock whose fence another session has locked is left for the next time.
func (q *Queue) finishLeaving(ctx context.Context) error {
	q.mu.Lock()
	q.leaving = slices.DeleteFunc(q.leaving, q.returned)
	leaving := slices.Clone(q.leaving)
	q.mu.Unlock()
	var failed []error
	locked := map[store.Name]bool{}
	for _, d := range leaving {
		if locked[d.lock] || time.Now().Before(d.due) {
			continue
		}
		sent := time.Now()
		if err := q.leaveWithin(ctx, d); err != nil {
			failed = append(failed, err)
			if !errors.Is(err, store.ErrLocked) {
				break
			}
			locked[d.lock] = true
			continue
		}
		if sent.Sub(d.since) > statementTimeout {
			q.mu.Lock()
			q.leaving = slices.DeleteFunc(q.leaving, func(other departure) bool { return other == d })
			q.mu.Unlock()
		}
	}
	return errors.Join(append(failed, q.giveBackOrphans(ctx))...)
}

// returned reports whether a caller waits again with the request of one that left.
func (q *Queue) returned(d departure) bool {
	lq := q.locks[d.lock]
	return lq != nil && slices.ContainsFunc(lq.byRequest[d.requestID], func(w *waiter) bool { return !w.leaving })
}

func (q *Queue) leaveWithin(ctx context.Context, d departure) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	return q.db.LeaveQueue(ctx, q.gateway, d.lock, d.requestID)
}

// giveBackOrphans tries again to give back each orphan once. It drops those that have ended meanwhile.
func (q *Queue) giveBackOrphans(ctx context.Context) error {
	q.mu.Lock()
	orphans := q.orphans
	q.orphans = nil
	q.mu.Unlock()
	var failed []error
	for i, o := range orphans {
		if time.Since(o.since) > max(o.lease.TTL, statementTimeout) {
			continue
		}
		giving, cancel := context.WithTimeout(ctx, leaveTimeout)
		err := q.db.GiveBack(giving, o.lease)
		cancel()
		if err == nil {
			continue
		}
		failed = append(failed, err)
		rest := orphans[i : i+1]
		if !errors.Is(err, store.ErrLocked) {
			rest = orphans[i:] // the database is unreachable
		}
		q.mu.Lock()
		q.orphans = append(q.orphans, rest...)
		q.mu.Unlock()
		if len(rest) > 1 {
			break
		}
	}
	return errors.Join(failed...)
}
