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

// answerGrace is how long the answer to a batch may come after the time of its statement is over: a commit that waits for a standby is
// not bounded by the statement timeout.
const answerGrace = 5 * time.Second

// errClosed is the reason of what a closed Group refuses.
var errClosed = errors.New("the gateway ends")

// Group commits the writes of many callers together: those that come while earlier ones commit go to the database in one round trip
// and one commit. There is no timer: where a batch may be started, a write goes at once.
//
// What it keeps:
//   - no verdict is told before the commit (P4), and each write gets exactly one;
//   - writes to one resource are decided in the order in which they came, and are never in two batches at the same time;
//   - a write gets what it would have got alone: its neighbours in a batch neither fail it nor hold it up. Large values, and resources
//     whose fences somebody else has locked, have lanes of their own;
//   - where a write could not be decided, what waits behind it on its resource is not applied either: a holder that numbers its
//     writes sends them again from the first that failed.
//
// A value must not be changed after it was handed over, not even when the outcome is unknown. Close ends a Group.
type Group struct {
	store   *store.Store
	tracer  trace.Tracer // nil: nothing is traced
	config  Config
	timeout time.Duration // of a batch

	mu      sync.Mutex
	closed  bool
	streams map[store.Name]*stream
	spare   []*stream // for use again
	queued  load      // all that wait
	locked  load      // those of them that wait for a fence which somebody else has locked
	lanes   [laneCount]lane
	idle    []*worker // that wait for work, the one that worked last at the end
	counted Counts
	commits [laneCount]store.Histogram // not guarded by mu

	running sync.WaitGroup // the workers
}

// New returns a Group over store, or ErrInvalid if the configuration is outside its limits.
func New(on *store.Store, config Config) (*Group, error) {
	of := on.Config()
	config, err := config.withDefaults(of.ConnectionsMax)
	if err != nil {
		return nil, err
	}
	g := &Group{
		store: on, tracer: of.Tracing.Tracer(), config: config, timeout: of.StatementTimeout + answerGrace, streams: map[store.Name]*stream{},
	}
	g.openLanes()
	return g, nil
}

// Commit decides one write. It returns ErrInvalid; or ErrUnavailable (an UnavailableError), with outcome not_applied where the Group
// is full (store.ErrOverloaded) or closed, or ctx ended before the write was sent, and with outcome unknown where ctx ended after that.
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

// Submit queues a write and calls done once with its verdict, as Commit would return it, from another goroutine. Writes to one resource are
// decided in the order in which they were submitted. done must not wait for anything: others wait behind it. Where the Group is full or closed,
// done is called before Submit returns: whoever submits in order must know it before the next write.
//
// The end of ctx does not withdraw the write: those behind it on its resource would be applied without it, and then its retry would be
// refused as one that was applied.
func (g *Group) Submit(ctx context.Context, write store.Write, done func(store.Result, error)) {
	p, err := newPending(context.WithoutCancel(ctx), &write)
	if err != nil {
		go done(store.Result{}, err)
		return
	}
	p.done = done
	p.traced(ctx, g.tracer)
	if _, err := g.enqueue(p, false); err != nil {
		p.answer(store.Result{}, err)
	}
}

// Close refuses what waits and all that comes, waits for the batches in flight, and ends the goroutines of the Group.
func (g *Group) Close() {
	var refused []*pending
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		for _, s := range g.streams {
			refused = g.detach(s, refused)
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
}

// enqueue takes a write in, and has a batch started where there may be one. If that would have this write only, and the caller can run
// it, he gets it. It returns an error, and has not taken the write, if the Group is full or closed.
func (g *Group) enqueue(p *pending, canRun bool) (own *batch, err error) {
	g.mu.Lock()
	if err := g.refusal(p); err != nil {
		g.mu.Unlock()
		return nil, store.NotApplied(err)
	}
	if p.answered.Load() { // its caller was gone before it came in
		g.mu.Unlock()
		return nil, nil
	}
	s := g.stream(p.write.Resource)
	s.push(p)
	g.account(s, 1, p.size)
	switch {
	case s.ready != nil:
		s.ready.rows++
	case !s.taken:
		l := g.laneOf(s)
		l.push(s)
		if canRun && l.head == s && l.rows == 1 && g.startable(l) {
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

// refusal says why a write is not taken in, or nil.
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

// overload returns store.ErrOverloaded where the write would be one too many: of all, of its resource, or of those for locked fences.
func (g *Group) overload(p *pending) error {
	if full := g.queued.full(p, g.config.queueMax()); full != "" {
		return fmt.Errorf("%w: %s, the most (--write-queue-max, --write-queue-bytes-max)", store.ErrOverloaded, full)
	}
	s := g.streams[p.write.Resource]
	if s == nil {
		return nil
	}
	if full := (load{s.len, s.bytes}).full(p, g.config.resourceMax()); full != "" {
		return fmt.Errorf("%w: %s for %s, the most of one resource (of --write-queue-max and --write-queue-bytes-max, a %dth)",
			store.ErrOverloaded, full, s.resource, resourceShare)
	}
	if !s.busy {
		return nil
	}
	if full := g.locked.full(p, g.config.lockedMax()); full != "" {
		return fmt.Errorf("%w: %s for fences that somebody else has locked, as %s's, the most of these (of --write-queue-max and "+
			"--write-queue-bytes-max, a %dth)", store.ErrOverloaded, full, s.resource, lockedShare)
	}
	return nil
}

// abandon gives a write up whose caller is gone. It returns what the caller is told, or nil if the verdict was there first.
func (g *Group) abandon(p *pending, cause error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	outcome := store.OutcomeNotApplied
	if p.stands == standsInBatch {
		outcome = store.OutcomeUnknown
	}
	if !p.answered.CompareAndSwap(false, true) {
		return nil
	}
	if p.stands == standsQueued {
		g.remove(p)
	}
	return &store.UnavailableError{Outcome: outcome, Err: cause}
}

// fail tells writes that waited why they were not applied.
func fail(waited []*pending, why error) {
	for _, p := range waited {
		p.answer(store.Result{}, store.NotApplied(why))
	}
}
