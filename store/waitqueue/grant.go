package waitqueue

import (
	"context"
	"errors"
	"time"

	"github.com/fencegate/fencegate/store"
)

const (
	// grantsMax bounds the grants in flight, so that they leave connections to others.
	grantsMax = 4
	// dueMax is how many locks one poll looks at.
	dueMax = 500
	// grantLockWait is how long a grant waits for a fence that another session has locked. grantLockWaitAgain is the wait
	// of the next grant after one that failed: there are few turns, and other locks wait for them.
	grantLockWait, grantLockWaitAgain = 100 * time.Millisecond, 20 * time.Millisecond
	// grantPauseMin and grantPauseMax are the pauses of a lock after grants that failed, each twice the one before.
	grantPauseMin, grantPauseMax = 50 * time.Millisecond, time.Second
)

// wake makes a grant due, which runs in the background: now, or when the lease in the way will have expired. An earlier
// time stays set: that lease may not be the one in the way. The caller has locked the Queue.
func (q *Queue) wake(lq *lockQueue, in time.Duration) {
	at := time.Now().Add(in)
	switch {
	case in <= 0:
		lq.due = true
		if len(lq.waiters) > 0 && !lq.granting {
			lq.granting = true
			go q.grant(lq)
		}
		return
	case lq.timer == nil:
	case at.Before(lq.timerAt):
		lq.timer.Stop()
	default:
		return
	}
	lq.timerAt = at
	lq.timer = time.AfterFunc(in, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		lq.timer = nil
		q.wake(lq, 0)
	})
}

// grant sends one grant and delivers its results. Fewer than grantsMax others are in flight then. Locks get in first
// come, first served.
func (q *Queue) grant(lq *lockQueue) {
	q.grants <- struct{}{}
	defer func() { <-q.grants }()
	q.mu.Lock()
	lq.due = false
	lockWait, before, scope := grantLockWait, lq.pause, store.Node
	if before > 0 {
		lockWait = grantLockWaitAgain
	}
	if lq.subtrees > 0 {
		scope = store.Subtree
	}
	q.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	results, err := q.db.GrantNext(ctx, q.gateway, lq.name, scope, lockWait)
	pause := q.endGrant(lq, results, err)
	if err != nil {
		q.db.CountRetry(err)
	}
	if errors.Is(err, store.ErrLocked) && before < grantPauseMax && pause == grantPauseMax { // once, after some seconds
		q.db.WarnLocked(ctx, lq.name)
	}
}

// endGrant hands the results of a grant to the waiters, and starts the next one, if that is due, after the pause that it
// returns. Leases that no waiter took are given back.
func (q *Queue) endGrant(lq *lockQueue, results []store.QueueResult, err error) (pause time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var orphans []store.Lease
	for _, result := range results {
		lq.due = lq.due || result.More
		if result.Left > 0 {
			q.wake(lq, result.Left)
		}
		if result.Done && !lq.deliver(result) {
			orphans = append(orphans, result.Lease)
		}
	}
	if len(orphans) > 0 {
		go func() {
			for _, orphan := range orphans {
				_ = q.GiveBack(context.Background(), orphan) // what fails is repeated
			}
		}()
	}
	switch {
	case err == nil:
		lq.pause = 0
		q.nextGrant(lq)
		return 0
	case store.OutcomeOf(err) == store.OutcomeNotApplied:
		lq.due = true
		lq.pause = min(max(2*lq.pause, grantPauseMin), grantPauseMax)
	default:
		lq.loseAll() // a grant may have been made whose answer is lost: the waiters ask for it
		lq.pause = grantPauseMax
	}
	time.AfterFunc(lq.pause, func() { // without a turn, which other locks need
		q.mu.Lock()
		defer q.mu.Unlock()
		q.nextGrant(lq)
	})
	return lq.pause
}

// nextGrant starts the next grant, if that is due. The caller has locked the Queue.
func (q *Queue) nextGrant(lq *lockQueue) {
	lq.granting = false
	if lq.due {
		q.wake(lq, 0)
	}
	q.dropIfEmpty(lq)
}

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
	switch {
	case errors.Is(err, store.ErrLeaseLost), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid):
		failed = nil // it is about the release: the grant has its results
	case err != nil && store.OutcomeOf(err) != store.OutcomeUnknown:
		q.endGrant(lq, nil, store.NotApplied(err))
		return q.db.ReleaseLease(ctx, ref) // the grant may be at fault
	}
	q.endGrant(lq, results, failed)
	return released, err
}

// beginHandOver returns the queue of a lock if a grant would be made after the release: a caller waits, none for a
// subtree, and no grant is in flight.
func (q *Queue) beginHandOver(lock store.Name) *lockQueue {
	q.mu.Lock()
	defer q.mu.Unlock()
	lq := q.locks[q.keyOf(lock)]
	if lq == nil || lq.subtrees > 0 || lq.granting {
		return nil
	}
	lq.granting, lq.due = true, false
	return lq
}

// poll wakes waiters whose turn it may be, whatever notifications there were.
func (q *Queue) poll(ctx context.Context) error {
	locks, tickets, polled := q.toPoll()
	if len(locks) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return q.db.NextDue(ctx, q.gateway, locks, tickets, func(lock store.Name, here bool) {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, w := range polled[lock] {
			if here {
				q.wake(w.lock, 0)
			} else {
				w.lock.lose(w.request.RequestID)
			}
		}
	})
}

// toPoll returns some locks, dueMax at most, and the first ticket that this process has for each; and who has them.
// Waiters for a subtree may not block others, so the first of those is looked at, too. All locks have their turn before
// one is looked at again.
func (q *Queue) toPoll() (locks []store.Name, tickets []int64, polled map[store.Name][]*waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	polled = map[store.Name][]*waiter{}
	for _, lq := range q.locks {
		if len(polled) == dueMax {
			return locks, tickets, polled
		}
		if lq.granting || lq.polled == q.polls {
			continue
		}
		lq.polled = q.polls
		first, node := lq.first()
		for _, w := range []*waiter{first, node} {
			if w != nil {
				locks, tickets, polled[lq.name] = append(locks, lq.name), append(tickets, w.ticket), append(polled[lq.name], w)
			}
		}
	}
	q.polls++
	return locks, tickets, polled
}
