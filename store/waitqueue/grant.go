package waitqueue

import (
	"context"
	"errors"
	"slices"
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

// grantNext grants the lock to the waiters here whose turn it is, in the background. A call while a grant is in flight
// makes it grant once more. The caller has locked the Queue.
func (q *Queue) grantNext(lock store.Name, lq *lockQueue) {
	lq.again = true
	if lq.granting {
		return
	}
	lq.granting = true
	go q.keepGranting(lock, lq)
}

// keepGranting grants as long as it is due. The caller has set lq.granting.
func (q *Queue) keepGranting(lock store.Name, lq *lockQueue) {
	for again, pause := q.grantInTurn(lock, lq); again; again, pause = q.grantInTurn(lock, lq) {
		time.Sleep(pause) // without a turn, which other locks need
	}
}

// grantInTurn waits until fewer than grantsMax grants are in flight. Locks get in first come, first served.
func (q *Queue) grantInTurn(lock store.Name, lq *lockQueue) (again bool, pause time.Duration) {
	q.grants <- struct{}{}
	defer func() { <-q.grants }()
	return q.grantOnce(lock, lq)
}

// grantOnce sends one grant and delivers its results. It reports whether to grant again, and after which pause.
func (q *Queue) grantOnce(lock store.Name, lq *lockQueue) (again bool, pause time.Duration) {
	q.mu.Lock()
	if !lq.again || lq.first(false) == 0 {
		lq.granting = false
		q.dropIfEmpty(lock, lq)
		q.mu.Unlock()
		return false, 0
	}
	lq.again = false
	lockWait, before := grantLockWait, lq.pause
	if before > 0 {
		lockWait = grantLockWaitAgain
	}
	scope := store.Node
	if lq.subtrees > 0 {
		scope = store.Subtree
	}
	q.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	results, err := q.db.GrantNext(ctx, q.gateway, lock, scope, lockWait)
	orphans, pause := q.deliver(lock, lq, results, err)
	if err != nil {
		q.db.CountRetry(err)
	}
	if errors.Is(err, store.ErrLocked) && before < grantPauseMax && pause == grantPauseMax { // once, after some seconds
		q.db.WarnLocked(ctx, lock)
	}
	for _, orphan := range orphans {
		_ = q.GiveBack(ctx, orphan) // its waiter has left
	}
	return true, pause
}

// deliver hands the results of a grant to the waiters. It returns the leases that no waiter took, and the pause before
// the next grant.
func (q *Queue) deliver(
	lock store.Name, lq *lockQueue, results []store.QueueResult, err error,
) (orphans []store.Lease, pause time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, result := range results {
		lq.again = lq.again || result.More
		if result.Left > 0 {
			q.arm(lock, lq, result.Left)
		}
		if result.Done && !lq.deliver(result) {
			orphans = append(orphans, result.Lease)
		}
	}
	lq.taken = nil
	switch {
	case err == nil:
		lq.pause = 0
	case store.OutcomeOf(err) == store.OutcomeNotApplied:
		lq.again = true
		lq.pause = min(max(2*lq.pause, grantPauseMin), grantPauseMax)
	default:
		lq.requeueAll() // a grant may have been made whose answer is lost: the waiters ask for it
		lq.pause = grantPauseMax
	}
	return orphans, lq.pause
}

// poll wakes waiters whose turn it may be, whatever notifications there were. It looks at dueMax locks at most, the
// next ones each time.
func (q *Queue) poll(ctx context.Context) error {
	locks, tickets := q.toPoll()
	if len(locks) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return q.db.NextDue(ctx, q.gateway, locks, tickets, func(lock store.Name, here bool) {
		if here {
			q.Wake(lock)
		} else {
			q.ticketLost(lock)
		}
	})
}

// toPoll returns some locks, and the first ticket that this process has for each. Waiters for a subtree may not block
// others, so the first of those is looked at, too.
func (q *Queue) toPoll() (locks []store.Name, tickets []int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for lock, lq := range q.locks {
		if lq.first(false) > 0 && !lq.granting {
			locks = append(locks, lock)
		}
	}
	slices.Sort(locks)
	if q.polled >= len(locks) {
		q.polled = 0
	}
	locks = locks[q.polled:]
	locks = locks[:min(len(locks), dueMax)]
	q.polled += len(locks)
	for _, lock := range locks {
		tickets = append(tickets, q.locks[lock].first(false))
	}
	for _, lock := range locks[:len(tickets)] {
		if second := q.locks[lock].first(true); second > 0 && second != q.locks[lock].first(false) {
			locks, tickets = append(locks, lock), append(tickets, second)
		}
	}
	return locks, tickets
}

// ticketLost makes the waiters whose tickets toPoll returns send their acquires again: one of the tickets is gone.
func (q *Queue) ticketLost(lock store.Name) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lq := q.locks[lock]
	if lq == nil {
		return
	}
	first, second := lq.first(false), lq.first(true)
	lq.requeue(first)
	if second != first {
		lq.requeue(second)
	}
}
