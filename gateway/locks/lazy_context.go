package locks

import (
	"context"
	"sync"
	"time"
)

// lazyContext is a context that starts at the first call of Deadline, Done or Err. Most acquires with a wait_ms are
// granted at once and never call them. Watching a client costs a timer and several contexts.
type lazyContext struct {
	before context.Context // has the values until it begins
	begin  func(waiting) (context.Context, context.CancelFunc)
	of     waiting

	mu     sync.Mutex
	begun  context.Context // nil: it has not begun
	cancel context.CancelFunc
}

// endedContext is what a lazyContext is after its end if it has not begun.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (c *lazyContext) started() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun == nil {
		c.begun, c.cancel = c.begin(c.of)
	}
	return c.begun
}

// end ends the context. If it has not begun, it will not.
func (c *lazyContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun == nil {
		c.begun, c.cancel = endedContext, func() {}
	}
	c.cancel()
}

// Deadline begins the context, and so do Done and Err.
func (c *lazyContext) Deadline() (time.Time, bool) { return c.started().Deadline() }

// Done is closed when the context ends.
func (c *lazyContext) Done() <-chan struct{} { return c.started().Done() }

// Err is nil until the context ends.
func (c *lazyContext) Err() error { return c.started().Err() }

// Value does not begin the context.
func (c *lazyContext) Value(key any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun == nil {
		return c.before.Value(key)
	}
	return c.begun.Value(key)
}
