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

// start counts a batch in a lane where one may be started, and returns a worker for it, which the caller has to begin
// after it has unlocked the Group. It returns nil if there is no such lane. Filling a batch starts the next one.
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

// begin makes the worker fill a batch from the lane.
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
			g.execBatch(&w.batch, w.batch.rows)
			w.batch.endSpan()
			runtime.Gosched() // a caller that has its verdict, and another write, comes into the next batch
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
	return <-w.wake // it was woken at this moment
}

// fill takes the writes that are ready in the lane, up to the bounds of a batch. It sorts them by resource, as the
// database locks them.
func (g *Group) fill(b *batch, l *lane) {
	b.lane, b.ctx = l, g.ctx
	g.mu.Lock()
	l.begun = time.Now()
	for rq := l.pop(); rq != nil; rq = l.pop() {
		if rq.len == 0 {
			g.forget(rq)
			continue
		}
		if proper := g.laneOf(rq); proper != l {
			proper.push(rq)
			continue
		}
		alone := rq.alone || l.kind == laneLockWait
		if !b.fits(rq.head) || alone && b.count > 0 {
			l.pushFront(rq)
			break
		}
		g.take(b, rq)
		if b.count >= batchRowsMax || alone {
			break
		}
	}
	g.counted.count(b.count)
	l.rowsInFlight += b.count
	w, next := g.start()
	g.mu.Unlock()
	w.begin(g, next)
	slices.SortFunc(b.queues, func(x, y *resourceQueue) int {
		return strings.Compare(string(x.resource), string(y.resource))
	})
	for _, rq := range b.queues {
		for p := rq.inBatch; p != nil; p = p.next {
			b.rows = append(b.rows, p)
		}
	}
}

// takeOwn fills a batch with the only write that is ready in the lane, for its caller to decide.
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

// runOwn decides the only write of a caller's batch without a worker: a single caller does not pay for the hand-over.
// When ctx ends, the statement is canceled.
func (g *Group) runOwn(ctx context.Context, b *batch) {
	defer g.running.Done()
	b.ctx = ctx
	b.rows = append(b.rows, b.queues[0].inBatch)
	b.beginSpan(g.tracer)
	g.execBatch(b, b.rows)
	b.endSpan()
	g.settle(b, nil)
	ownBatches.Put(b)
}

var ownBatches = sync.Pool{New: func() any { return &batch{} }}

// take moves the oldest writes of a resource into the batch.
func (g *Group) take(b *batch, rq *resourceQueue) {
	rq.taken = true
	b.queues = append(b.queues, rq)
	end := &rq.inBatch
	for turn := 0; turn < batchTurnsMax && rq.head != nil && b.fits(rq.head); turn++ {
		p := rq.head
		g.remove(p)
		p.state = stateInBatch
		b.count++
		b.bytes += p.size
		*end, end = p, &p.next
	}
}

// settle returns the resources of a batch to their lanes. It returns the next lane of the worker, or nil if that is to
// wait. Without a worker, it starts another.
func (g *Group) settle(b *batch, w *worker) *lane {
	var failed []*pending
	why := errClosed
	g.mu.Lock()
	b.lane.inFlight--
	b.lane.rowsInFlight -= b.count
	g.counted.Busy += uint64(len(b.busy))
	if n := len(b.busy); n > 0 {
		g.db.CountBusy(n)
	}
	if b.took > 0 {
		b.lane.note(b.took)
	}
	for _, rq := range b.queues {
		g.setBusy(rq, rq.putOff && rq.locked)
		rq.alone = rq.putOff && !rq.locked
		rq.taken, rq.putOff, rq.locked, rq.inBatch = false, false, false, nil
	}
	for _, p := range slices.Backward(b.busy) {
		if g.closed {
			failed = append(failed, p)
		} else if !p.delivered.Load() {
			p.queue.pushFront(p)
			g.account(p.queue, 1, p.size)
		}
	}
	for _, rq := range b.queues {
		if rq.failed != nil {
			why = rq.failed
			failed = g.detach(rq, failed)
			rq.failed = nil
		}
		if rq.len == 0 {
			g.forget(rq)
		} else {
			g.laneOf(rq).push(rq)
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

// next returns the lane from which the worker takes its next batch: the same one, or else another. It returns nil, and
// adds the worker to the idle ones, if there is none.
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
