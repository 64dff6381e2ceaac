package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencegate/fencegate/store"
)

const (
	// leaveTimeout bounds the statements by which a caller leaves the queue.
	leaveTimeout = 10 * time.Second
	// orphansMax bounds the debts when another lease is to be given back. Those above it end with their TTL.
	orphansMax = 10_000
	// moveTime is how long the place of a caller that is to wait elsewhere is kept. A gateway that dies keeps it longer.
	moveTime = 3 * time.Second
)

// debt is what a caller that left owes the database: a request to be taken out of the queue, or a lease to be given back.
type debt struct {
	lock      store.Name
	requestID string
	lease     *store.Lease // nil: it is a request
	own       bool         // no other gateway has sent the request of the lease, so nobody else can have the lease
	due       time.Time    // not before
	until     time.Time    // until then, a statement may be in flight that would queue the request
}

// leave ends a wait: with the lease that was granted, or with err. If ctx has ended, the caller is gone, and the wait ends
// with its cause. The last caller that was given a lease gives it back then, and the last one that waits with a request
// takes it out of the queue. A lease that another gateway was granted for the same request is not touched.
//
// A lease that was granted without a wait is not given back: the same request, sent again, may have been answered with
// it, and the database does not note that (fence.acquire_lease).
func (q *Queue) leave(ctx context.Context, w *waiter, err error) error {
	cause, unknown := context.Cause(ctx), err == nil || errors.Is(err, store.ErrUnavailable)
	owed := debt{lock: w.request.Lock, requestID: w.request.RequestID}
	q.mu.Lock()
	if w.state == granted && unknown && (cause == nil || w.lease.Waited == 0) {
		q.mu.Unlock()
		return nil
	}
	w.apply(onLeave)
	owes := w.mayBeQueued && unknown && !w.lock.wanted(owed.requestID)
	if w.lease != nil {
		w.lease.takers--
		owed.lease, owes = &w.lease.Lease, w.lease.takers == 0
		owed.own = strings.HasPrefix(owed.requestID, ownRequest)
	}
	q.mu.Unlock()

	var failed error
	switch moves := errors.Is(cause, store.ErrMoved) && !strings.HasPrefix(owed.requestID, ownRequest); {
	case !owes:
	case moves && owed.lease == nil: // the caller sends the request to another gateway
		owed.due = time.Now().Add(moveTime)
		q.owe(owed)
	case err != nil:
		q.owe(owed)
	default:
		failed = q.settle(context.WithoutCancel(ctx), owed)
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("left the queue for %s: %w", owed.lock, errors.Join(cause, failed))
}

// GiveBack releases a lease whose owner has left. On failure it is repeated later: a lease without an owner would keep
// the lock until its TTL is over.
func (q *Queue) GiveBack(ctx context.Context, lease store.Lease) error {
	return q.settle(ctx, debt{lock: lease.Lock, lease: &lease})
}

// settle pays a debt, or keeps it for later.
func (q *Queue) settle(ctx context.Context, d debt) error {
	err := q.pay(ctx, d)
	if errors.Is(err, store.ErrUnavailable) {
		q.owe(d)
	}
	return err
}

func (q *Queue) pay(ctx context.Context, d debt) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	switch {
	case d.own:
		if _, err := q.db.ReleaseLease(ctx, d.lease.Ref()); errors.Is(err, store.ErrUnavailable) {
			return err
		}
		return nil // it has ended
	case d.lease != nil:
		return q.db.GiveBack(ctx, *d.lease)
	}
	return q.db.LeaveQueue(ctx, q.gateway, d.lock, d.requestID)
}

// owe keeps a debt that has no until yet, or that could not be paid.
func (q *Queue) owe(d debt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d.until.IsZero() {
		d.until = time.Now().Add(statementTimeout)
	}
	if d.lease == nil || len(q.debts) < orphansMax {
		q.debts = append(q.debts, d)
	}
}

// payDebts pays what is due. A lock whose fence another session has locked is left for the next time, and so is all if
// the database is unreachable. The removal of a request is repeated until no statement can be in flight that would queue
// it after all, or a caller waits with it again.
func (q *Queue) payDebts(ctx context.Context) error {
	q.mu.Lock()
	debts := q.debts
	q.debts = nil
	q.mu.Unlock()
	var failed []error
	away, locked := false, map[store.Name]bool{}
	for _, d := range debts {
		now := time.Now()
		q.mu.Lock()
		over := q.locks[q.keyOf(d.lock)].wanted(d.requestID)
		q.mu.Unlock()
		if d.lease != nil {
			over = now.After(d.until.Add(d.lease.TTL))
		}
		paid := false
		if !over && !away && !locked[d.lock] && !now.Before(d.due) {
			err := q.pay(ctx, d)
			paid = err == nil
			if err != nil {
				failed = append(failed, err)
				locked[d.lock], away = true, !errors.Is(err, store.ErrLocked)
			}
		}
		if !over && (!paid || d.lease == nil && now.Before(d.until)) {
			q.owe(d)
		}
	}
	return errors.Join(failed...)
}
