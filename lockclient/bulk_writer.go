package lockclient

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	pipelineWindow    = 256
	pipelineWindowMax = 65536
	// pipelineBytes bounds the bytes of the writes without a verdict. A single larger write is sent alone.
	pipelineBytes = 16 << 20
)

var errPipelineClosed = errors.New("the pipeline is closed")

// BulkWriter sends lines of POST /v1/writes without waiting for each, and resends the lines without a verdict when the
// stream is cut. A line is an [api.BulkWrite] as JSON, with a token of its own. Use it to load data under leases that
// another program holds; under a lease of this program use [Lease.Pipeline]. It is safe for concurrent use.
//
// The gateway decides the lines in the order of Send. Each stands alone: a rejected line does not stop the lines after
// it. [OnResult] sets a function that gets the result of each.
//
// Number the writes (api.BulkWrite.Sequence): a numbered line is applied at most once, however often it is sent. See
// [Pipeline] for what is known of a line whose verdict was lost.
type BulkWriter struct {
	client *Client
	// lease is that of a Pipeline; nil otherwise.
	lease *Lease
	op    string

	window   int
	bytesMax int
	retry    RetryPolicy
	onResult func(BulkResult)

	// ctx ends with the caller's ctx, with the client, and by Close.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// adding is held while a write is added. ended is closed when the sending goroutine has ended.
	adding chan struct{}
	ended  chan struct{}
	once   sync.Once
	// storedBy caches the greatest sequence known to have stored a record. Only the sending goroutine uses it.
	storedBy map[storedRecord]int64

	mu sync.Mutex
	// work wakes the sender: there is something to send, or the writer is ending.
	work *sync.Cond
	// changed is closed, and replaced, when a write leaves the window.
	changed chan struct{}
	// first to last are the writes in the window, in order. held and bytes are their number and size.
	first, last *PendingWrite
	held, bytes int
	added       int64
	// writing is true while the lease's other writes wait for these.
	writing    bool
	closing    bool
	connection *bulkConnection
	failure    error // the first that no Flush has returned
}

// BulkResult is the result of one write of a [BulkWriter] or a [Pipeline].
type BulkResult struct {
	// Index counts the writes from 0, in the order in which they were added.
	Index int64
	// Verdict is the gateway's. Its Line is Index+1. Its Status is 0 if there is no verdict: then Err gives the reason.
	// Its Version is nil if the verdict was lost and the record shows that the write was applied.
	Verdict api.BulkVerdict
	// Err is nil if the write was applied. It matches [ErrOutcomeUnknown] if the write may have been applied.
	Err error
}

// PipelineOption configures a [Pipeline] or a [BulkWriter].
type PipelineOption func(*BulkWriter)

// PipelineWindow sets how many writes may be without a verdict: 1 to 65536, default 256. A gateway reads up to 1,024
// lines ahead.
func PipelineWindow(writes int) PipelineOption {
	return func(b *BulkWriter) { b.window = writes }
}

// PipelineBytes sets how many bytes the writes without a verdict may have together: at least 1, default 16 MiB. A
// single larger write is sent alone.
func PipelineBytes(limit int) PipelineOption {
	return func(b *BulkWriter) { b.bytesMax = limit }
}

// PipelineRetryFor sets for how long a pipeline reconnects without getting a verdict, before its writes fail. Default
// 30 s.
func PipelineRetryFor(limit time.Duration) PipelineOption {
	return func(b *BulkWriter) { b.retry.Within = limit }
}

// OnResult sets a function that is called with the result of each write, in the order of the writes, by one goroutine.
// Close returns after the last call. The function delays the writes after it, and must not call methods of the writer.
func OnResult(result func(BulkResult)) PipelineOption {
	return func(b *BulkWriter) { b.onResult = result }
}

// BulkWriter starts a BulkWriter. Close it: it runs in the background until Close, or until ctx or the client ends.
// Its unsent and unanswered writes fail then. It returns ErrInvalidRequest for an option out of its limits, and
// ErrClosed if the client is closed.
func (c *Client) BulkWriter(ctx context.Context, opts ...PipelineOption) (*BulkWriter, error) {
	return c.startBulk(ctx, nil, "bulk writer", opts)
}

