package lockclient

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// driftShare is the part of a TTL that does not count: with a hundredth, the database's clock may run 1% faster than
	// this machine's. Clocks that are being corrected differ by a fiftieth of that.
	driftShare = 100

	// checkEvery is the longest time between two looks at the wall clock. A timer sleeps by the monotonic clock, which
	// misses a suspended system.
	checkEvery = time.Second
)

// window is for how long a lease of this TTL is valid, from the moment before it was requested.
func window(ttl time.Duration) time.Duration { return ttl - ttl/driftShare }

// validity is for how long this process may rely on something that it holds, a lease or a session. The package's
// documentation has the reasons ("The validity window").
type validity struct {
	// home holds the validities that end together: with the client, or with the session.
	home *group
	// members end with this validity.
	members group

	// ctx is the context of the user's work. life ends with the validity only.
	ctx        context.Context
	cancel     context.CancelCauseFunc
	life       context.Context
	cancelLife context.CancelCauseFunc

	// within, if set, is the session's: then there is no window of its own.
	within *validity
	lost   func(why error) error

	mu    sync.Mutex
	from  dualClock
	ttl   time.Duration
	hold  *hold // nil: no limit
	timer *time.Timer
	cause error
	pause pause
}

// pause is for how long this process did not run, at least: the timer was so late.
type pause struct {
	// due is when the timer should run, by the monotonic clock; 0: not armed.
	due time.Duration
	// since and length are those of the longest pause in the window.
	since, length time.Duration
}

// note looks at the clock. from is the beginning of the window.
func (p *pause) note(from dualClock) {
	if p.since < from.monotonic {
		p.length = 0
	}
	if late := readClock().monotonic - p.due; p.due > 0 && late > p.length {
		p.since, p.length = p.due, late
	}
}

// hold is the end that no renewal moves: from is before the request that was answered with it, and left is the rest of
// the longest time that the lease may be held.
type hold struct {
	from dualClock
	left time.Duration
}

// newValidity begins a validity, which ends with within or, if that is nil, with b. When its window ends, it ends with
// the cause lost(errTTL). newValidity returns the cause of that other end if it has come already.
func newValidity(base context.Context, b *background, within *validity, lost func(error) error) (*validity, error) {
	v := &validity{home: &b.validities, within: within, lost: lost}
	if within != nil {
		v.home = &within.members
	}
	v.ctx, v.cancel = context.WithCancelCause(base)
	v.life, v.cancelLife = context.WithCancelCause(b.ctx)
	if err := v.home.add(v); err != nil {
		v.cancel(err)
		v.cancelLife(err)
		return nil, err
	}
	return v, nil
}

// set moves the window after a grant or a renewal. from is before the request was sent. end is what no renewal moves;
// nil: nothing.
func (v *validity) set(from dualClock, ttl time.Duration, end *hold) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cause == nil {
		v.pause.note(v.from)
		v.from, v.ttl, v.hold = from, ttl, end
		v.arm()
	}
}

// pausedBy returns for how long this process did not run, if it lost this for that: the loss was answered as why, or
// the window is over, and would not be without the pause. A pause that is shorter than the time between two heartbeats
// leaves time for one. beat is the error of the last heartbeat.
func (v *validity) pausedBy(why, beat error) time.Duration {
	if v.within != nil {
		return v.within.pausedBy(why, beat)
	}
	if problem := ProblemOf(why); beat != nil || problem != nil && slices.Contains(lostWithoutPause, problem.Reason) {
		return 0
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pause.note(v.from)
	over, length := readClock().since(v.from)-window(v.ttl), v.pause.length
	if length < v.ttl/beatsPerTTL || over < 0 || over >= length {
		return 0
	}
	return length
}

// lostWithoutPause are reasons of gateways which no renewal would have prevented.
var lostWithoutPause = []string{"broken", "released"}

// remains returns what is left of the window, and the error that ends it. At 0 or less it is over. ok is false if it
// has no end of its own. v.mu is held.
func (v *validity) remains() (left time.Duration, ok bool, end error) {
	if v.within == nil && v.ttl > 0 {
		left, ok, end = window(v.ttl)-readClock().since(v.from), true, errTTL
	}
	if v.hold != nil {
		if held := window(v.hold.left) - readClock().since(v.hold.from); !ok || held < left {
			left, ok, end = held, true, errMaxHold
		}
	}
	return left, ok, end
}

// shorten ends the window no later than one that begins at from. A renewal to a shorter TTL calls it before it is sent,
// since its answer may be lost.
func (v *validity) shorten(from dualClock, ttl time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cause == nil && window(ttl) < window(v.ttl)-from.since(v.from) {
		v.from, v.ttl = from, ttl
		v.arm()
	}
}

// arm restarts the timer. v.mu is held.
func (v *validity) arm() {
	if v.timer != nil {
		v.timer.Stop()
	}
	left, ok, _ := v.remains()
	if !ok {
		return
	}
	next := max(0, min(left, checkEvery))
	v.pause.due = readClock().monotonic + next
	v.timer = time.AfterFunc(next, func() {
		if v.check() == nil {
			v.mu.Lock()
			defer v.mu.Unlock()
			if v.cause == nil {
				v.arm()
			}
		}
	})
}

// check reads the clocks, ends the validity if its window is over, and returns the cause of its end.
func (v *validity) check() error {
	if v.within != nil {
		if cause := v.within.check(); cause != nil {
			return v.end(cause)
		}
	}
	v.mu.Lock()
	cause := v.cause
	left, ok, end := v.remains()
	v.pause.note(v.from)
	v.mu.Unlock()
	if cause == nil {
		if !ok || left > 0 {
			return nil
		}
		cause = v.lost(end)
	}
	return v.end(cause)
}

// left returns what is left of the window, 0 after its end.
func (v *validity) left() time.Duration {
	if v.check() != nil {
		return 0
	}
	v.mu.Lock()
	left, ok, _ := v.remains()
	v.mu.Unlock()
	if v.within != nil {
		if within := v.within.left(); !ok || within < left {
			return within
		}
	}
	return max(0, left)
}

func (v *validity) currentTTL() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ttl
}

