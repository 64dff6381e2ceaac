package groupcommit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/store"
)

// batch has writes that are decided in one commit. Its worker reuses it.
type batch struct {
	ctx    context.Context // of the statements
	span   trace.Span      // nil: none of the rows is traced
	lane   *lane
	queues []*resourceQueue
	rows   []*pending // sorted by resource, those to one resource in their order
	count  int        // of the rows
	bytes  int64
	busy   []*pending // rows that were put off
	writes store.WriteBatch

	took time.Duration // the last statement that succeeded; 0: none
}

// fits reports whether the write may be added: a batch has bounds, and the quick lane takes no large value.
func (b *batch) fits(p *pending) bool {
	switch {
	case b.lane.kind == laneQuick && p.size > largeBytes:
		return false
	case b.count == 0:
		return true
	}
	return b.count < batchRowsMax && b.bytes+p.size <= batchBytesMax
}

func (b *batch) reset() {
	clear(b.queues)
	clear(b.rows)
	clear(b.busy)
	b.writes.Reset()
	*b = batch{queues: b.queues[:0], rows: b.rows[:0], busy: b.busy[:0], writes: b.writes}
}

// execBatch decides rows in one commit and delivers their verdicts. Rows that waited too long for a lock of another
// session are put off. Where one row may be at fault, execBatch splits the rows in halves until that row is alone and
// gets the error for itself. Every row gets any other error, such as a statement timeout: another try would know no
// more than the caller's, and make all wait twice.
func (g *Group) execBatch(b *batch, rows []*pending) {
	err := g.execWrites(b, rows)
	switch {
	case err == nil:
	case errors.Is(err, store.ErrLocked) && b.lane.kind != laneLockWait:
		// Of several resources, each goes alone to find the one that is locked.
		several := rows[0].queue != rows[len(rows)-1].queue
		b.putOff(rows, !several)
	case errors.Is(err, store.ErrUnavailable):
		b.fail(rows, err)
	case len(rows) == 1:
		rows[0].deliver(store.Result{}, err)
	default:
		half := len(rows) / 2
		g.execBatch(b, rows[:half])
		if rest := b.without(rows[half:]); len(rest) > 0 {
			g.execBatch(b, rest)
		}
	}
}

// execWrites sends rows in one statement. If that is committed, it delivers their verdicts and returns nil.
func (g *Group) execWrites(b *batch, rows []*pending) error {
	b.writes.Reset()
	for _, p := range rows {
		b.writes.Add(&p.write, &p.digest)
	}
	ctx, cancel := context.WithTimeout(b.ctx, g.timeout)
	defer cancel()
	begun := time.Now()
	err := g.db.ExecWrites(ctx, &b.writes, b.lane.kind == laneLockWait)
	if err != nil {
		return err
	}
	b.took = time.Since(begun)
	g.commits[b.lane.kind].Add(b.took)
	for i, p := range rows {
		if b.writes.Busy(i) {
			b.putOff(rows[i:i+1], true)
		} else {
			p.deliver(b.writes.Result(i), nil)
		}
	}
	return nil
}

// fail delivers the error to rows that could not be decided. The writes behind them are not applied, see Group.settle.
func (b *batch) fail(rows []*pending, err error) {
	if b.span != nil {
		store.SpanFailed(b.span, err)
	}
	for _, p := range rows {
		p.queue.failed = err
		p.deliver(store.Result{}, err)
	}
}

// putOff returns rows to their queues. If another session certainly has locked what they need, they will wait for that.
func (b *batch) putOff(rows []*pending, locked bool) {
	for _, p := range rows {
		p.queue.putOff, p.queue.locked = true, locked
	}
	b.busy = append(b.busy, rows...)
}

// without takes out the first rows as long as an earlier row of their resource failed or was put off. It returns the
// rest.
func (b *batch) without(rows []*pending) []*pending {
	for len(rows) > 0 {
		switch rq := rows[0].queue; {
		case rq.failed != nil:
			rows[0].deliver(store.Result{}, store.NotApplied(rq.failed))
		case rq.putOff:
			b.putOff(rows[:1], rq.locked)
		default:
			return rows
		}
		rows = rows[1:]
	}
	return nil
}

