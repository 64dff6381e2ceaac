package lockclient

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed says that the client is closed. It is the cause of the contexts that end with the client.
var ErrClosed = errors.New("the client is closed")

// background owns all goroutines of a client. None starts after stop, and stop waits for those that run.
type background struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	// mu keeps work from starting while stop waits.
	mu      sync.Mutex
	running sync.WaitGroup

	// validities end with the client.
	validities group
}

func (b *background) start() {
	b.ctx, b.cancel = context.WithCancelCause(context.Background())
}

// stop may be called again. A goroutine of the background must not call it.
func (b *background) stop() {
	b.mu.Lock()
	b.cancel(ErrClosed)
	b.mu.Unlock()
	b.validities.end(ErrClosed)
	b.running.Wait()
}

// run starts work, unless the client is closed. work must end soon after b.ctx.
func (b *background) run(work func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open() != nil {
		return false
	}
	b.running.Go(work)
	return true
}

// open returns ErrClosed after stop.
func (b *background) open() error { return context.Cause(b.ctx) }
