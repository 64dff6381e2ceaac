package lockclient

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed says that the client was closed. It is the cause of the contexts that end by that.
var ErrClosed = errors.New("the client is closed")

// background owns all goroutines of a client: none is started after the end, and the end waits for those that run.
type background struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup

	// trusts are what ends with the client.
	trusts roster
}

func (b *background) start() {
	b.ctx, b.cancel = context.WithCancelCause(context.Background())
}

// stop may be called often. It must not be called by what runs in the background.
func (b *background) stop() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel(ErrClosed)
	b.trusts.end(ErrClosed)
	b.running.Wait()
}

// run starts work, unless the client is closed. The work must end soon after b.ctx does.
func (b *background) run(work func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.running.Go(work)
	return true
}

// open returns ErrClosed after the end.
func (b *background) open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	return nil
}
