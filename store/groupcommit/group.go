package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/store"
)

// answerGrace is how long after the statement timeout the answer to a batch may come: that does not bound a commit that
// waits for a standby.
const answerGrace = 5 * time.Second

// errClosed is the reason of all that a closed Group refuses.
var errClosed = errors.New("the gateway ends")

// Database decides the batches of a Group.
type Database interface {
	// ExecWrites decides the writes of a batch in one commit; see postgres.Store.ExecWrites.
	ExecWrites(ctx context.Context, batch *store.WriteBatch, wait bool) error
	// CountBusy counts writes that go back to their queue, since another session has locked their fence.
	CountBusy(writes int)
	ConnectionsMax() int
	StatementTimeout() time.Duration
	Tracing() store.Tracing
}

// Group commits the writes of many callers together. A value must not be changed after it was handed over, not even
// when the outcome is unknown. Close ends a Group.
type Group struct {
	db      Database
	tracer  trace.Tracer // nil: nothing is traced
	config  Config
	timeout time.Duration // of a batch

	// ctx is that of the workers' batches.
	ctx    context.Context
	cancel context.CancelFunc

	mu        sync.Mutex
	closed    bool
	resources map[store.Name]*resourceQueue
	spare     []*resourceQueue // for use again
	queued    load             // all writes that wait
	locked    load             // those of them that wait for a fence that another session has locked
	lanes     [laneCount]lane
	idle      []*worker // workers without a batch, the one that worked last at the end
	counted   Counts
	commits   [laneCount]store.Histogram // not guarded by mu

	running sync.WaitGroup // the workers
}

// New returns a Group over a database, or ErrInvalid if the configuration is outside its limits.
func New(on Database, config Config) (*Group, error) {
	config, err := config.withDefaults(on.ConnectionsMax())
	if err != nil {
		return nil, err
	}
	g := &Group{
		db: on, tracer: on.Tracing().Tracer(), config: config,
		timeout: on.StatementTimeout() + answerGrace, resources: map[store.Name]*resourceQueue{},
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.openLanes()
	return g, nil
}

// Commit decides one write. It returns ErrInvalid; or ErrUnavailable (an UnavailableError), with outcome not_applied
// where the Group is full (store.ErrOverloaded) or closed, or ctx ended before the write was sent, and with outcome
// unknown where ctx ended after that.
func (g *Group) Commit(ctx context.Context, write store.Write) (store.Result, error) {
	p, err := newPending(ctx, &write)
	if err != nil {
		return store.Result{}, err
	}
	p.traced(ctx, g.tracer)
	own, err := g.enqueue(p, true)
	if err != nil {
		p.recycle()
		return store.Result{}, err
	}
	if own != nil {
		g.runOwn(ctx, own)
	}
	select {
	case <-p.signal:
	case <-ctx.Done():
		if err := g.abandon(p, context.Cause(ctx)); err != nil {
			return store.Result{}, err
		}
		<-p.signal
	}
	result, err := p.result, p.err
	p.recycle()
	return result, err
}

// Submit queues a write and calls done once with its verdict, as Commit would return it, from another goroutine. Writes
// to one resource are decided in the order in which they were submitted. done must not block: others wait behind it.
// Where the Group is full or closed, Submit calls done before it returns, so that a caller that submits in order knows
// it before the next write.
//
// The end of ctx does not withdraw the write: those behind it on its resource would be applied without it, and then its
// retry would be rejected as a write that was applied.
func (g *Group) Submit(ctx context.Context, write store.Write, done func(store.Result, error)) {
	p, err := newPending(context.WithoutCancel(ctx), &write)
	if err != nil {
		go done(store.Result{}, err)
		return
	}
	p.done = done
	p.traced(ctx, g.tracer)
	if _, err := g.enqueue(p, false); err != nil {
		p.deliver(store.Result{}, err)
	}
}

// Close refuses the writes that wait and all later ones, waits for the batches in flight, and ends the goroutines.
func (g *Group) Close() {
	var refused []*pending
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		for _, rq := range g.resources {
			refused = g.detach(rq, refused)
		}
		for _, w := range g.idle {
			close(w.wake)
		}
		g.idle = nil
		for i := range g.lanes {
			g.lanes[i].overdue.Stop()
		}
	}
	g.mu.Unlock()
	fail(refused, errClosed)
	g.running.Wait()
	g.cancel()
}

