package lockclient

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/fencegate/fencegate/gateway/api"
)

const (
	pipelineWindow    = 256
	pipelineWindowMax = 65536
	// pipelineBytesMax bounds the bytes of the writes that have no verdict; a single larger one may be under way alone.
	pipelineBytesMax = 16 << 20
)

// Pipeline sends many writes of one lease without waiting for each: up to its window are under way at a time. They share one stream
// to a gateway, and are numbered in the order of the calls of Put and Delete, in which they are also decided. It is safe for concurrent use.
//
// Each write stands alone: one that is refused, for a precondition or for its data, does not stop those after it.
//
// # What is lost on the way
//
// When the stream is cut, the pipeline opens another, to the next gateway if need be, and sends again, with the same numbers, all writes that
// have no verdict. None is applied twice. But a fence remembers the content of its last accepted write only: of the writes before that
// it can tell no more than that a later one was accepted. Then [PendingWrite.Wait] returns:
//
//   - For a put without a precondition, success if the record was stored by this put or a later one of the same lease; the pipeline reads
//     that. The result has Replayed set and Version 0, which is not known any more.
//   - Otherwise ErrTokenStale and [ErrOutcomeUnknown]. The write may have been refused, for its data or under a policy that was changed
//     since, and the answer lost. Read the record if you need to know.
//
// # Its end
//
// When the lease is lost, Put and Delete return ErrLeaseLost; what was sent before still gets its verdict. When no gateway gives one for some
// 30 seconds, all writes under way fail with ErrUnavailable, and ErrOutcomeUnknown where they may have been applied. They are settled by the
// next write of this lease to the same resource that is admitted: from then on each was applied before it, or never will be.
type Pipeline struct {
	lease  *Lease
	window int

	// ctx is the pipeline's life: the caller's, the client's, and until it is closed.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// adding is held by who adds a write, and numbers it. ended is closed when nothing runs any more.
	adding chan struct{}
	ended  chan struct{}
	once   sync.Once

	mu sync.Mutex
	// work wakes who sends: there is something to send, or the end has come.
	work *sync.Cond
	// changed is closed when a write was settled, for those who wait for that.
	changed chan struct{}
	// first to last are the writes that have no verdict, by their numbers; settled ones may stand between them.
	first, last *PendingWrite
	held        int
	bytes       int
	// writing says that the lease's other writes wait for these.
	writing bool
	closing bool
	link    *pipelineLink
	failure error // the first that no Flush has returned
}

// PipelineOption changes how a Pipeline is made.
type PipelineOption func(*Pipeline)

// PipelineWindow sets how many writes may be under way: 1 to 65536, default 256. A gateway reads up to 1,024 lines ahead.
func PipelineWindow(writes int) PipelineOption {
	return func(p *Pipeline) { p.window = writes }
}

// Pipeline begins to send many writes without waiting for each. Close it: it runs in the background until then, or until ctx or the client
// ends; then what is under way fails with ErrUnavailable, and ErrOutcomeUnknown where it was sent.
//
// While it has writes under way, the lease's other writes wait: after Flush they may go. It returns ErrInvalidRequest for a window out of
// its limits, ErrClosed if the client was closed, and what Lease.Err says if the lease has ended.
func (l *Lease) Pipeline(ctx context.Context, opts ...PipelineOption) (*Pipeline, error) {
	p := &Pipeline{
		lease: l, window: pipelineWindow, adding: make(chan struct{}, 1), ended: make(chan struct{}), changed: make(chan struct{}),
	}
	for _, opt := range opts {
		opt(p)
	}
	if p.window < 1 || p.window > pipelineWindowMax {
		return nil, refused("pipeline", api.CodeInvalidRequest, "the window is "+strconv.Itoa(p.window)+", it must be 1 to "+strconv.Itoa(pipelineWindowMax))
	}
	if err := l.Err(); err != nil {
		return nil, err
	}
	p.work = sync.NewCond(&p.mu)
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	started := l.client.background.run(func() {
		defer close(p.ended)
		defer context.AfterFunc(l.client.background.ctx, func() { p.cancel(ErrClosed) })()
		defer context.AfterFunc(p.ctx, p.wake)()
		p.run()
	})
	if !started {
		p.cancel(ErrClosed)
		return nil, ErrClosed
	}
	return p, nil
}

// Put sends a record of the lease's resource, as Lease.Put does, and returns when there is room for it in the window: before there is a
// verdict. The value is read before Put returns.
//
// It returns ErrInvalidRequest or ErrInvalidName for what could not arrive as it is; ErrLeaseLost, ErrLeaseReleased or ErrClosed if the lease has
// ended; ErrUnavailable if ctx ended before there was room. Nothing was sent by then, and no number used.
func (p *Pipeline) Put(ctx context.Context, key string, value []byte, opts ...WriteOption) (*PendingWrite, error) {
	config := p.lease.writeConfig(opts)
	return p.add(ctx, &PendingWrite{op: "put " + config.resource + " " + key, key: key, config: config, put: true}, value)
}

// PutJSON sends a value as application/json. It is otherwise like Put.
func (p *Pipeline) PutJSON(ctx context.Context, key string, value any, opts ...WriteOption) (*PendingWrite, error) {
	text, err := jsonBody("put "+p.lease.granted.Lock+" "+key, value)
	if err != nil {
		return nil, err
	}
	opts = append([]WriteOption{WithContentType("application/json")}, opts...)
	return p.Put(ctx, key, []byte(strings.TrimSuffix(string(text), "\n")), opts...)
}

// Delete sends a removal of a record, as Put sends a record. Its verdict is ErrNotFound if there is none.
func (p *Pipeline) Delete(ctx context.Context, key string, opts ...WriteOption) (*PendingWrite, error) {
	config := p.lease.writeConfig(opts)
	op := "delete " + config.resource + " " + key
	if config.ifAbsent || config.contentType != "" {
		return nil, refused(op, api.CodeInvalidRequest, "IfAbsent and WithContentType are options of a put")
	}
	return p.add(ctx, &PendingWrite{op: op, key: key, config: config}, nil)
}

// Flush waits until every write that was sent before has its verdict. It returns the first error of a write that no Flush has returned
// before, or why it did not wait: ctx's end. Ask each PendingWrite for its own.
func (p *Pipeline) Flush(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last
	for last != nil && !last.settled {
		if err := p.awaitChange(ctx); err != nil {
			return err
		}
	}
	err := p.failure
	p.failure = nil
	return err
}

// awaitChange waits until a write was settled, or ctx ends. p.mu is held, but not while it waits.
func (p *Pipeline) awaitChange(ctx context.Context) error {
	changed := p.changed
	p.mu.Unlock()
	defer p.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close waits until every write that was sent has its verdict, as Flush does, and ends the pipeline: no goroutine of it is left. Later
// writes are refused. It returns what Flush would. Where the gateways are away it takes some 30 seconds; end the Pipeline's ctx to
// give up at once. It may be called again.
func (p *Pipeline) Close() error {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	p.wake()
	<-p.ended
	p.once.Do(func() { p.cancel(errPipelineClosed) })
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.failure
	p.failure = nil
	return err
}

func (p *Pipeline) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.work.Broadcast()
}