func (c *Client) startBulk(ctx context.Context, lease *Lease, op string, opts []PipelineOption) (*BulkWriter, error) {
	b := &BulkWriter{
		client: c, lease: lease, op: op, window: pipelineWindow, bytesMax: pipelineBytes, retry: untilAnswered,
		adding: make(chan struct{}, 1), ended: make(chan struct{}), changed: make(chan struct{}),
	}
	for _, opt := range opts {
		opt(b)
	}
	switch {
	case b.window < 1 || b.window > pipelineWindowMax:
		return nil, refused("pipeline", api.CodeInvalidRequest,
			"the window is "+strconv.Itoa(b.window)+", it must be 1 to "+strconv.Itoa(pipelineWindowMax))
	case b.bytesMax < 1 || b.retry.Within <= 0:
		return nil, refused("pipeline", api.CodeInvalidRequest, "PipelineBytes and PipelineRetryFor must be positive")
	}
	b.work = sync.NewCond(&b.mu)
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	started := c.background.run(func() {
		defer close(b.ended)
		defer context.AfterFunc(c.background.ctx, func() { b.cancel(ErrClosed) })()
		defer context.AfterFunc(b.ctx, b.wake)()
		b.run()
	})
	if !started {
		b.cancel(ErrClosed)
		return nil, ErrClosed
	}
	return b, nil
}

// BulkLine is one line for [BulkWriter.Send].
type BulkLine struct {
	// JSON is an api.BulkWrite in one line, without a line feed. Send keeps the slice, and its spare capacity: don't use
	// them again. A malformed line gets its verdict from the gateway.
	JSON []byte
	// SentBefore says that an earlier run may have sent the same line, without getting its verdict.
	SentBefore bool
}

var errSentBefore = errors.New("an earlier run may have sent it")

// Send adds a line, and returns when there is room for it in the window, which is before it has a verdict. It returns
// ErrInvalidRequest for an empty line or one with a line feed, and if the writer is closed. If ctx or the writer ends
// first it returns ErrUnavailable, or an error that matches context.Canceled. The line was not sent then.
func (b *BulkWriter) Send(ctx context.Context, line BulkLine) error {
	w := &PendingWrite{op: "send a line", line: append(line.JSON, '\n')}
	if fault := lineFault(line.JSON); fault != "" {
		return refused(w.op, api.CodeInvalidRequest, fault)
	}
	if line.SentBefore {
		w.doubt = errSentBefore
	}
	return b.add(ctx, w)
}

// Flush waits until every write that was added before has its result. It returns the first error of a write that no
// Flush has returned before, or ctx's error.
func (b *BulkWriter) Flush(ctx context.Context) error {
	b.mu.Lock()
	last := b.last
	b.mu.Unlock()
	if last != nil {
		select {
		case <-last.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return b.takeFailure()
}

// Close waits until every write has its result, as Flush does, and ends the writer; none of its goroutines is left.
// Later writes are refused. It returns what Flush would. If no gateway answers, it takes as long as PipelineRetryFor
// says; cancel the writer's ctx to end it at once. It may be called again.
func (b *BulkWriter) Close() error {
	b.mu.Lock()
	b.closing = true
	b.work.Broadcast()
	b.mu.Unlock()
	<-b.ended
	b.once.Do(func() { b.cancel(errPipelineClosed) })
	return b.takeFailure()
}

func (b *BulkWriter) takeFailure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.failure
	b.failure = nil
	return err
}

func (b *BulkWriter) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.work.Broadcast()
}

// lineFault returns what keeps a line from being sent as one line; empty: nothing.
func lineFault(line []byte) string {
	switch {
	case len(bytes.TrimSpace(line)) == 0:
		return "the line is empty: it would have no verdict"
	case bytes.IndexByte(line, '\n') >= 0:
		return "the line has a line feed in it"
	}
	return ""
}

