package groupcommit

import (
	"context"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/store"
)

// pending is a write without a verdict yet. Where it stands is guarded by Group.mu.
type pending struct {
	write  store.Write
	digest store.Digest
	size   int64
	span   trace.Span // of the write; nil: it is not traced

	stands     standing
	stream     *stream
	prev, next *pending // in the stream, or next in the batch

	answered atomic.Bool // that it gets a verdict is decided by who sets this
	result   store.Result
	err      error
	signal   chan struct{} // of Commit: result and err are there

	done func(store.Result, error) // of Submit
}

// standing is where a write stands.
type standing uint8

const (
	standsNowhere standing = iota
	standsQueued           // in its stream
	standsInBatch          // in a batch in flight: it may have been sent
)

var pendings = sync.Pool{New: func() any { return &pending{signal: make(chan struct{}, 1)} }}

// newPending checks a write and digests it. It returns store.ErrInvalid, or ErrUnavailable where the caller is gone.
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

// recycle is for a write that nobody has a pointer to any more.
func (p *pending) recycle() {
	signal := p.signal
	*p = pending{signal: signal}
	pendings.Put(p)
}

// answer tells the caller the verdict, unless he was told another before. p is the caller's after that.
func (p *pending) answer(result store.Result, err error) {
	if !p.answered.CompareAndSwap(false, true) {
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

// stream is the writes to one resource, in their order. It is guarded by Group.mu.
type stream struct {
	resource   store.Name
	head, tail *pending
	len        int
	bytes      int64

	ready *lane   // that it waits in for a batch
	next  *stream // in that lane
	taken bool    // some of its writes are in a batch in flight: the others wait for them
	busy  bool    // somebody else has locked its fence, or what else it needs: its next batch waits for that
	alone bool    // perhaps it is so: its next batch has nothing else in it

	// Of the worker that has the batch.
	inBatch *pending // the oldest of them
	failed  error    // why one of them could not be decided
	putOff  bool     // one of them was not decided, since something was locked by somebody else
	locked  bool     // and that is for certain what this stream needs
}

func (s *stream) push(p *pending) {
	p.stream, p.stands = s, standsQueued
	p.prev, p.next = s.tail, nil
	if s.tail == nil {
		s.head = p
	} else {
		s.tail.next = p
	}
	s.tail = p
	s.len++
}

// pushFront puts a write back that was the oldest.
func (s *stream) pushFront(p *pending) {
	p.stands = standsQueued
	p.prev, p.next = nil, s.head
	if s.head == nil {
		s.tail = p
	} else {
		s.head.prev = p
	}
	s.head = p
	s.len++
}

func (s *stream) remove(p *pending) {
	if p.prev == nil {
		s.head = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		s.tail = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
	p.stands = standsNowhere
	s.len--
}

// stream returns that of a resource.
func (g *Group) stream(resource store.Name) *stream {
	s := g.streams[resource]
	if s != nil {
		return s
	}
	if last := len(g.spare) - 1; last >= 0 {
		s = g.spare[last]
		g.spare = g.spare[:last]
	} else {
		s = &stream{}
	}
	s.resource = resource
	g.streams[resource] = s
	return s
}

// forget drops a stream in which nothing is left. Some are kept for use again.
func (g *Group) forget(s *stream) {
	delete(g.streams, s.resource)
	*s = stream{}
	if len(g.spare) < 4*batchRowsMax {
		g.spare = append(g.spare, s)
	}
}

// remove takes a write out that waits.
func (g *Group) remove(p *pending) {
	s := p.stream
	s.remove(p)
	if s.ready != nil {
		s.ready.rows--
	}
	g.account(s, -1, -p.size)
}

// account adds to what waits, after a write was put into the stream or taken out of it.
func (g *Group) account(s *stream, writes int, bytes int64) {
	s.bytes += bytes
	g.queued.add(writes, bytes)
	if s.busy {
		g.locked.add(writes, bytes)
	}
}

// setBusy notes whether somebody else has locked what the stream needs.
func (g *Group) setBusy(s *stream, busy bool) {
	switch {
	case busy && !s.busy:
		g.locked.add(s.len, s.bytes)
	case !busy && s.busy:
		g.locked.add(-s.len, -s.bytes)
	}
	s.busy = busy
}

// detach takes out all that wait in a stream.
func (g *Group) detach(s *stream, to []*pending) []*pending {
	for p := s.head; p != nil; p = s.head {
		g.remove(p)
		to = append(to, p)
	}
	return to
}
