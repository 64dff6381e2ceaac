package lockclient

import (
	"context"
	"sync"
	"time"
)

const (
	// driftShare is the part of a TTL that is not trusted: a hundredth allows the database's clock to run 1% faster than this machine's,
	// some fifty times what clocks that are being corrected do.
	driftShare = 100

	// glanceEvery is how often the wall clock is looked at: a timer sleeps by the monotonic clock, which misses a suspended system.
	glanceEvery = time.Second
)

// window is how long after the moment before it was asked for a lease of this TTL is trusted.
func window(ttl time.Duration) time.Duration { return ttl - ttl/driftShare }

// trust is how long this process may believe that it holds something, a lease or a session.
//
// The database grants or renews after the request was sent, and from then on for the TTL. So it has not expired before "sent + TTL", by
// any clock that runs at the same rate. That is the whole reasoning: neither the time of the answer nor times within the answer count,
// since an answer may be late, and the times in it are another machine's.
type trust struct {
	// home is where it is found by what ends many at once: the client's end, the session's.
	home *roster
	// members are what ends with it.
	members roster

	// ctx is what the user's work hangs on; life ends with the trust only.
	ctx        context.Context
	cancel     context.CancelCauseFunc
	life       context.Context
	cancelLife context.CancelCauseFunc

	// within, if set, is the session's: then there is no window of its own.
	within *trust
	lost   func(why error) error

	mu    sync.Mutex
	from  moment
	ttl   time.Duration
	hold  *hold // nil: no limit
	timer *time.Timer
	cause error
}

// hold is the end that no renewal moves: what is left of the longest time that a lease may be held, from before it was asked for.
type hold struct {
	from moment
	left time.Duration
}

// newTrust begins a trust that is lost at its window's end, with what lost makes of errTTL. It returns the home's end if that has come.
func newTrust(base, life context.Context, home *roster, within *trust, lost func(why error) error) (*trust, error) {
	t := &trust{home: home, within: within, lost: lost}
	t.ctx, t.cancel = context.WithCancelCause(base)
	t.life, t.cancelLife = context.WithCancelCause(life)
	if err := home.add(t); err != nil {
		t.cancel(err)
		t.cancelLife(err)
		return nil, err
	}
	return t, nil
}

// set puts the window where a grant or a renewal has moved it; from is before the request was sent.
func (t *trust) set(from moment, ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause != nil {
		return
	}
	t.from, t.ttl = from, ttl
	t.arm()
}

// limit sets the end that no renewal moves, or takes it away; from is before the request was sent that was answered with it.
func (t *trust) limit(end *hold) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == nil {
		t.hold = end
		t.arm()
	}
}

// remains is how long the window still lasts, and what ends it; below 0 it is over. ok is false where it has no end of its own. t.mu is held.
func (t *trust) remains() (left time.Duration, ok bool, end error) {
	if t.within == nil && t.ttl > 0 {
		left, ok, end = window(t.ttl)-now().since(t.from), true, errTTL
	}
	if t.hold != nil {
		if held := window(t.hold.left) - now().since(t.hold.from); !ok || held < left {
			left, ok, end = held, true, errMaxHold
		}
	}
	return left, ok, end
}

// shorten makes sure that the window ends no later than one that began at from: before a renewal to a shorter TTL is sent, since nobody
// may learn that it was applied.
func (t *trust) shorten(from moment, ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == nil && window(ttl) < window(t.ttl)-from.since(t.from) {
		t.from, t.ttl = from, ttl
		t.arm()
	}
}

// arm sets the timer anew. t.mu is held.
func (t *trust) arm() {
	if t.timer != nil {
		t.timer.Stop()
	}
	left, ok, _ := t.remains()
	if !ok {
		return
	}
	t.timer = time.AfterFunc(max(0, min(left, glanceEvery)), func() {
		if t.check() == nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.cause == nil {
				t.arm()
			}
		}
	})
}

// check looks at the clocks, ends the trust if its window is over, and returns why it ended.
func (t *trust) check() error {
	if t.within != nil {
		_ = t.within.check() // ends this one, too
	}
	t.mu.Lock()
	cause := t.cause
	left, ok, end := t.remains()
	t.mu.Unlock()
	if cause == nil && ok && left <= 0 {
		return t.end(t.lost(end))
	}
	return cause
}

// left is how long the window still lasts, 0 after its end.
func (t *trust) left() time.Duration {
	if t.check() != nil {
		return 0
	}
	t.mu.Lock()
	left, ok, _ := t.remains()
	t.mu.Unlock()
	if t.within != nil {
		if within := t.within.left(); !ok || within < left {
			return within
		}
	}
	return max(0, left)
}

func (t *trust) currentTTL() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ttl
}

// end ends it and its members, and returns the cause of its first end.
func (t *trust) end(cause error) error {
	t.mu.Lock()
	if t.cause != nil {
		defer t.mu.Unlock()
		return t.cause
	}
	t.cause = cause
	if t.timer != nil {
		t.timer.Stop()
	}
	t.mu.Unlock()
	t.cancel(cause)
	t.cancelLife(cause)
	t.home.remove(t)
	t.members.end(cause)
	return cause
}

// endBefore ends the trust before a release is sent, and returns a ctx for that: the given one, or, if it hangs on the trust and so has just
// ended, one with its values that lasts for releaseOnceTimeout.
func (t *trust) endBefore(ctx context.Context) (context.Context, context.CancelFunc) {
	before := ctx.Err()
	_ = t.end(ErrLeaseReleased)
	if before != nil || ctx.Err() == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), releaseOnceTimeout)
}

// context gives what the user's work hangs on.
func (t *trust) context() context.Context { return trustContext{t.ctx, t} }

// trustContext looks at the clocks whenever it is asked: a process that was frozen past the window's end must not go on until its timers
// have woken, too. Contexts derived from it are cancelled by the timer, or as soon as somebody asks this one.
type trustContext struct {
	context.Context
	trust *trust
}

// Err returns an error that is both context.Canceled and, if the lease was lost, ErrLeaseLost.
func (c trustContext) Err() error {
	if cause := c.trust.check(); isLost(cause) {
		return cause
	}
	return c.Context.Err()
}

// Done looks at the clocks first, so that it is closed already if the lease is lost.
func (c trustContext) Done() <-chan struct{} {
	_ = c.trust.check()
	return c.Context.Done()
}

// roster is those that end together.
type roster struct {
	mu      sync.Mutex
	members map[*trust]struct{}
	cause   error
}

// add returns the cause if the end has come.
func (r *roster) add(t *trust) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cause != nil {
		return r.cause
	}
	if r.members == nil {
		r.members = map[*trust]struct{}{}
	}
	r.members[t] = struct{}{}
	return nil
}

func (r *roster) remove(t *trust) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.members, t)
}

func (r *roster) end(cause error) {
	r.mu.Lock()
	if r.cause == nil {
		r.cause = cause
	}
	members := r.members
	r.members = nil
	r.mu.Unlock()
	for t := range members {
		_ = t.end(cause)
	}
}
