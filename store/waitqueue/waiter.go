package waitqueue

import (
	"slices"
	"time"

	"github.com/fencegate/fencegate/store"
)

// state is what a waiter does; see the package comment.
type state int

const (
	sending state = iota + 1
	again
	queued
	leaving
	granted
	refused
	gone
)

// event is what happens to a waiter; see the package comment.
type event int

const (
	onSend event = iota
	onTicket
	onGrant
	onRefusal
	onLost
	onTimeUp
	onLeave
	events
)

// transitions is the table of the package comment. What is not there changes nothing.
var transitions = [...][events]state{
	sending: {onTicket: queued, onGrant: granted, onRefusal: again, onLost: again, onLeave: gone},
	again:   {onSend: sending, onTicket: sending, onGrant: granted, onLeave: gone},
	queued:  {onGrant: granted, onRefusal: refused, onLost: sending, onTimeUp: leaving, onLeave: gone},
	leaving: {onGrant: granted, onLeave: gone},
	granted: {onLeave: gone},
	gone:    {},
}

// waiter is one caller, from its first acquire to its outcome. Queue.mu guards all but its request and what is said to
// be the caller's.
type waiter struct {
	request  store.AcquireRequest // several callers may have the same RequestID, and so share a ticket
	deadline time.Time
	lock     *lockQueue

	state   state
	ticket  int64         // the last that is known; 0: none
	lease   *grant        // where it was granted
	refusal error         // where it was refused
	woken   chan struct{} // is closed when it is not queued any more; the caller's; nil before the first ticket

	mayBeQueued bool // the database may have the request in the queue; the caller's
}

// grant is a lease that was granted to a request.
type grant struct {
	store.Lease
	takers int // callers that it was delivered to and that have not left
}

// apply changes the state as the table says. It reports whether that changed.
func (w *waiter) apply(e event) bool {
	to := transitions[w.state][e]
	if to == 0 {
		return false
	}
	switch queued {
	case to:
		w.woken = make(chan struct{})
	case w.state:
		close(w.woken)
	}
	w.state = to
	return true
}

// waits reports whether the caller still wants its ticket.
func (w *waiter) waits() bool { return w.state == sending || w.state == again || w.state == queued }

// take makes the waiter one of those that a lease is granted to. Another owner's with the same request_id is not: the
// database refuses its acquire.
func (w *waiter) take(g *grant) {
	if w.request.OwnerID == g.OwnerID && w.request.Principal == g.Principal && w.apply(onGrant) {
		w.lease = g
		g.takers++
	}
}

// lockQueue has the callers of this process that wait for one lock. Queue.mu guards it.
type lockQueue struct {
	name     store.Name
	key      lockKey
	waiters  map[string][]*waiter // by request_id
	subtrees int                  // waiters for a subtree

	granting bool          // a grant is in flight, or the pause after it
	due      bool          // another grant is due after that
	pause    time.Duration // after the last grant, where that failed
	timer    *time.Timer   // of the next grant; nil: not set
	timerAt  time.Time
	polled   int // the round of polls in which it was last looked at
}

// deliver gives the callers with the request the outcome of their wait. It reports whether a lease found one.
func (lq *lockQueue) deliver(result store.QueueResult) bool {
	lease := &grant{Lease: result.Lease}
	for _, w := range lq.waiters[result.RequestID] {
		switch {
		case result.Err == nil:
			w.take(lease)
		case w.state == queued && w.ticket != result.Ticket: // it has a newer one
		case w.apply(onRefusal):
			w.refusal = result.Err
		}
	}
	return result.Err != nil || lease.takers > 0
}

// lose makes the callers with the request send their acquires again.
func (lq *lockQueue) lose(requestID string) {
	for _, w := range lq.waiters[requestID] {
		w.apply(onLost)
	}
}

func (lq *lockQueue) loseAll() {
	for requestID := range lq.waiters {
		lq.lose(requestID)
	}
}

// wanted reports whether a caller waits with the request.
func (lq *lockQueue) wanted(requestID string) bool {
	return lq != nil && slices.ContainsFunc(lq.waiters[requestID], (*waiter).waits)
}

// first returns the waiter with the lowest ticket, and if that is for a subtree, the one with the lowest ticket that is not.
func (lq *lockQueue) first() (first, node *waiter) {
	for _, same := range lq.waiters {
		for _, w := range same {
			switch {
			case w.state != queued:
				continue
			case first == nil || w.ticket < first.ticket:
				first = w
			}
			if w.request.Scope == store.Node && (node == nil || w.ticket < node.ticket) {
				node = w
			}
		}
	}
	if first == node {
		node = nil
	}
	return first, node
}

// join adds a caller. Grants to its request are its own from now on, until quit.
func (q *Queue) join(request store.AcquireRequest) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := q.keyOf(request.Lock)
	lq := q.locks[key]
	if lq == nil {
		lq = &lockQueue{name: request.Lock, key: key, waiters: map[string][]*waiter{}}
		q.locks[key] = lq
	}
	w := &waiter{request: request, deadline: time.Now().Add(request.Wait), lock: lq, state: sending}
	lq.waiters[request.RequestID] = append(lq.waiters[request.RequestID], w)
	q.count++
	if request.Scope == store.Subtree {
		lq.subtrees++
	}
	return w
}

// quit removes a caller, and stores the lease that it was granted, if any.
func (q *Queue) quit(w *waiter, lease *store.Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lq, requestID := w.lock, w.request.RequestID
	lq.waiters[requestID] = slices.DeleteFunc(lq.waiters[requestID], func(other *waiter) bool { return other == w })
	if len(lq.waiters[requestID]) == 0 {
		delete(lq.waiters, requestID)
	}
	q.count--
	if w.request.Scope == store.Subtree {
		lq.subtrees--
	}
	*lease = store.Lease{}
	if w.state == granted {
		*lease = w.lease.Lease
	}
	q.dropIfEmpty(lq)
}

// dropIfEmpty forgets a lock for which no caller waits. The caller has locked the Queue.
func (q *Queue) dropIfEmpty(lq *lockQueue) {
	if len(lq.waiters) > 0 || lq.granting {
		return
	}
	delete(q.locks, lq.key)
	if lq.timer != nil {
		lq.timer.Stop()
	}
}
