package groupcommit

import "github.com/fencegate/fencegate/store"

// resourceQueue has the writes to one resource that wait, in their order. Group.mu guards it.
type resourceQueue struct {
	resource   store.Name
	head, tail *pending
	len        int
	bytes      int64

	ready *lane          // the lane in which it waits for a batch
	next  *resourceQueue // in that lane
	taken bool           // some of its writes are in a batch in flight: the others wait for them
	busy  bool           // another session has locked its fence: its next batch waits for that
	alone bool           // that may be so: its next batch has nothing else in it

	// Used by the worker that has the batch.
	inBatch *pending // the oldest of them
	failed  error    // why one of them could not be decided
	putOff  bool     // one of them was not decided: another session has locked something
	locked  bool     // and that is certainly what this resource needs
}

func (rq *resourceQueue) push(p *pending) {
	p.queue, p.state = rq, stateQueued
	p.prev, p.next = rq.tail, nil
	if rq.tail == nil {
		rq.head = p
	} else {
		rq.tail.next = p
	}
	rq.tail = p
	rq.len++
}

// pushFront puts the oldest write back.
func (rq *resourceQueue) pushFront(p *pending) {
	p.state = stateQueued
	p.prev, p.next = nil, rq.head
	if rq.head == nil {
		rq.tail = p
	} else {
		rq.head.prev = p
	}
	rq.head = p
	rq.len++
}

func (rq *resourceQueue) remove(p *pending) {
	if p.prev == nil {
		rq.head = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		rq.tail = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
	p.state = stateNew
	rq.len--
}

// queueOf returns the queue of a resource.
func (g *Group) queueOf(resource store.Name) *resourceQueue {
	rq := g.resources[resource]
	if rq != nil {
		return rq
	}
	if last := len(g.spare) - 1; last >= 0 {
		rq = g.spare[last]
		g.spare = g.spare[:last]
	} else {
		rq = &resourceQueue{}
	}
	rq.resource = resource
	g.resources[resource] = rq
	return rq
}

// forget drops an empty queue. Some are kept for reuse.
func (g *Group) forget(rq *resourceQueue) {
	delete(g.resources, rq.resource)
	*rq = resourceQueue{}
	if len(g.spare) < 4*batchRowsMax {
		g.spare = append(g.spare, rq)
	}
}

// remove takes out a write that waits.
func (g *Group) remove(p *pending) {
	rq := p.queue
	rq.remove(p)
	if rq.ready != nil {
		rq.ready.rows--
	}
	g.account(rq, -1, -p.size)
}

// account adds to the load that waits, after a write was put into the queue or taken out.
func (g *Group) account(rq *resourceQueue, writes int, bytes int64) {
	rq.bytes += bytes
	g.queued.add(writes, bytes)
	if rq.busy {
		g.locked.add(writes, bytes)
	}
}

// setBusy notes whether another session has locked what the resource needs.
func (g *Group) setBusy(rq *resourceQueue, busy bool) {
	switch {
	case busy && !rq.busy:
		g.locked.add(rq.len, rq.bytes)
	case !busy && rq.busy:
		g.locked.add(-rq.len, -rq.bytes)
	}
	rq.busy = busy
}

// detach takes out all writes of a queue.
func (g *Group) detach(rq *resourceQueue, to []*pending) []*pending {
	for p := rq.head; p != nil; p = rq.head {
		g.remove(p)
		to = append(to, p)
	}
	return to
}