// add puts a write into the window, and numbers it if there is a lease.
func (b *BulkWriter) add(ctx context.Context, w *PendingWrite) error {
	w.done = make(chan struct{})
	if err := takeTurn(ctx, b.adding, w.op); err != nil {
		return err
	}
	defer endTurn(b.adding)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.awaitRoom(ctx, w); err != nil {
		b.letOthersWrite()
		return err
	}
	w.index = b.added
	b.added++
	if b.lease != nil {
		b.lease.sequence++
		w.sequence = b.lease.sequence
		w.line = append(strconv.AppendInt(w.line, w.sequence, 10), '}', '\n')
	}
	if b.last == nil {
		b.first = w
	} else {
		b.last.next = w
	}
	b.last = w
	b.held++
	b.bytes += len(w.line)
	if b.connection != nil && b.connection.cursor == nil {
		b.connection.cursor = w
	}
	b.work.Broadcast()
	return nil
}

// awaitRoom waits for room in the window, and makes the lease's other writes wait. b.mu is held, but not while it
// waits.
func (b *BulkWriter) awaitRoom(ctx context.Context, w *PendingWrite) error {
	for {
		switch err := b.refusal(); {
		case err != nil:
			return err
		case b.held >= b.window || b.held > 0 && b.bytes+len(w.line) > b.bytesMax:
			changed := b.changed
			b.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
				err = endedWith(ctx, notSent(w.op, "the window has no room", ctx.Err()), nil)
			}
			b.mu.Lock()
			if err != nil {
				return err
			}
		case b.lease != nil && !b.writing:
			// Only add sets it to true, and adding lets one add run at a time.
			b.mu.Unlock()
			err := takeTurn(ctx, b.lease.writing, w.op)
			b.mu.Lock()
			if err != nil {
				return err
			}
			b.writing = true
		default:
			return nil
		}
	}
}

// refusal returns why no more writes are taken; nil: they are. b.mu is held.
func (b *BulkWriter) refusal() error {
	switch {
	case b.closing:
		return refused("pipeline", api.CodeInvalidRequest, errPipelineClosed.Error())
	case b.lease != nil && b.lease.Err() != nil:
		return b.lease.Err()
	case b.ctx.Err() != nil:
		return endedWith(b.ctx, notSent("pipeline", "its ctx has ended", context.Cause(b.ctx)), nil)
	}
	return nil
}

// letOthersWrite lets the lease's other writes continue when the window is empty. b.mu is held.
func (b *BulkWriter) letOthersWrite() {
	if b.writing && b.held == 0 {
		b.writing = false
		endTurn(b.lease.writing)
	}
}

// settle gives a write its result. It leaves the window when all writes before it have theirs, too.
func (b *BulkWriter) settle(w *PendingWrite, verdict api.BulkVerdict, err error) {
	verdict.Line = w.index + 1
	b.mu.Lock()
	w.settled, w.verdict, w.err = true, verdict, err
	b.mu.Unlock()
	for {
		b.mu.Lock()
		front := b.first
		ready := front != nil && front.settled
		b.mu.Unlock()
		if !ready {
			return
		}
		if b.onResult != nil {
			b.onResult(BulkResult{Index: front.index, Verdict: front.verdict, Err: front.err})
		}
		b.remove(front)
	}
}

// remove takes the first write out of the window.
func (b *BulkWriter) remove(w *PendingWrite) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failure == nil {
		b.failure = w.err
	}
	b.held--
	b.bytes -= len(w.line)
	if b.connection != nil && b.connection.cursor == w {
		b.connection.cursor = w.next // it was settled by an earlier connection
	}
	// A caller that keeps the write must not keep the writes after it in memory.
	b.first, w.next, w.line = w.next, nil, nil
	if b.first == nil {
		b.last = nil
		b.work.Broadcast() // for Close
	}
	b.letOthersWrite()
	close(w.done)
	close(b.changed)
	b.changed = make(chan struct{})
}
