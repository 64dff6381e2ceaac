package gateway

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// work returns the context of the work on a request. It outlives the client's connection: work that has begun is
// finished, and cutting off a statement would cost its connection to the database. It ends after the RequestTimeout (see
// sharedDeadline), or when the server ends. It has the span of the request, and no other values.
func (g *Gateway) work(r *http.Request) context.Context { return g.withSpan(g.deadline.context(), r) }

// sharedDeadline makes contexts that end after a timeout. Requests that begin within a sixteenth of the timeout share
// one, and have up to that much longer. A context for each request would cost as much as its answer.
type sharedDeadline struct {
	parent  context.Context
	timeout time.Duration
	newest  atomic.Pointer[deadlineContext]
}

type deadlineContext struct {
	context.Context

	cancel context.CancelFunc // called only if the context is not used
	until  time.Time          // requests that begin later need another context
}

// within sets the parent of the contexts and the timeout.
func (d *sharedDeadline) within(parent context.Context, timeout time.Duration) {
	d.parent, d.timeout = parent, timeout
}

// context returns the context of a request that begins now.
func (d *sharedDeadline) context() context.Context {
	now := time.Now()
	newest := d.newest.Load()
	if newest != nil && now.Before(newest.until) {
		return newest.Context
	}
	slice := d.timeout / 16
	ctx, cancel := context.WithTimeout(d.parent, d.timeout+slice)
	made := &deadlineContext{ctx, cancel, now.Add(slice)}
	if !d.newest.CompareAndSwap(newest, made) { // the other goroutine's is as good
		cancel()
		return d.newest.Load().Context
	}
	return ctx
}
