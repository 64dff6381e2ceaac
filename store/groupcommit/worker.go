package groupcommit

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// workerIdle is how long a worker waits for work before it ends.
const workerIdle = 5 * time.Second

// worker is a goroutine that decides one batch after the other, and then waits for more.
type worker struct {
	wake  chan *lane // closed when the Group is
	timer *time.Timer
	batch batch
}

// start takes a place in a lane where a batch may be started, and a worker for it, whom the caller has to begin after he has unlocked.
// It returns nil if there is no such lane. One more start follows from every batch that is filled.
func (g *Group) start() (*worker, *lane) {
	for i := range g.lanes {
		if l := &g.lanes[i]; !g.closed && g.startable(l) {
			l.inFlight++
			if last := len(g.idle) - 1; last >= 0 {
				w := g.idle[last]
				g.idle = g.idle[:last]
				return w, l
			}
			g.running.Add(1)
			return &worker{}, l
		}
	}
	return nil, nil
}

// begin has the worker fill a batch from the lane.
func (w *worker) begin(g *Group, l *lane) {
	switch {
	case w == nil:
	case w.wake == nil:
		w.wake = make(chan *lane, 1)
		go w.run(g, l)
	default:
		w.wake <- l
	}
}

func (w *worker) run(g *Group, l *lane) {
	defer g.running.Done()
	for l != nil {
		g.fill(&w.batch, l)
		if len(w.batch.rows) > 0 {
			w.batch.beginSpan(g.tracer)
			g.decide(&w.batch, w.batch.rows)
			w.batch.endSpan()
			runtime.Gosched() // who has just been told, and has another write, comes into the next batch
		}
		l = g.settle(&w.batch, w)
		if l == nil {
			l = w.await(g)
		}
	}
}

// await returns the lane of the next batch, or nil when the worker is to end.
func (w *worker) await(g *Group) *lane {
	if w.timer == nil {
		w.timer = time.NewTimer(workerIdle)
	} else {
		w.timer.Reset(workerIdle)
	}
	select {
	case l := <-w.wake:
		w.timer.Stop()
		return l
	case <-w.timer.C:
	}
	g.mu.Lock()
	i := slices.Index(g.idle, w)
	if i >= 0 {
		g.idle = slices.Delete(g.idle, i, i+1)
	}
	g.mu.Unlock()
	if i >= 0 {
		return nil
	}
	return <-w.wake // it was woken in this moment
}

// fill takes what is ready in the lane, within the bounds of a batch, and sorts it by resource, as the database locks it.
func (g *Group) fill(b *batch, l *lane) {
	b.lane, b.ctx = l, context.Background()
	g.mu.Lock()
	l.begun = time.Now()
	for s := l.pop(); s != nil; s = l.pop() {
		if s.len == 0 {
			g.forget(s)
			continue
		}
		if proper := g.laneOf(s); proper != l {
			proper.push(s)
			continue
		}
		alone := s.alone || l.kind == lanePatient
		if !b.fits(s.head) || alone && b.count > 0 {
			l.pushFront(s)
			break
		}
		g.take(b, s)
		if b.count >= batchRowsMax || alone {
			break
		}
	}
	g.counted.count(b.count)
	l.rowsInFlight += b.count
	w, next := g.start()
	g.mu.Unlock()
	w.begin(g, next)
	slices.SortFunc(b.streams, func(x, y *stream) int { return strings.Compare(string(x.resource), string(y.resource)) })
	for _, s := range b.streams {
		for p := s.inBatch; p != nil; p = p.next {
			b.rows = append(b.rows, p)
		}
	}
}

// takeOwn fills a batch with the only write that is ready in the lane, for its caller to run.
func (g *Group) takeOwn(l *lane) *batch {
	b := ownBatches.Get().(*batch)
	b.lane = l
	l.begun = time.Now()
	l.inFlight++
	g.take(b, l.pop())
	g.counted.count(b.count)
	l.rowsInFlight += b.count
	g.running.Add(1)
	return b
}

// runOwn decides the only write of a caller's batch, without a worker: who is alone does not pay for the hand-over. When ctx ends, the statement
// is given up.
func (g *Group) runOwn(ctx context.Context, b *batch) {
	defer g.running.Done()
	b.ctx = ctx
	b.rows = append(b.rows, b.streams[0].inBatch)
	b.beginSpan(g.tracer)
	g.decide(b, b.rows)
	b.endSpan()
	g.settle(b, nil)
	ownBatches.Put(b)
}

var ownBatches = sync.Pool{New: func() any { return &batch{} }}

// take moves the oldest writes of a stream into the batch.
func (g *Group) take(b *batch, s *stream) {
	s.taken = true
	b.streams = append(b.streams, s)
	end := &s.inBatch
	for turn := 0; turn < batchTurnsMax && s.head != nil && b.fits(s.head); turn++ {
		p := s.head
		g.remove(p)
		p.stands = standsInBatch
		b.count++
		b.bytes += p.size
		*end, end = p, &p.next
	}
}

// settle gives the streams of a batch back to their lanes, and the worker his next lane, or nil if he is to wait. Without a worker, another
// goes on.
func (g *Group) settle(b *batch, w *worker) *lane {
	var failed []*pending
	why := errClosed
	g.mu.Lock()
	b.lane.inFlight--
	b.lane.rowsInFlight -= b.count
	g.counted.Busy += uint64(len(b.busy))
	if n := len(b.busy); n > 0 {
		g.store.CountBusy(n)
	}
	if b.took > 0 {
		b.lane.note(b.took)
	}
	for _, s := range b.streams {
		g.setBusy(s, s.putOff && s.locked)
		s.alone = s.putOff && !s.locked
		s.taken, s.putOff, s.locked, s.inBatch = false, false, false, nil
	}
	for _, p := range slices.Backward(b.busy) {
		if g.closed {
			failed = append(failed, p)
		} else if !p.answered.Load() {
			g.putBack(p)
		}
	}
	for _, s := range b.streams {
		if s.failed != nil {
			why = s.failed
			failed = g.detach(s, failed)
			s.failed = nil
		}
		if s.len == 0 {
			g.forget(s)
		} else {
			g.laneOf(s).push(s)
		}
	}
	var next *lane
	if w != nil {
		next = g.next(w, b.lane)
		g.mu.Unlock()
	} else {
		another, l := g.start()
		g.mu.Unlock()
		another.begin(g, l)
	}
	b.reset()
	fail(failed, why)
	return next
}

// next returns the lane from which the worker takes his next batch: the one that he has been in, or else another; or nil, and then he
// is among the idle.
func (g *Group) next(w *worker, last *lane) *lane {
	if g.closed {
		close(w.wake)
		return nil
	}
	if g.startable(last) {
		last.inFlight++
		return last
	}
	for i := range g.lanes {
		if l := &g.lanes[i]; g.startable(l) {
			l.inFlight++
			return l
		}
	}
	g.idle = append(g.idle, w)
	return nil
}

// putBack lets a write wait again, before all others of its stream.
func (g *Group) putBack(p *pending) {
	p.stream.pushFront(p)
	g.account(p.stream, 1, p.size)
}
