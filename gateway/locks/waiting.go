package locks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// Grant acquires a lock and counts the acquire. ctx is for a try; an acquire that waits has a context of its own.
func (e *Endpoints) Grant(
	ctx context.Context, w *endpoint.Answer, r *http.Request, request *store.AcquireRequest,
) (*store.Lease, error) {
	begun := time.Now()
	request.Principal = endpoint.NameOf(w.Principal)
	lease := &store.Lease{}
	err := e.checkLeases(request.Principal)
	switch {
	case err != nil:
	case request.Wait == 0:
		err = e.service.Acquire(ctx, request, lease)
	default:
		err = e.acquireWaiting(w, r, request, lease)
	}
	e.Metrics.Acquired(request, lease, time.Since(begun), err)
	return lease, endpoint.Redacted(w.Principal, err)
}

// acquireWaiting acquires a lock and waits in its queue, as long as the client is connected.
func (e *Endpoints) acquireWaiting(
	w *endpoint.Answer, r *http.Request, request *store.AcquireRequest, lease *store.Lease,
) error {
	if e.Staying().Err() != nil {
		return endpoint.Busy(refusedDraining)
	}
	defer e.waiting.Add(-1)
	if e.waiting.Add(1) > endpoint.ShareOf(e.config.WaitingMax, w.Principal, access.Lock) {
		return endpoint.Busy("This gateway has as many acquires that wait as it may (--waiting-max). " +
			"Nothing was changed: try again, or another gateway.")
	}
	defer w.Caller.Waiting.Leave()
	if err := e.Enter(&w.Caller.Waiting, metrics.LimitWaiting,
		"as many acquires that wait as one caller may (--caller-waiting-max)"); err != nil {
		return err
	}
	w.Share.Free() // a wait must not keep a large body's share of the budget from others
	e.Metrics.Waiting.Inc()
	defer e.Metrics.Waiting.Dec()
	ctx := &lazyContext{before: r.Context(), begin: waiting.begin, of: waiting{e, w, r, request.Wait + e.RequestTimeout}}
	defer ctx.end()
	if err := e.service.Acquire(ctx, request, lease); err != nil {
		return leftQueue(ctx, err)
	}
	if err := e.StillAccepted(r); err != nil { // the credential has ended meanwhile
		return errors.Join(err, e.takeBack(r, lease))
	}
	return nil
}

func (e *Endpoints) takeBack(r *http.Request, lease *store.Lease) error {
	ref := store.LeaseRef{Lock: lease.Lock, OwnerID: lease.OwnerID, ID: lease.ID, Token: lease.Token}
	*lease = store.Lease{}
	return e.Release(e.Work(r), ref)
}

// waiting is a request that waits for at most the bound.
type waiting struct {
	at    *Endpoints
	w     *endpoint.Answer
	r     *http.Request
	bound time.Duration
}

// begin returns the context of the wait, and gives the answer time until its end.
func (w waiting) begin() (context.Context, context.CancelFunc) {
	// Fails where the connection is gone, which ends the context, and in tests without a connection.
	_ = http.NewResponseController(w.w).SetWriteDeadline(time.Now().Add(w.bound + w.at.AnswerTimeout))
	ctx, cancel := w.at.Attended(w.r)
	ctx, cancelBound := context.WithTimeout(ctx, w.bound)
	return ctx, func() {
		cancelBound()
		cancel()
	}
}

const refusedDraining = "The gateway is draining, and nothing was granted. Send the acquire again, to another gateway."

// leftQueue returns why an acquire left the queue, if it left because ctx ended. Then there was no grant, or its lease
// was released, unless the database became unreachable meanwhile.
func leftQueue(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case err == nil, cause == nil, !errors.Is(err, cause):
		return err
	case errors.Is(cause, context.Canceled):
		return fmt.Errorf("%w: %w", endpoint.ErrClientGone, err)
	case errors.Is(err, store.ErrUnavailable):
		// Not err itself: the cause may be an answer, which would hide the outcome.
		return &store.UnavailableError{Outcome: store.OutcomeUnknown, Err: errors.New(err.Error())}
	case errors.Is(cause, endpoint.ErrDraining):
		return endpoint.Busy(refusedDraining)
	case endpoint.CodeOf(cause) == api.CodeUnauthenticated:
		return cause
	}
	return store.NotApplied(err)
}

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