// pending is a write without a verdict. Group.mu guards its state and its index in lists.
type pending struct {
	write  store.Write
	digest store.Digest
	size   int64
	span   trace.Span // of the write; nil: it is not traced

	state      state
	queue      *resourceQueue
	prev, next *pending // in the queue, or next in the batch

	delivered atomic.Bool // the one that sets it delivers the verdict
	result    store.Result
	err       error
	signal    chan struct{} // of Commit: result and err are there

	done func(store.Result, error) // of Submit
}

// state is where a write is.
type state uint8

const (
	stateNew     state = iota
	stateQueued        // in the queue of its resource
	stateInBatch       // in a batch in flight: it may have been sent
)

var pendings = sync.Pool{New: func() any { return &pending{signal: make(chan struct{}, 1)} }}

// newPending checks a write and digests it. It returns ErrInvalid, or ErrUnavailable where ctx has ended.
func newPending(ctx context.Context, write *store.Write) (*pending, error) {
	if err := write.Check(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, store.NotApplied(context.Cause(ctx))
	}
	p := pendings.Get().(*pending)
	p.write = *write
	p.size = int64(len(write.Resource) + len(write.Key) + len(write.ContentType) + len(write.Value))
	write.Digest(&p.digest)
	return p, nil
}

// traced notes the span of the write, if ctx has one.
func (p *pending) traced(ctx context.Context, tracer trace.Tracer) {
	if tracer != nil && trace.SpanFromContext(ctx).IsRecording() {
		p.span = trace.SpanFromContext(ctx)
	}
}

// recycle returns a write for reuse. No pointer to it may be left.
func (p *pending) recycle() {
	signal := p.signal
	*p = pending{signal: signal}
	pendings.Put(p)
}

// deliver hands the verdict to the caller, unless another was delivered before. After that, p belongs to the caller.
func (p *pending) deliver(result store.Result, err error) {
	if !p.delivered.CompareAndSwap(false, true) {
		return
	}
	if p.done == nil {
		p.result, p.err = result, err
		p.signal <- struct{}{}
		return
	}
	done := p.done
	p.recycle()
	done(result, err)
}

// batchLinksMax is how many of its writes the span of a batch links to.
const batchLinksMax = 64

var laneNames = [laneCount]string{laneQuick: "quick", laneLarge: "large", laneLockWait: "lock_wait"}

// beginSpan begins the span of a batch with traced writes. It belongs to the trace of the first of them, so that one
// trace leads from the request to the statement. It links to the others, and they link to it.
func (b *batch) beginSpan(tracer trace.Tracer) {
	if tracer == nil {
		return
	}
	var first trace.Span
	var links []trace.Link
	for _, p := range b.rows {
		if p.span == nil || len(links) == batchLinksMax {
			continue
		}
		if first == nil {
			first = p.span
		}
		links = append(links, trace.Link{SpanContext: p.span.SpanContext()})
	}
	if first == nil {
		return
	}
	b.ctx, b.span = tracer.Start(trace.ContextWithSpan(b.ctx, first), "write batch",
		trace.WithLinks(links...), trace.WithAttributes(
			attribute.Int("fencegate.batch.writes", len(b.rows)), attribute.Int64("fencegate.batch.bytes", b.bytes),
			attribute.String("fencegate.batch.lane", laneNames[b.lane.kind])))
	link := trace.Link{SpanContext: b.span.SpanContext()}
	for _, p := range b.rows {
		if p.span != nil && p.span != first {
			p.span.AddLink(link)
		}
	}
}

// endSpan ends the span, after the verdicts were delivered.
func (b *batch) endSpan() {
	if b.span == nil {
		return
	}
	if busy := len(b.busy); busy > 0 {
		b.span.SetAttributes(attribute.Int("fencegate.batch.busy", busy))
	}
	b.span.End()
}
