package waitqueue

import (
	"context"
	"errors"

	"github.com/fencegate/fencegate/store"
)

// ReleaseLease ends a lease; see [postgres.Store.ReleaseLease]. Where callers of this process wait for the lock, the same
// transaction grants it to the next: a hand-over costs one commit, and no notification.
func (q *Queue) ReleaseLease(ctx context.Context, ref store.LeaseRef) (store.Released, error) {
	lq := q.beginHandOver(ref.Lock)
	if lq == nil {
		return q.db.ReleaseLease(ctx, ref)
	}
	// The end of ctx does not interrupt it: the waiters would not know what they were granted.
	handing, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	released, results, err := q.db.HandOver(handing, ref, q.gateway)
	failed := err
	if errors.Is(err, store.ErrLeaseLost) || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) {
		failed = nil // it is about the release: the grant has its results
	}
	again := failed != nil && store.OutcomeOf(failed) != store.OutcomeUnknown
	if again {
		failed = store.NotApplied(failed)
	}
	orphans, _ := q.deliver(ref.Lock, lq, results, failed)
	go q.finishHandOver(context.WithoutCancel(ctx), ref.Lock, lq, orphans)
	if again {
		return q.db.ReleaseLease(ctx, ref) // the grant may be at fault
	}
	return released, err
}

// beginHandOver returns the queue of a lock if a grant would be made after the release: a caller waits, none for a
// subtree, and no grant is in flight.
func (q *Queue) beginHandOver(lock store.Name) *lockQueue {
	q.mu.Lock()
	defer q.mu.Unlock()
	lq := q.locks[lock]
	if lq == nil || lq.first(false) == 0 || lq.subtrees > 0 || lq.granting {
		return nil
	}
	lq.granting, lq.again = true, false
	return lq
}

// finishHandOver makes the grants that have become due meanwhile.
func (q *Queue) finishHandOver(ctx context.Context, lock store.Name, lq *lockQueue, orphans []store.Lease) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	for _, orphan := range orphans {
		_ = q.GiveBack(ctx, orphan) // its waiter has left
	}
	q.keepGranting(lock, lq)
}
