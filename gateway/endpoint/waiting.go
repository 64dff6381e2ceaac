package endpoint

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	// ErrClientGone says that the client has left: it gets no answer.
	ErrClientGone = errors.New("the client has left")
	// ErrDraining says that the gateway began to shut down while a request waited.
	ErrDraining = errors.New("the gateway is shutting down")
)

// Attended returns a context that ends when the client leaves, for errDraining when the gateway shuts down, and for an
// *api.Problem when the credential has ended. It is for waiting only: a statement with it would be cut off.
func (s *Server) Attended(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(s.Draining, func() { end(ErrDraining) })
	go s.watchClient(ctx, r, end)
	return ctx, func() {
		stop()
		end(nil)
	}
}

// hangUpInterval is how often the connection and the credential of a client that waits are checked.
const hangUpInterval = time.Second

// watchClient ends the wait of a client over HTTP/1.1 that has closed its connection, or its half of it, and of any
// client whose credential has ended. It returns when ctx ends.
//
// net/http reads one byte ahead while a handler runs, so it notices the end of a connection, but not an end after
// another byte: the next request of a client that pipelines, or an empty line. The gateway can't read instead of
// net/http without taking over the connection. So it reads the state of the socket from the kernel, which consumes
// no byte. A half-closed connection counts as closed, as it does for net/http: a FIN does not show which of the two it
// is. Over HTTP/2 the connection is read all the time, so nothing is to be done.
func (s *Server) watchClient(ctx context.Context, r *http.Request, end context.CancelCauseFunc) {
	socket := socketOf(r)
	if socket == nil && s.Auth == nil {
		return
	}
	ticker := time.NewTicker(s.HangUpInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if socket != nil && isHungUp(socket) {
			end(nil)
		} else if err := s.StillAccepted(r); err != nil {
			end(err)
		}
	}
}

// socketOf returns the socket of a request over HTTP/1.1, otherwise nil.
func socketOf(r *http.Request) syscall.RawConn {
	connection := connectionOf(r)
	if connection == nil || r.ProtoMajor != 1 {
		return nil
	}
	accepted, ok := connection.socket.(syscall.Conn)
	if !ok {
		return nil
	}
	socket, err := accepted.SyscallConn()
	if err != nil {
		return nil
	}
	return socket
}

// Work returns the context of the work on a request. It outlives the client's connection: work that has begun is
// finished, and cutting off a statement would cost its connection to the database. It ends after the RequestTimeout (see
// sharedDeadline), or when the server ends. It has the span of the request, and no other values.
func (s *Server) Work(r *http.Request) context.Context { return s.withSpan(s.deadline.context(), r) }

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

// Within sets the parent of the contexts and the timeout.
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

// EndWork ends the work that is under way.
func (s *Server) EndWork() {
	if work := s.deadline.newest.Swap(nil); work != nil {
		work.cancel()
	}
}
