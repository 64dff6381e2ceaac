package gateway

import (
	"context"
	"sync/atomic"
	"time"
)

// sharedDeadline makes contexts that end after a time, one for all requests that begin within a sixteenth of it: such a request has up to
// so much longer. A context of each request's own would cost as much as its answer.
type sharedDeadline struct {
	parent context.Context
	time   time.Duration
	newest atomic.Pointer[deadlineContext]
}

type deadlineContext struct {
	context.Context

	cancel context.CancelFunc // only by the parent and by time
	until  time.Time          // who begins after that needs another
}

// within sets what the contexts descend from, and the time.
func (d *sharedDeadline) within(parent context.Context, time time.Duration) {
	d.parent, d.time = parent, time
}

// context returns one for a request that begins now.
func (d *sharedDeadline) context() context.Context {
	now := time.Now()
	newest := d.newest.Load()
	if newest != nil && now.Before(newest.until) {
		return newest.Context
	}
	slice := d.time / 16
	ctx, cancel := context.WithTimeout(d.parent, d.time+slice)
	made := &deadlineContext{ctx, cancel, now.Add(slice)}
	if !d.newest.CompareAndSwap(newest, made) { // another is as good
		cancel()
		return d.newest.Load().Context
	}
	return ctx
}