// end ends the validity and its members, and returns the cause of its first end. When it returns, the contexts are
// canceled, also where another goroutine ends the validity at the same time.
func (v *validity) end(cause error) error {
	v.mu.Lock()
	first := v.cause == nil
	if first {
		v.cause = cause
		v.pause.note(v.from)
		v.pause.due = 0
		if v.timer != nil {
			v.timer.Stop()
		}
	}
	cause = v.cause
	v.mu.Unlock()
	v.cancel(cause)
	v.cancelLife(cause)
	if first {
		v.home.remove(v)
		v.members.end(cause)
	}
	return cause
}

// endBefore ends the validity before a release is sent, and returns a ctx for the release: the given one, or, if that
// is derived from the validity and so has just ended, one with its values that lasts for releaseOnceTimeout.
func (v *validity) endBefore(ctx context.Context) (context.Context, context.CancelFunc) {
	before := ctx.Err()
	_ = v.end(ErrLeaseReleased)
	if before != nil || ctx.Err() == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), releaseOnceTimeout)
}

// context returns the context of the user's work.
func (v *validity) context() context.Context { return validityContext{v.ctx, v} }

// validityContext reads the clocks at each call of Err and Done: see Lease.Context.
type validityContext struct {
	context.Context
	validity *validity
}

// Err returns an error that matches context.Canceled and, if the lease was lost, ErrLeaseLost.
func (c validityContext) Err() error {
	if cause := c.validity.check(); isLost(cause) {
		return cause
	}
	return c.Context.Err()
}

// Done returns a channel that is closed already if the lease is lost.
func (c validityContext) Done() <-chan struct{} {
	_ = c.validity.check()
	return c.Context.Done()
}

// group is the validities that end together.
type group struct {
	mu      sync.Mutex
	members map[*validity]struct{}
	cause   error
}

// add returns the cause of the group's end if it has ended.
func (g *group) add(v *validity) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause != nil {
		return g.cause
	}
	if g.members == nil {
		g.members = map[*validity]struct{}{}
	}
	g.members[v] = struct{}{}
	return nil
}

func (g *group) remove(v *validity) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.members, v)
}

func (g *group) end(cause error) {
	g.mu.Lock()
	if g.cause == nil {
		g.cause = cause
	}
	members := g.members
	g.members = nil
	g.mu.Unlock()
	for v := range members {
		_ = v.end(cause)
	}
}

var processStart = time.Now()

// dualClock is a point in time by both clocks of this machine. Neither is enough: the monotonic clock may stop while
// the system is suspended, and people and NTP set the wall clock.
type dualClock struct {
	monotonic time.Duration
	wall      time.Duration
}

func readClock() dualClock {
	t := time.Now()
	return dualClock{monotonic: t.Sub(processStart), wall: time.Duration(t.UnixNano())}
}

// since returns the time since earlier, by the clock that says more. A wall clock that is set forward by more than what
// is left of a lease ends its validity too early, which is safe. If it is set back, the monotonic clock counts.
func (m dualClock) since(earlier dualClock) time.Duration {
	return max(m.monotonic-earlier.monotonic, m.wall-earlier.wall)
}
