package waitqueue

import (
	"context"
	"slices"
	"time"

	"github.com/fencegate/fencegate/store"
)

// claim claims the places for a lock in the background; what asks for it meanwhile makes it claim once more. The caller has locked the line.
func (l *Queue) claim(lock store.Name, q *queue) {
	q.again = true
	if q.claiming {
		return
	}
	q.claiming = true
	go func() {
		for again, pause := l.claimInTurn(lock, q); again; again, pause = l.claimInTurn(lock, q) {
			time.Sleep(pause) // without a turn, which others need
		}
	}()
}

// claimInTurn lets other locks go first that are to be claimed already.
func (l *Queue) claimInTurn(lock store.Name, q *queue) (again bool, pause time.Duration) {
	l.claims <- struct{}{}
	defer func() { <-l.claims }()
	return l.claimOnce(lock, q)
}

// claimOnce reports whether to claim again, and after which pause.
func (l *Queue) claimOnce(lock store.Name, q *queue) (again bool, pause time.Duration) {
	l.mu.Lock()
	if !q.again || q.first(false) == 0 {
		q.claiming = false
		l.forget(lock, q)
		l.mu.Unlock()
		return false, 0
	}
	q.again = false
	lockWait := claimLockWait
	if q.pause > 0 {
		lockWait = claimLockWaitAgain
	}
	scope := store.Node
	if q.subtrees > 0 {
		scope = store.Subtree
	}
	l.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
	defer cancel()
	results, err := l.store.GrantNext(ctx, l.gateway, lock, scope, lockWait)

	l.mu.Lock()
	var orphans []store.Lease
	for _, result := range results {
		q.again = q.again || result.More
		if result.Left > 0 {
			l.arm(lock, q, result.Left)
		}
		if result.Done && !q.tell(result) {
			orphans = append(orphans, result.Lease)
		}
	}
	q.taken = nil
	switch {
	case err == nil:
		q.pause = 0
	case store.OutcomeOf(err) == store.OutcomeNotApplied:
		q.again = true
		q.pause = min(max(2*q.pause, claimPauseMin), claimPauseMax)
	default:
		// A grant may have been made that nobody heard of: who asks again is told.
		q.askAgain()
		q.pause = claimPauseMax
	}
	pause = q.pause
	l.mu.Unlock()

	if err != nil {
		l.store.CountRetry(err)
	}
	for _, orphan := range orphans {
		_ = l.giveBack(ctx, orphan) // whoever waited has left
	}
	return true, pause
}

// poll looks for places whose turn it may be, whatever notifications there were: of at most dueMax locks, the next ones each time.
func (l *Queue) poll(ctx context.Context) error {
	locks, tickets := l.nextDue()
	if len(locks) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	return l.store.NextDue(ctx, l.gateway, locks, tickets, func(lock store.Name, here bool) {
		if here {
			l.Wake(lock, 0)
		} else {
			l.lost(lock)
		}
	})
}

// nextDue returns some locks, and the first ticket that this process has in the line of each. Whoever waits for a subtree may not hold up
// others: their first is looked at, too.
func (l *Queue) nextDue() (locks []store.Name, tickets []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for lock, q := range l.queues {
		if q.first(false) > 0 && !q.claiming {
			locks = append(locks, lock)
		}
	}
	slices.Sort(locks)
	if l.polled >= len(locks) {
		l.polled = 0
	}
	locks = locks[l.polled:]
	locks = locks[:min(len(locks), dueMax)]
	l.polled += len(locks)
	for _, lock := range locks {
		tickets = append(tickets, l.queues[lock].first(false))
	}
	for _, lock := range locks[:len(tickets)] {
		if second := l.queues[lock].first(true); second > 0 && second != l.queues[lock].first(false) {
			locks, tickets = append(locks, lock), append(tickets, second)
		}
	}
	return locks, tickets
}

// lost has those whose tickets nextDue takes ask for their places again: one of them is in the line no more.
func (l *Queue) lost(lock store.Name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[lock]
	if q == nil {
		return
	}
	first, second := q.first(false), q.first(true)
	q.askAgainFor(first)
	if second != first {
		q.askAgainFor(second)
	}
}