// CutOff cancels the statements of the batches in flight, whose outcome then is unknown. It is for a gateway that may
// not wait for them.
func (g *Group) CutOff() { g.cancel() }

// enqueue takes a write in, and starts a batch if one may be started. If that batch would have this write only, and the
// caller can run it, enqueue returns it. If the Group is full or closed, it returns an error and does not take the
// write.
func (g *Group) enqueue(p *pending, canRun bool) (own *batch, err error) {
	g.mu.Lock()
	if err := g.refusal(p); err != nil {
		g.mu.Unlock()
		return nil, store.NotApplied(err)
	}
	if p.delivered.Load() { // its caller left before it came in
		g.mu.Unlock()
		return nil, nil
	}
	rq := g.queueOf(p.write.Resource)
	rq.push(p)
	g.account(rq, 1, p.size)
	switch {
	case rq.ready != nil:
		rq.ready.rows++
	case !rq.taken:
		l := g.laneOf(rq)
		l.push(rq)
		if canRun && l.head == rq && l.rows == 1 && g.startable(l) {
			own = g.takeOwn(l)
			g.mu.Unlock()
			return own, nil
		}
	}
	w, l := g.start()
	g.mu.Unlock()
	w.begin(g, l)
	return nil, nil
}

// refusal returns why a write is not taken in, or nil.
func (g *Group) refusal(p *pending) error {
	if g.closed {
		return errClosed
	}
	err := g.overload(p)
	if err != nil {
		g.counted.Refused++
	}
	return err
}

// overload returns ErrOverloaded where the write would exceed a bound: of all writes, of its resource, or of locked
// fences.
func (g *Group) overload(p *pending) error {
	if full := g.queued.full(p, g.config.queueMax()); full != "" {
		return fmt.Errorf("%w: %s, the most (--write-queue-max, --write-queue-bytes-max)", store.ErrOverloaded, full)
	}
	rq := g.resources[p.write.Resource]
	if rq == nil {
		return nil
	}
	if full := (load{rq.len, rq.bytes}).full(p, g.config.resourceMax()); full != "" {
		return fmt.Errorf(
			"%w: %s for %s, the most of one resource (of --write-queue-max and --write-queue-bytes-max, a %dth)",
			store.ErrOverloaded, full, rq.resource, resourceShare)
	}
	if !rq.busy {
		return nil
	}
	if full := g.locked.full(p, g.config.lockedMax()); full != "" {
		return fmt.Errorf("%w: %s for fences that another session has locked, such as that of %s, the most of these "+
			"(of --write-queue-max and --write-queue-bytes-max, a %dth)",
			store.ErrOverloaded, full, rq.resource, lockedShare)
	}
	return nil
}

// abandon gives up a write whose caller leaves. It returns the error for the caller, or nil if the verdict came first.
func (g *Group) abandon(p *pending, cause error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	outcome := store.OutcomeNotApplied
	if p.state == stateInBatch {
		outcome = store.OutcomeUnknown
	}
	if !p.delivered.CompareAndSwap(false, true) {
		return nil
	}
	if p.state == stateQueued {
		g.remove(p)
	}
	return &store.UnavailableError{Outcome: outcome, Err: cause}
}

// fail delivers why they were not applied to writes that waited.
func fail(waited []*pending, why error) {
	for _, p := range waited {
		p.deliver(store.Result{}, store.NotApplied(why))
	}
}
