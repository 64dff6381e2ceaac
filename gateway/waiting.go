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
	// errClientGone says that there is nobody to answer any more.
	errClientGone = errors.New("the client is gone")
	// errDraining says that the gateway was told to end while somebody waited.
	errDraining = errors.New("the gateway is ending")
)

// attended is a context that ends when the client has gone, and for errDraining when the gateway is told to end. It is for waiting alone,
// never for a statement: that would be cut off.
func (g *Gateway) attended(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(g.draining, func() { end(errDraining) })
	go watchHangUp(ctx, r, g.hangUpInterval, func() { end(nil) })
	return ctx, func() {
		stop()
		end(nil)
	}
}

// grant acquires a lock. A try is work like any other. Whoever waits stands in line as long as it is there to hear of the grant.
func (g *Gateway) grant(w http.ResponseWriter, r *http.Request, request store.AcquireRequest) (store.Lease, error) {
	begun := time.Now()
	lease, err := g.tryOrWait(w, r, request)
	g.metrics.acquired(request, lease, time.Since(begun), err)
	return lease, err
}

func (g *Gateway) tryOrWait(w http.ResponseWriter, r *http.Request, request store.AcquireRequest) (store.Lease, error) {
	if request.Wait == 0 {
		ctx, cancel := g.work(r)
		defer cancel()
		return g.backend.Acquire(ctx, request)
	}
	freeBody(w) // whoever sends much beside the request must not keep it from others for as long as it waits
	g.metrics.waiting.Inc()
	defer g.metrics.waiting.Dec()
	bound := request.Wait + g.config.RequestTimeout
	// Fails where the connection is gone, which the context tells, and in tests without one.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bound + g.answerTimeout))
	ctx, cancel := g.attended(r)
	defer cancel()
	ctx, cancelBound := context.WithTimeout(ctx, bound)
	defer cancelBound()
	lease, err := g.backend.Acquire(ctx, request)
	return lease, leftTheLine(ctx, err)
}

// leftTheLine says why an acquire has left the line, if it has because ctx ended. Nothing was granted then, or it was given back, unless
// the database went away meanwhile.
func leftTheLine(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case err == nil, cause == nil, !errors.Is(err, cause):
		return err
	case errors.Is(cause, context.Canceled):
		return fmt.Errorf("%w: %w", errClientGone, err)
	case errors.Is(err, store.ErrUnavailable):
		return &store.UnavailableError{Outcome: store.OutcomeUnknown, Err: err}
	case errors.Is(cause, errDraining):
		return busy("The gateway is ending, and nothing was granted. Send the acquire again, to any gateway.")
	}
	return &store.UnavailableError{Outcome: store.OutcomeNotApplied, Err: err}
}
