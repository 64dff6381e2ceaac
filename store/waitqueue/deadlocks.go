package waitqueue

import (
	"context"
	"slices"
	"time"

	"github.com/fencegate/fencegate/store"
)

const (
	// deadlockChecksMax is how many waits one statement looks for cycles through.
	deadlockChecksMax = 1000
	// deadlockRetryPause is the pause after a statement that failed.
	deadlockRetryPause = 200 * time.Millisecond
	// deadlockCheckAgain is the pause before what another search is at work on is looked at again.
	deadlockCheckAgain = 20 * time.Millisecond
	// deadlockInsistAfter is how long a wait in a cycle leaves it to a later one to be refused. The later one closed the cycle, and its gateway
	// finds it at once; but not if it could not see the earlier one when it looked.
	deadlockInsistAfter = 500 * time.Millisecond
)

// deadlocks are the waits of this process that are to be looked at for cycles. A wait is looked at once it is committed, and again when
// it counts anew: of the waits of a cycle the one that came last sees all others (fence.find_deadlocks). line.mu guards it.
type deadlocks struct {
	pending  map[int64]deadlockCheck
	checking bool
}

// deadlockCheck is about one ticket.
type deadlockCheck struct {
	lock   store.Name
	insist bool // it is refused, though there is a later wait in the cycle
}

// checkDeadlock looks for a cycle through a wait in the background. The caller has locked the line.
func (l *Queue) checkDeadlock(ticket int64, check deadlockCheck) {
	if l.deadlocks.pending == nil {
		l.deadlocks.pending = map[int64]deadlockCheck{}
	}
	l.deadlocks.pending[ticket] = check
	if !l.deadlocks.checking {
		l.deadlocks.checking = true
		go l.checkDeadlocks()
	}
}

// checkAllForDeadlocks follows a time in which the database took this process for dead: its waits count again.
func (l *Queue) checkAllForDeadlocks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for lock, q := range l.queues {
		for ticket := range q.byTicket {
			l.checkDeadlock(ticket, deadlockCheck{lock: lock})
		}
	}
}

// checkDeadlocks works until nothing is pending. What comes meanwhile is looked at together.
func (l *Queue) checkDeadlocks() {
	for {
		batch := l.nextDeadlockChecks()
		if len(batch) == 0 {
			return
		}
		if err := l.checkBatch(batch); err != nil {
			l.store.CountRetry(err)
			time.Sleep(deadlockRetryPause)
			l.putBack(batch)
		}
	}
}

// nextDeadlockChecks takes some of what is pending, if the waiters are still there.
func (l *Queue) nextDeadlockChecks() map[int64]deadlockCheck {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := map[int64]deadlockCheck{}
	for ticket, check := range l.deadlocks.pending {
		if len(batch) == deadlockChecksMax {
			break
		}
		delete(l.deadlocks.pending, ticket)
		if l.waits(check.lock, ticket) {
			batch[ticket] = check
		}
	}
	l.deadlocks.checking = len(batch) > 0
	return batch
}

// waits reports whether a caller here has the ticket. The caller has locked the line.
func (l *Queue) waits(lock store.Name, ticket int64) bool {
	q := l.queues[lock]
	return q != nil && len(q.byTicket[ticket]) > 0
}

func (l *Queue) putBack(batch map[int64]deadlockCheck) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ticket, check := range batch {
		if _, newer := l.deadlocks.pending[ticket]; !newer {
			l.checkDeadlock(ticket, check)
		}
	}
}

// checkBatch removes from the batch what it is done with.
func (l *Queue) checkBatch(batch map[int64]deadlockCheck) error {
	ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
	defer cancel()
	tickets := make([]int64, 0, len(batch))
	for ticket := range batch {
		tickets = append(tickets, ticket)
	}
	slices.Sort(tickets)
	found, err := l.store.FindDeadlocks(ctx, tickets)
	if err != nil {
		return err
	}
	for _, ticket := range tickets {
		if !slices.Contains(found, ticket) {
			delete(batch, ticket)
		}
	}
	for _, ticket := range slices.Backward(found) { // the last first: it is to be refused
		// Each has a time of its own: many whose fences somebody else has locked must not use up that of the others.
		breaking, cancel := context.WithTimeout(context.Background(), claimTimeout)
		err := l.breakDeadlock(breaking, ticket, batch[ticket])
		cancel()
		if err != nil {
			return err
		}
		delete(batch, ticket)
	}
	return nil
}

// breakDeadlock refuses the wait with the ticket if it is in a cycle.
func (l *Queue) breakDeadlock(ctx context.Context, ticket int64, check deadlockCheck) error {
	outcome, cycle, err := l.store.BreakDeadlock(ctx, l.gateway, ticket, check.insist)
	if err != nil {
		return err
	}
	switch outcome {
	case store.DeadlockBroken:
		l.mu.Lock()
		defer l.mu.Unlock()
		if q := l.queues[check.lock]; q != nil {
			q.tell(store.QueueResult{Ticket: ticket, Done: true, Err: cycle})
		}
	case store.DeadlockAgain:
		l.checkLater(ticket, check, deadlockCheckAgain)
	case store.DeadlockYounger:
		check.insist = true
		l.checkLater(ticket, check, deadlockInsistAfter)
	}
	return nil
}

func (l *Queue) checkLater(ticket int64, check deadlockCheck, in time.Duration) {
	time.AfterFunc(in, func() { l.putBack(map[int64]deadlockCheck{ticket: check}) })
}
