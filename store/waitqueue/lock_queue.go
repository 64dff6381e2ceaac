package waitqueue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// waiter is one caller, from its first acquire to its outcome. Queue.mu guards its state.
type waiter struct {
	request  store.AcquireRequest // several callers may have the same RequestID, and so share a ticket
	deadline time.Time

	ticket  int64         // 0: its acquire is in flight; see lockQueue.setTicket
	checked int64         // the ticket that was last checked for deadlocks
	leaving bool          // its time is over
	gone    bool          // no caller is left that could hold a lease
	outcome chan *outcome // of capacity 1

	// Used by the caller alone.
	lease       store.Lease // that it was granted, if it was
	mayBeQueued bool        // the database may have the request in the queue
}

// outcome is what became of a waiter.
type outcome struct {
	lease store.Lease
	err   error
	// takers counts the callers that the lease was delivered to and that have not left. Queue.mu guards it.
	takers *int
	// resend: the ticket may be lost; send the acquire again.
	resend bool
}

func newWaiter(request store.AcquireRequest) *waiter {
	return &waiter{request: request, deadline: time.Now().Add(request.Wait), outcome: make(chan *outcome, 1)}
}

// deliver hands the waiter an outcome. It replaces one that was not read yet, but a resend replaces nothing.
func (w *waiter) deliver(o *outcome) {
	select {
	case w.outcome <- o:
	default:
		if !o.resend {
			select {
			case <-w.outcome:
			default:
			}
			w.outcome <- o
		}
	}
}

// lockQueue has the callers of this process that wait for one lock. Queue.mu guards it.
type lockQueue struct {
	waiters   int
	byTicket  map[int64][]*waiter  // those with a ticket; nil before the first
	byRequest map[string][]*waiter // all
	tickets   ticketList           // those of byTicket, and some that are over
	nodes     ticketList           // those of waiters that are not for a subtree
	subtrees  int                  // waiters for a subtree

	sending  int           // waiters whose acquire is in flight
	missed   bool          // a notification came while one was in flight
	granting bool          // a grant is in flight, or due
	again    bool          // another grant is due after that
	pause    time.Duration // after the last grant, where that failed
	taken    []uuid.UUID   // leases that callers found by an acquire during the grant in flight, which may have made them
	timer    *time.Timer
	due      time.Time // of the timer
}

func newLockQueue() *lockQueue { return &lockQueue{byRequest: map[string][]*waiter{}} }

func (lq *lockQueue) add(w *waiter) {
	lq.waiters++
	lq.byRequest[w.request.RequestID] = append(lq.byRequest[w.request.RequestID], w)
	if w.request.Scope == store.Subtree {
		lq.subtrees++
	}
}

func (lq *lockQueue) remove(w *waiter) {
	lq.setTicket(w, 0)
	lq.waiters--
	removeFrom(lq.byRequest, w.request.RequestID, w)
	if w.request.Scope == store.Subtree {
		lq.subtrees--
	}
}

// setTicket gives a waiter its ticket; 0: none is known.
func (lq *lockQueue) setTicket(w *waiter, ticket int64) {
	if w.ticket > 0 {
		removeFrom(lq.byTicket, w.ticket, w)
	}
	w.ticket = ticket
	if ticket == 0 {
		return
	}
	if lq.byTicket == nil {
		lq.byTicket = map[int64][]*waiter{}
	}
	lq.byTicket[ticket] = append(lq.byTicket[ticket], w)
	lq.tickets.add(ticket, lq.inUse, len(lq.byTicket))
	if w.request.Scope != store.Subtree {
		lq.nodes.add(ticket, lq.inUse, len(lq.byTicket))
	}
}

// inUse reports whether a caller has the ticket.
func (lq *lockQueue) inUse(ticket int64) bool { return len(lq.byTicket[ticket]) > 0 }

func removeFrom[K comparable](index map[K][]*waiter, key K, w *waiter) {
	rest := slices.DeleteFunc(index[key], func(other *waiter) bool { return other == w })
	if len(rest) == 0 {
		delete(index, key)
	} else {
		index[key] = rest
	}
}

// first returns the lowest ticket, or the lowest one that is not for a subtree; 0: none.
func (lq *lockQueue) first(butSubtrees bool) int64 {
	tickets := &lq.tickets
	if butSubtrees {
		tickets = &lq.nodes
	}
	return tickets.first(lq.inUse)
}

// others reports whether another caller here sent the same request, and so wants the same ticket.
func (lq *lockQueue) others(w *waiter) bool {
	return slices.ContainsFunc(lq.byRequest[w.request.RequestID], func(other *waiter) bool {
		return other != w && !other.leaving
	})
}

// deliver hands the result to all callers that have the ticket. It reports whether a lease found an owner. A caller
// whose acquire is in flight does not know its ticket yet: it is found by its request.
func (lq *lockQueue) deliver(result store.QueueResult) bool {
	takers := 0
	end := &outcome{lease: result.Lease, err: result.Err, takers: &takers}
	for _, w := range lq.byTicket[result.Ticket] {
		if !w.gone {
			takers++
			w.deliver(end)
		}
	}
	for _, w := range lq.byRequest[result.RequestID] {
		if !w.gone && w.ticket != result.Ticket {
			takers++
			w.deliver(end)
		}
	}
	return takers > 0 || result.Err != nil || slices.Contains(lq.taken, result.Lease.ID)
}

// requeue makes the callers with the ticket send their acquires again.
func (lq *lockQueue) requeue(ticket int64) {
	for _, w := range lq.byTicket[ticket] {
		w.deliver(&outcome{resend: true})
	}
}

func (lq *lockQueue) requeueAll() {
	for ticket := range lq.byTicket {
		lq.requeue(ticket)
	}
}

// endedMin is how many tickets that are over a ticketList keeps in any case.
const endedMin = 64

// ticketList keeps tickets in order, each once. It does not learn which are over: it drops those when they come first,
// or when they are most.
type ticketList []int64

// add takes in a ticket that is in use, one of used. New tickets are the greatest, so it mostly appends.
func (l *ticketList) add(ticket int64, inUse func(int64) bool, used int) {
	if len(*l) > endedMin+2*used { // a ticket that is first for long must not keep all that came and went behind it
		*l = slices.DeleteFunc(*l, func(ticket int64) bool { return !inUse(ticket) })
	}
	if i, there := slices.BinarySearch(*l, ticket); !there {
		*l = slices.Insert(*l, i, ticket)
	}
}

// first returns the lowest ticket that is in use, or 0.
func (l *ticketList) first(inUse func(int64) bool) int64 {
	for len(*l) > 0 && !inUse((*l)[0]) {
		*l = (*l)[1:]
	}
	if len(*l) == 0 {
		return 0
	}
	return (*l)[0]
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
