package waitqueue

import (
	"container/heap"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// queue is the part of one line.
type queue struct {
	waiters   map[*waiter]struct{}
	byTicket  map[int64][]*waiter  // those with a ticket; several have the same if they sent the same request
	byRequest map[string][]*waiter // all
	tickets   ticketHeap           // of byTicket, and some that are there no more
	nodes     ticketHeap           // those that are not for a subtree
	subtrees  int                  // waiters for a subtree

	asking   int  // how many of them have asked for a place and not yet got an answer
	missed   bool // a notification came while somebody was asking
	claiming bool
	pause    time.Duration // after the last claim, where that failed
	taken    []uuid.UUID   // leases that callers have found by asking, during the claim under way: it may have granted them
	again    bool          // another claim is due after the one under way
	timer    *time.Timer
	due      time.Time // of the timer
}

func newQueue() *queue {
	return &queue{waiters: map[*waiter]struct{}{}, byTicket: map[int64][]*waiter{}, byRequest: map[string][]*waiter{}}
}

func (q *queue) add(w *waiter) {
	q.waiters[w] = struct{}{}
	q.byRequest[w.request] = append(q.byRequest[w.request], w)
	if w.subtree {
		q.subtrees++
	}
}

func (q *queue) remove(w *waiter) {
	q.setTicket(w, 0)
	delete(q.waiters, w)
	removeFrom(q.byRequest, w.request, w)
	if w.subtree {
		q.subtrees--
	}
}

// setTicket gives a waiter its place; 0: it has none that is known.
func (q *queue) setTicket(w *waiter, ticket int64) {
	if w.ticket > 0 {
		removeFrom(q.byTicket, w.ticket, w)
	}
	w.ticket = ticket
	if ticket == 0 {
		return
	}
	q.byTicket[ticket] = append(q.byTicket[ticket], w)
	q.tickets.add(ticket, q.inUse, len(q.byTicket))
	if !w.subtree {
		q.nodes.add(ticket, q.inUse, len(q.byTicket))
	}
}

// inUse reports whether a caller has the ticket.
func (q *queue) inUse(ticket int64) bool { return len(q.byTicket[ticket]) > 0 }

func removeFrom[K comparable](index map[K][]*waiter, key K, w *waiter) {
	rest := slices.DeleteFunc(index[key], func(other *waiter) bool { return other == w })
	if len(rest) == 0 {
		delete(index, key)
	} else {
		index[key] = rest
	}
}

// first is the ticket of the first place that is known, or of the first one that is not for a subtree; 0: none.
func (q *queue) first(butSubtrees bool) int64 {
	tickets := &q.tickets
	if butSubtrees {
		tickets = &q.nodes
	}
	return tickets.first(q.inUse)
}

// others reports whether another caller here wants the same place, since it sent the same request.
func (q *queue) others(w *waiter) bool {
	return slices.ContainsFunc(q.byRequest[w.request], func(other *waiter) bool { return other != w && !other.leaving })
}

// tell hands all callers whose place it was what became of it, and reports whether a lease has found its owner. A caller who asks for
// his place at this moment does not know its ticket yet: it is by the request that it is his.
func (q *queue) tell(result store.QueueResult) bool {
	takers := 0
	news := told{lease: result.Lease, err: result.Err, takers: &takers}
	for _, w := range q.byTicket[result.Ticket] {
		if !w.gone {
			takers++
			w.tell(news)
		}
	}
	for _, w := range q.byRequest[result.RequestID] {
		if !w.gone && w.ticket != result.Ticket {
			takers++
			w.tell(news)
		}
	}
	return takers > 0 || result.Err != nil || slices.Contains(q.taken, result.Lease.ID)
}

func (q *queue) askAgain() {
	for ticket := range q.byTicket {
		q.askAgainFor(ticket)
	}
}

func (q *queue) askAgainFor(ticket int64) {
	for _, w := range q.byTicket[ticket] {
		w.tell(told{again: true})
	}
}

// ticketHeap keeps tickets in order, each once. What has become of them is not known here: those that are over are dropped when they come first,
// or when they are most.
type ticketHeap struct {
	order  int64Heap
	queued map[int64]struct{}
}

// add takes in a ticket that is in use, of so many.
func (h *ticketHeap) add(ticket int64, inUse func(int64) bool, used int) {
	if _, there := h.queued[ticket]; there {
		return
	}
	if len(h.order) > ticketsOverMin+2*used { // who stands first for long must not keep all that came and went behind it
		h.order = slices.DeleteFunc(h.order, func(ticket int64) bool { return !inUse(ticket) })
		heap.Init(&h.order)
		h.queued = map[int64]struct{}{}
		for _, ticket := range h.order {
			h.queued[ticket] = struct{}{}
		}
	}
	if h.queued == nil {
		h.queued = map[int64]struct{}{}
	}
	h.queued[ticket] = struct{}{}
	heap.Push(&h.order, ticket)
}

// ticketsOverMin is how many tickets that are over are kept in any case.
const ticketsOverMin = 64

// first returns the lowest ticket that is still in use, or 0.
func (h *ticketHeap) first(inUse func(int64) bool) int64 {
	for len(h.order) > 0 && !inUse(h.order[0]) {
		delete(h.queued, h.order[0])
		heap.Pop(&h.order)
	}
	if len(h.order) == 0 {
		return 0
	}
	return h.order[0]
}

// int64Heap is a heap.Interface.
type int64Heap []int64

func (h int64Heap) Len() int           { return len(h) }
func (h int64Heap) Less(i, j int) bool { return h[i] < h[j] }
func (h int64Heap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *int64Heap) Push(x any)        { *h = append(*h, x.(int64)) }
func (h *int64Heap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
