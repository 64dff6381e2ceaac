package waitqueue

import (
	"context"
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
// cycle, and its gateway finds it at once, unless it could not see the earlier one when it searched. A variable, for tests: on a busy machine
// it may find it later.
var deadlockInsistAfter = 500 * time.Millisecond

// deadlocks has the waits of this process that are to be checked for cycles. A wait is checked when it is committed,
// and when it counts again: the last wait of a cycle sees all others (fence.find_deadlocks). Queue.mu guards it.
type deadlocks struct {
	pending  map[int64]deadlockCheck // by ticket
	checking bool
}

type deadlockCheck struct {
	lock   store.Name
	begun  bool // the wait has just begun, and no check of it has failed
	insist bool // the wait is refused even if there is a later one in the cycle
}

// checkDeadlock searches for a cycle through a wait, in the background. The caller has locked the Queue.
func (q *Queue) checkDeadlock(ticket int64, check deadlockCheck) {
	if q.deadlocks.pending == nil {
		q.deadlocks.pending = map[int64]deadlockCheck{}
	}
	q.deadlocks.pending[ticket] = check
	if !q.deadlocks.checking {
		q.deadlocks.checking = true
		go q.checkDeadlocks()
	}
}

// checkAllForDeadlocks follows a time in which the database considered this process dead: its waits count again.
func (q *Queue) checkAllForDeadlocks() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for lock, lq := range q.locks {
		for ticket := range lq.byTicket {
			q.checkDeadlock(ticket, deadlockCheck{lock: lock})
		}
	}
}

// checkDeadlocks works until nothing is pending. Waits that come meanwhile are checked together.
func (q *Queue) checkDeadlocks() {
	for {
		batch := q.takePending()
		if len(batch) == 0 {
			return
		}
		if err := q.checkBatch(batch); err != nil {
			q.db.CountRetry(err)
			time.Sleep(deadlockRetryPause)
			q.putBack(batch)
		}
	}
}

// takePending takes some of the pending checks, if their waiters are still here.
func (q *Queue) takePending() map[int64]deadlockCheck {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch := map[int64]deadlockCheck{}
	for ticket, check := range q.deadlocks.pending {
		if len(batch) == deadlockChecksMax {
			break
		}
		delete(q.deadlocks.pending, ticket)
		if lq := q.locks[check.lock]; lq != nil && lq.inUse(ticket) {
			batch[ticket] = check
		}
	}
	q.deadlocks.checking = len(batch) > 0
	return batch
}

func (q *Queue) putBack(batch map[int64]deadlockCheck) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ticket, check := range batch {
		if _, newer := q.deadlocks.pending[ticket]; !newer {
			check.begun = false
			q.checkDeadlock(ticket, check)
		}
	}
}

// checkBatch removes the checks that are done from the batch.
func (q *Queue) checkBatch(batch map[int64]deadlockCheck) error {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	found, err := q.findDeadlocks(ctx, batch)
	if err != nil {
		return err
	}
	for ticket := range batch {
		if !slices.Contains(found, ticket) {
			delete(batch, ticket)
		}
	}
	for _, ticket := range slices.Backward(found) { // the last first: it is the one to be refused
		// Each has a time of its own: many whose fences another session has locked must not use up that of the others.
		breaking, cancel := context.WithTimeout(context.Background(), statementTimeout)
		err := q.breakDeadlock(breaking, ticket, batch[ticket])
		cancel()
		if err != nil {
			return err
		}
		delete(batch, ticket)
	}
	return nil
}

// findDeadlocks returns those of the tickets whose waits are in a cycle, in their order.
func (q *Queue) findDeadlocks(ctx context.Context, batch map[int64]deadlockCheck) (found []int64, err error) {
	tickets := map[bool][]int64{} // by whether the wait has just begun
	for ticket, check := range batch {
		tickets[check.begun] = append(tickets[check.begun], ticket)
	}
	for begun, of := range tickets {
		some, err := q.db.FindDeadlocks(ctx, of, begun)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	slices.Sort(found)
	return found, nil
}

// breakDeadlock refuses the wait with the ticket if it is in a cycle.
func (q *Queue) breakDeadlock(ctx context.Context, ticket int64, check deadlockCheck) error {
	result, cycle, err := q.db.BreakDeadlock(ctx, q.gateway, ticket, check.insist)
	if err != nil {
		return err
	}
	switch result {
	case store.DeadlockBroken:
		q.mu.Lock()
		defer q.mu.Unlock()
		if lq := q.locks[check.lock]; lq != nil {
			lq.deliver(store.QueueResult{Ticket: ticket, Done: true, Err: cycle})
		}
	case store.DeadlockAgain:
		q.checkLater(ticket, check, deadlockAgainPause)
	case store.DeadlockYounger:
		check.insist = true
		q.checkLater(ticket, check, deadlockInsistAfter)
	}
	return nil
}

func (q *Queue) checkLater(ticket int64, check deadlockCheck, in time.Duration) {
	time.AfterFunc(in, func() { q.putBack(map[int64]deadlockCheck{ticket: check}) })
}
