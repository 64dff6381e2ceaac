package waitqueue

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fencegate/fencegate/store"
)

const (
	// deadlockChecksMax is how many waits one statement checks for cycles.
	deadlockChecksMax = 1000
	// deadlockRetryPause is the pause after a statement that failed.
	deadlockRetryPause = 200 * time.Millisecond
	// deadlockAgainPause is the pause before a wait is checked again that another search is at work on.
	deadlockAgainPause = 20 * time.Millisecond
)

// deadlockInsistAfter is how long a wait in a cycle leaves it to a later one to be refused. The later one closed the
// cycle, and its gateway finds it at once, unless it could not see the earlier one when it searched. A variable, for
// tests: on a busy machine it may find it later.
var deadlockInsistAfter = 500 * time.Millisecond

// check is how a wait is searched for a cycle. A later kind does for an earlier one.
type check int

const (
	begun  check = iota + 1 // the wait has just begun, and no search has failed
	full                    // others may be behind it
	insist                  // as full; and the wait is refused even if there is a later one in the cycle
)

// checkDeadlock searches for a cycle through a wait, in the background. A wait is checked when it is committed, and when
// it counts again: the last wait of a cycle sees all others (fence.find_deadlocks). The caller has locked the Queue.
func (q *Queue) checkDeadlock(w *waiter, as check) {
	q.unchecked[w] = max(q.unchecked[w], as)
	if !q.checking {
		q.checking = true
		go q.checkDeadlocks()
	}
}

// checkAllForDeadlocks follows a time in which the database considered this process dead: its waits count again.
func (q *Queue) checkAllForDeadlocks() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lq := range q.locks {
		for _, same := range lq.waiters {
			for _, w := range same {
				q.checkDeadlock(w, full)
			}
		}
	}
}

// checkDeadlocks works until nothing is unchecked. Waits that come meanwhile are checked together.
func (q *Queue) checkDeadlocks() {
	for batch, as := q.takeUnchecked(); len(batch) > 0; batch, as = q.takeUnchecked() {
		ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
		tickets := slices.Collect(maps.Keys(batch))
		found, err := q.db.FindDeadlocks(ctx, tickets, as == begun)
		cancel()
		if err != nil {
			found = tickets
		}
		slices.Sort(found)
		for _, ticket := range slices.Backward(found) { // the last first: it is the one to be refused
			next, pause := max(as, full), deadlockRetryPause
			if err == nil {
				next, pause, err = q.breakDeadlock(batch[ticket], ticket, next)
			}
			if next > 0 {
				time.AfterFunc(pause, func() {
					q.mu.Lock()
					defer q.mu.Unlock()
					q.checkDeadlock(batch[ticket], next)
				})
			}
		}
		if err != nil {
			q.db.CountRetry(err)
		}
	}
}

// takeUnchecked takes some waits that are to be checked in one way, by their tickets.
func (q *Queue) takeUnchecked() (batch map[int64]*waiter, as check) {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch = map[int64]*waiter{}
	for w, is := range q.unchecked {
		if len(batch) == deadlockChecksMax || len(batch) > 0 && is != as {
			continue
		}
		delete(q.unchecked, w)
		if w.waits() && w.ticket > 0 {
			batch[w.ticket], as = w, is
		}
	}
	q.checking = len(batch) > 0
	return batch, as
}

// breakDeadlock refuses a wait if it is in a cycle. It returns how to check it again, if so, and after which pause. Each
// has a time of its own: many whose fences another session has locked must not use up that of the others.
func (q *Queue) breakDeadlock(w *waiter, ticket int64, as check) (next check, pause time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	result, cycle, err := q.db.BreakDeadlock(ctx, q.gateway, ticket, as == insist)
	switch {
	case err != nil:
		return as, deadlockRetryPause, err
	case result == store.DeadlockAgain:
		return as, deadlockAgainPause, nil
	case result == store.DeadlockYounger:
		return insist, deadlockInsistAfter, nil
	case result == store.DeadlockBroken:
		q.mu.Lock()
		defer q.mu.Unlock()
		w.lock.deliver(store.QueueResult{Ticket: ticket, RequestID: w.request.RequestID, Err: cycle})
	}
	return 0, 0, nil
}
