package waitqueue

import (
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
