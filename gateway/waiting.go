package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/store"
)

var (
	// errClientGone says that the client has left, so that there is nobody to answer.
	errClientGone = errors.New("the client has left")
	// errDraining says that the gateway began to shut down while a request waited.
	errDraining = errors.New("the gateway is shutting down")
)

// attended returns a context that ends when the client leaves, and for errDraining when the gateway shuts down. It is
// for waiting only: a statement with it would be cut off.
func (g *Gateway) attended(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(g.draining, func() { end(errDraining) })
	go watchHangUp(ctx, r, g.hangUpInterval, func() { end(nil) })
	return ctx, func() {
		stop()
		end(nil)
	}
}

// grant acquires a lock and counts the acquire. ctx is for a try; an acquire that waits has a context of its own.
func (g *Gateway) grant(
	ctx context.Context, w http.ResponseWriter, r *http.Request, request store.AcquireRequest,
) (lease store.Lease, err error) {
	begun := time.Now()
	if request.Wait == 0 {
		lease, err = g.backend.Acquire(ctx, request)
	} else {
		lease, err = g.acquireWaiting(w, r, request)
	}
	g.metrics.Acquired(request, lease, time.Since(begun), err)
	return lease, err
}

// acquireWaiting acquires a lock and waits in its queue, as long as the client is connected.
func (g *Gateway) acquireWaiting(
	w http.ResponseWriter, r *http.Request, request store.AcquireRequest,
) (store.Lease, error) {
	freeBody(w) // a wait must not keep a large body's share of the budget from others
	g.metrics.Waiting.Inc()
	defer g.metrics.Waiting.Dec()
	bound := request.Wait + g.config.RequestTimeout
	// Fails where the connection is gone, which ends the context, and in tests without a connection.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bound + g.answerTimeout))
	ctx, cancel := g.attended(r)
	defer cancel()
	ctx, cancelBound := context.WithTimeout(ctx, bound)
	defer cancelBound()
	lease, err := g.backend.Acquire(ctx, request)
	return lease, leftQueue(ctx, err)
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
		return &store.UnavailableError{Outcome: store.OutcomeUnknown, Err: err}
	case errors.Is(cause, errDraining):
		return busy("The gateway is shutting down, and nothing was granted. Send the acquire again, to any gateway.")
	}
	return &store.UnavailableError{Outcome: store.OutcomeNotApplied, Err: err}
}
