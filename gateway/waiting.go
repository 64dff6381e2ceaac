package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

var (
	// errClientGone says that the client has left: it gets no answer.
	errClientGone = errors.New("the client has left")
	// errDraining says that the gateway began to shut down while a request waited.
	errDraining = errors.New("the gateway is shutting down")
)

// attended returns a context that ends when the client leaves, for errDraining when the gateway shuts down, and for an
// *api.Problem when the credential has ended. It is for waiting only: a statement with it would be cut off.
func (g *Gateway) attended(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(g.draining, func() { end(errDraining) })
	go g.watchClient(ctx, r, end)
	return ctx, func() {
		stop()
		end(nil)
	}
}

// grant acquires a lock and counts the acquire. ctx is for a try; an acquire that waits has a context of its own.
func (g *Gateway) grant(
	ctx context.Context, w *answerWriter, r *http.Request, request store.AcquireRequest,
) (lease store.Lease, err error) {
	begun := time.Now()
	request.Principal = recorded(w.principal)
	switch err = g.checkLeases(request.Principal); {
	case err != nil:
	case request.Wait == 0:
		lease, err = g.backend.Acquire(ctx, request)
	default:
		lease, err = g.acquireWaiting(w, r, request)
	}
	g.metrics.Acquired(request, lease, time.Since(begun), err)
	return lease, redacted(w.principal, err)
}

// acquireWaiting acquires a lock and waits in its queue, as long as the client is connected.
func (g *Gateway) acquireWaiting(
	w *answerWriter, r *http.Request, request store.AcquireRequest,
) (store.Lease, error) {
	defer g.waiting.Add(-1)
	if g.waiting.Add(1) > shareOf(g.config.WaitingMax, w.principal, access.Lock) {
		return store.Lease{}, busy("This gateway has as many acquires that wait as it may (--waiting-max). " +
			"Nothing was changed: try again, or another gateway.")
	}
	defer w.caller.Waiting.Leave()
	if err := g.enter(&w.caller.Waiting, metrics.LimitWaiting,
		"as many acquires that wait as one caller may (--caller-waiting-max)"); err != nil {
		return store.Lease{}, err
	}
	w.share.free() // a wait must not keep a large body's share of the budget from others
	g.metrics.Waiting.Inc()
	defer g.metrics.Waiting.Dec()
	ctx := &lazyContext{before: r.Context(), begin: func() (context.Context, context.CancelFunc) {
		return g.beginWaiting(w, r, request.Wait+g.config.RequestTimeout)
	}}
	defer ctx.end()
	lease, err := g.backend.Acquire(ctx, request)
	if err != nil {
		return lease, leftQueue(ctx, err)
	}
	if err := g.stillAccepted(r); err != nil { // the credential has ended meanwhile
		ref := store.LeaseRef{Lock: lease.Lock, OwnerID: lease.OwnerID, ID: lease.ID, Token: lease.Token}
		return store.Lease{}, errors.Join(err, g.releaseLease(g.work(r), ref))
	}
	return lease, nil
}

// beginWaiting returns the context of a request that waits for at most the bound, and gives its answer time until then.
func (g *Gateway) beginWaiting(
	w *answerWriter, r *http.Request, bound time.Duration,
) (context.Context, context.CancelFunc) {
	// Fails where the connection is gone, which ends the context, and in tests without a connection.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bound + g.answerTimeout))
	ctx, cancel := g.attended(r)
	ctx, cancelBound := context.WithTimeout(ctx, bound)
	return ctx, func() {
		cancelBound()
		cancel()
	}
}

// leftQueue returns why an acquire left the queue, if it left because ctx ended. Nothing was granted then, or it was
// released again, unless the database became unreachable meanwhile.
func leftQueue(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case err == nil, cause == nil, !errors.Is(err, cause):
		return err
	case errors.Is(cause, context.Canceled):
		return fmt.Errorf("%w: %w", errClientGone, err)
	case errors.Is(err, store.ErrUnavailable):
		// Not err itself: the cause may be an answer, which would hide the outcome.
		return &store.UnavailableError{Outcome: store.OutcomeUnknown, Err: errors.New(err.Error())}
	case errors.Is(cause, errDraining):
		return busy("The gateway is shutting down, and nothing was granted. Send the acquire again, to any gateway.")
	case codeOf(cause) == api.CodeUnauthenticated:
		return cause
	}
	return store.NotApplied(err)
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
func (g *Gateway) watchClient(ctx context.Context, r *http.Request, end context.CancelCauseFunc) {
	socket := socketOf(r)
	if socket == nil && g.config.Auth == nil {
		return
	}
	ticker := time.NewTicker(g.hangUpInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if socket != nil && isHungUp(socket) {
			end(nil)
		} else if err := g.stillAccepted(r); err != nil {
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
