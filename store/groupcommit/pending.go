package groupcommit

import (
	"context"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/store"
)

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
