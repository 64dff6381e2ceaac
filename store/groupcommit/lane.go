package groupcommit

import "time"

// The lanes. Each has a bound of its own on its batches in flight, so that what is slow in one does not stall another.
const (
	laneQuick   = iota
	laneLarge   // streams whose next value is large
	lanePatient // streams whose fence somebody else had locked: their batches wait for it, each for one stream
	laneCount
)

const (
	// secondBatchRows is how many rows are worth a second batch, which costs about as much to begin with as ten rows do.
	secondBatchRows = 24
	// A batch is overdue when it takes so much, and so many times what is usual.
	overdueLeast, overdueTimes = 2 * time.Millisecond, 4
)

// lane is the streams that are ready to go into a batch, first come first served. It is guarded by Group.mu.
type lane struct {
	kind       int
	head, tail *stream
	rows       int // that wait in these streams
	max        int

	inFlight     int // batches
	rowsInFlight int
	begun        time.Time     // when the newest was started
	usual        time.Duration // that a batch takes, smoothed

	overdue *time.Timer // starts another batch when those in flight are overdue
	armed   bool        // overdue is to come
}

func (g *Group) openLanes() {
	patient := max(1, g.config.BatchesMax/4)
	large := max(1, g.config.BatchesMax/6)
	g.lanes[laneQuick] = lane{kind: laneQuick, max: g.config.BatchesMax - patient - large}
	g.lanes[laneLarge] = lane{kind: laneLarge, max: large}
	g.lanes[lanePatient] = lane{kind: lanePatient, max: patient}
	for i := range g.lanes {
		l := &g.lanes[i]
		l.overdue = time.AfterFunc(time.Hour, func() { g.startOverdue(l) })
		l.overdue.Stop()
	}
}

// startOverdue starts what waits behind a batch that is overdue, though nothing else happens.
func (g *Group) startOverdue(l *lane) {
	g.mu.Lock()
	l.armed = false
	w, next := g.start()
	g.mu.Unlock()
	w.begin(g, next)
}

// startable says whether a batch may be started now. Where that is a matter of time alone, it is looked at again then.
func (g *Group) startable(l *lane) bool {
	wait, waits := l.wait()
	if waits && wait > 0 && !l.armed {
		l.armed = true
		l.overdue.Reset(wait)
	}
	return waits && wait <= 0
}

// laneOf is the lane that the next write of a stream needs.
func (g *Group) laneOf(s *stream) *lane {
	switch {
	case s.busy:
		return &g.lanes[lanePatient]
	case s.head != nil && s.head.size > largeBytes:
		return &g.lanes[laneLarge]
	}
	return &g.lanes[laneQuick]
}

func (l *lane) push(s *stream) {
	s.ready = l
	if l.tail == nil {
		l.head = s
	} else {
		l.tail.next = s
	}
	l.tail = s
	l.rows += s.len
}

// pop returns nil if the lane is empty.
func (l *lane) pop() *stream {
	s := l.head
	if s == nil {
		return nil
	}
	l.head = s.next
	if l.head == nil {
		l.tail = nil
	}
	s.ready, s.next = nil, nil
	l.rows -= s.len
	return s
}

// pushFront puts a stream back that was the first.
func (l *lane) pushFront(s *stream) {
	s.ready = l
	s.next = l.head
	l.head = s
	if l.tail == nil {
		l.tail = s
	}
	l.rows += s.len
}

// wait says how long the next batch has to wait if nothing else happens: 0 where it may be started now, and false where it has to wait for
// something else. In the quick lane one always may where none is in flight, and then another should be worth
// its commit: a second one with as many rows as keep a second connection at work while the answers to the first are told, and half as many as
// are in flight, so that those who came a moment late don't go on apart from the others for ever; a further one with half of the most. One may
// be where those in flight take much longer than usual, too: then something holds them up that need not hold up the others.
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

// note takes in how long a batch took. One that waited for a lock is not taken for usual.
func (l *lane) note(took time.Duration) {
	if l.usual == 0 {
		l.usual = took
	}
	l.usual += (min(took, 8*l.usual) - l.usual) / 8
}
