package groupcommit

import "time"

// The lanes. Each has a bound of its own on its batches in flight, so that a slow one does not stall another.
const (
	laneQuick    = iota
	laneLarge    // resources whose next value is large
	laneLockWait // resources whose fence another session had locked: a batch has one of them and waits for it
	laneCount
)

const (
	// secondBatchRows is how many rows are worth a second batch, whose fixed cost is that of about ten rows.
	secondBatchRows = 24
	// A batch is overdue when it takes that time more, and so many times what is usual.
	overdueLeast, overdueTimes = 2 * time.Millisecond, 4
)

// lane has the resources that are ready for a batch, first come, first served. Group.mu guards it.
type lane struct {
	kind       int
	head, tail *resourceQueue
	rows       int // that wait in these queues
	max        int

	inFlight     int // batches
	rowsInFlight int
	begun        time.Time     // when the newest batch was started
	usual        time.Duration // time of a batch, smoothed

	overdue *time.Timer // starts another batch when those in flight are overdue
	armed   bool        // overdue is set
}

func (g *Group) openLanes() {
	lockWait := max(1, g.config.BatchesMax/4)
	large := max(1, g.config.BatchesMax/6)
	g.lanes[laneQuick] = lane{kind: laneQuick, max: g.config.BatchesMax - lockWait - large}
	g.lanes[laneLarge] = lane{kind: laneLarge, max: large}
	g.lanes[laneLockWait] = lane{kind: laneLockWait, max: lockWait}
	for i := range g.lanes {
		l := &g.lanes[i]
		l.overdue = time.AfterFunc(time.Hour, func() { g.startOverdue(l) })
		l.overdue.Stop()
	}
}

// startOverdue starts the batch that waits behind an overdue one.
func (g *Group) startOverdue(l *lane) {
	g.mu.Lock()
	l.armed = false
	w, next := g.start()
	g.mu.Unlock()
	w.begin(g, next)
}

// startable reports whether a batch may be started now. Where that is a matter of time alone, it sets the timer.
func (g *Group) startable(l *lane) bool {
	wait, waits := l.wait()
	if waits && wait > 0 && !l.armed {
		l.armed = true
		l.overdue.Reset(wait)
	}
	return waits && wait <= 0
}

// laneOf returns the lane that the next write to a resource needs.
func (g *Group) laneOf(rq *resourceQueue) *lane {
	switch {
	case rq.busy:
		return &g.lanes[laneLockWait]
	case rq.head != nil && rq.head.size > largeBytes:
		return &g.lanes[laneLarge]
	}
	return &g.lanes[laneQuick]
}

func (l *lane) push(rq *resourceQueue) {
	rq.ready = l
	if l.tail == nil {
		l.head = rq
	} else {
		l.tail.next = rq
	}
	l.tail = rq
	l.rows += rq.len
}

// pop returns nil if the lane is empty.
func (l *lane) pop() *resourceQueue {
	rq := l.head
	if rq == nil {
		return nil
	}
	l.head = rq.next
	if l.head == nil {
		l.tail = nil
	}
	rq.ready, rq.next = nil, nil
	l.rows -= rq.len
	return rq
}

// pushFront puts the first resource back.
func (l *lane) pushFront(rq *resourceQueue) {
	rq.ready = l
	rq.next = l.head
	l.head = rq
	if l.tail == nil {
		l.tail = rq
	}
	l.rows += rq.len
}

// wait returns how long the next batch has to wait if nothing else happens: 0 where it may be started now. It returns
// false where the batch has to wait for another one to end.
//
// In the quick lane the first batch may always be started. A further one has to be worth its commit. The second one
// needs secondBatchRows rows, which keep a second connection at work while the verdicts of the first are delivered, and
// half as many as are in flight, so that callers a moment late do not stay apart from the others for ever. The third
// needs half of batchRowsMax. A further one may also be started when those in flight are overdue: what blocks them need
// not block others.
func (l *lane) wait() (time.Duration, bool) {
	switch {
	case l.head == nil || l.inFlight >= l.max:
		return 0, false
	case l.inFlight == 0 || l.kind != laneQuick || l.rows >= batchRowsMax/2:
		return 0, true
	case l.inFlight == 1 && l.rows >= max(secondBatchRows, l.rowsInFlight/2):
		return 0, true
	}
	return overdueLeast + overdueTimes*l.usual - time.Since(l.begun), true
}

// note takes in the time of a batch. One that waited for a lock counts for little.
func (l *lane) note(took time.Duration) {
	if l.usual == 0 {
		l.usual = took
	}
	l.usual += (min(took, 8*l.usual) - l.usual) / 8
}
