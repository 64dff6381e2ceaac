package lockclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

const (
	// releaseOnceTimeout bounds what a deferred release may take.
	releaseOnceTimeout = 5 * time.Second
	// releaseTryLimit leaves time for another gateway.
	releaseTryLimit = 2 * time.Second
)

// Lease is a lock that was granted to this process. It is safe for concurrent use.
//
// It ends by Release, by being lost, or with its client or session. A lease that has ended stays so. Its writes are still sent: what
// this process believes decides nothing, the fence does.
type Lease struct {
	client  *Client
	granted api.Lease
	session *Session
	trust   *trust
	heart   heart

	// renewing and writing are held by whoever renews and writes: one at a time.
	renewing chan struct{}
	writing  chan struct{}
	sequence int64
	// place orders leases, so that several can be written under without a deadlock.
	place int64

	once     sync.Once
	released atomic.Bool
}

var leasesMade atomic.Int64

func newLease(base context.Context, c *Client, granted api.Lease, session *Session) (*Lease, error) {
	lease := &Lease{
		client: c, granted: granted, session: session, place: leasesMade.Add(1),
		renewing: make(chan struct{}, 1), writing: make(chan struct{}, 1),
	}
	home, within := &c.background.trusts, (*trust)(nil)
	if session != nil {
		home, within = &session.trust.members, session.trust
	}
	var err error
	lease.trust, err = newTrust(base, c.background.ctx, home, within, lease.lost)
	return lease, err
}

func (l *Lease) lost(why error) error {
	return &LostError{What: l.String(), Why: why}
}

// String tells which lease it is, without its secret.
func (l *Lease) String() string {
	return fmt.Sprintf("the lease on %s with token %d", l.granted.Lock, l.granted.FencingToken)
}

// Name is the lock's, and that of the resource that it protects.
func (l *Lease) Name() string { return l.granted.Lock }

// ID is the lease_id, a secret of the holder's.
func (l *Lease) ID() string { return l.granted.LeaseID }

// Owner is who holds it, as others see it.
func (l *Lease) Owner() string { return l.granted.OwnerID }

// FencingToken is greater than every token that was granted before on this name. Hand it to whatever the work writes to.
func (l *Lease) FencingToken() int64 { return l.granted.FencingToken }

// Info is the lease as it was granted. Its times are the database's clock's: don't compare them with this machine's.
func (l *Lease) Info() api.Lease { return l.granted }

// Context is what unfenced work must hang on. It is cancelled when the lease ends: with the cause [ErrLeaseLost] no later than the moment
// at which the lock may be granted to another, with [ErrLeaseReleased] before a release is sent, with [ErrClosed] by Close. It has the
// values of the ctx that Acquire was called with. Where a policy limits how long a lease is held (max_hold_ms), it is cancelled no later than
// that, however often the lease is renewed; the reason of the problem in its cause is max_hold (see [ProblemOf]).
// A lease in a session knows the limit by which it was granted: one that is set later closes its fence, and does not cancel the context.
//
// Its Err and Done look at the clocks themselves: a process that was frozen past the lease's end sees it at once. Contexts derived from
// it hear of it a moment later, when the timer has woken.
func (l *Lease) Context() context.Context { return l.trust.context() }

// Err is nil as long as the lease can be relied on, by the clocks and all that was heard. Afterwards it is why not: an error that is
// ErrLeaseLost, ErrLeaseReleased or ErrClosed.
func (l *Lease) Err() error { return l.trust.check() }

// Valid says whether Err is nil. It is true at the moment of the call only: fence what must not happen late.
func (l *Lease) Valid() bool { return l.Err() == nil }

// ExpiresIn is how long the lease can still be relied on without another renewal; 0 when it has ended. A lease in a session
// has its session's.
func (l *Lease) ExpiresIn() time.Duration { return l.trust.left() }

// Renew renews the lease now, by hand. It returns ErrLeaseLost if the lease has ended, and ends it then; ErrUnavailable
// if no gateway could serve: the lease lasts as long as it would have.
func (l *Lease) Renew(ctx context.Context) error { return l.renewBy(ctx, nil) }

// RenewWithTTL renews the lease and changes its TTL, for the renewals after it, too. Limits as of WithTTL.
func (l *Lease) RenewWithTTL(ctx context.Context, ttl time.Duration) error {
	return l.renewBy(ctx, &ttl)
}

func (l *Lease) renewBy(ctx context.Context, ttl *time.Duration) error {
	if err := l.Err(); err != nil {
		return err
	}
	err := l.renew(ctx, ttl)
	if gone(err) {
		return l.trust.end(l.lost(err))
	}
	return err
}

// renew sends a renewal until it is answered.
func (l *Lease) renew(ctx context.Context, ttl *time.Duration) error {
	return l.client.insist(ctx, insistence, func(err error) bool { return unanswered(err) && l.trust.check() == nil }, func() error {
		return l.renewOnce(ctx, 0, ttl)
	})
}

// renewOnce sends one renewal, and moves the trust's window if it is answered.
func (l *Lease) renewOnce(ctx context.Context, limit time.Duration, ttl *time.Duration) error {
	op := "renew " + l.granted.Lock
	if l.session != nil {
		return refused(op, api.CodeInvalidRequest, "a lease in a session is renewed by its session")
	}
	if err := enter(ctx, l.renewing, op); err != nil {
		return err
	}
	defer leave(l.renewing)
	body := api.RenewRequest{OwnerID: l.granted.OwnerID, LeaseID: l.granted.LeaseID, FencingToken: l.granted.FencingToken}
	from := now()
	if ttl != nil {
		ms := ttl.Milliseconds()
		body.TTLMS = &ms
		if current := l.trust.currentTTL(); current > 0 {
			l.trust.shorten(from, *ttl)
		}
	}
	renewed, err := l.client.API().limited(limit).Renew(ctx, l.granted.Lock, body)
	if err != nil {
		return err
	}
	l.trust.set(from, time.Duration(renewed.TTLMS)*time.Millisecond)
	l.trust.limit(holdOf(renewed, from))
	return nil
}

// holdOf is the limit in an answer, of a request that was sent after from; nil: none.
func holdOf(answer api.Lease, from moment) *hold {
	if answer.HoldLeftMS == nil {
		return nil
	}
	return &hold{from, time.Duration(*answer.HoldLeftMS) * time.Millisecond}
}

// StartHeartbeat renews the lease in the background, at a third of its TTL, until it ends. Failures are retried as long as the
// lease lasts; see HeartbeatErr and OnHeartbeatError. It does nothing if a heartbeat runs already, and in a session, which has its own.
func (l *Lease) StartHeartbeat(opts ...HeartbeatOption) { l.beat(heartbeatOf(opts)) }

func (l *Lease) beat(config *heartbeatConfig) {
	if l.session != nil {
		return
	}
	l.heart.start(l.client, l.trust, config, func(ctx context.Context, limit time.Duration) error {
		return l.renewOnce(ctx, limit, nil)
	})
}

// HeartbeatErr is the error of the last heartbeat; nil if it succeeded, or if there was none yet.
func (l *Lease) HeartbeatErr() error {
	if l.session != nil {
		return l.session.HeartbeatErr()
	}
	return l.heart.last()
}

// Release ends the lease and closes the fence behind it. Its Context is cancelled and its heartbeat stopped first, whatever comes of the
// rest. End the writes before: those that come later are ErrTokenStale.
//
// It is sent again until it is answered or ctx ends, for some 30 seconds, and may be called again. It returns nil if the lease is
// released, by this call or another; ErrLeaseLost if it was broken, or has expired and was replaced; ErrUnavailable if
// nobody answered: then it ends with its TTL.
func (l *Lease) Release(ctx context.Context) error {
	return l.release(ctx, func(ctx context.Context, a *API) error { return a.Release(ctx, l.granted.Lock, releaseOf(l.granted)) })
}

func (l *Lease) release(ctx context.Context, send func(context.Context, *API) error) error {
	ctx, cancel := l.trust.endBefore(ctx)
	defer cancel()
	if l.released.Load() {
		return nil
	}
	calls := l.client.API().limited(releaseTryLimit)
	err := l.client.insist(ctx, insistence, unanswered, func() error { return send(ctx, calls) })
	switch {
	case err == nil:
		l.released.Store(true)
	case gone(err):
		return l.lost(err)
	}
	return err
}

// ReleaseOnce is Release for a defer: the first call releases, within 5 seconds, all others do nothing. It reports nothing, since by then
// there is nothing to be done; a lease that it could not release ends with its TTL. A nil lease is released already.
func (l *Lease) ReleaseOnce() {
	if l == nil {
		return
	}
	_ = l.finish()
}

// heed ends the lease if the refusal of a write says that it has ended. Of a shared lease it says nothing: that may not write, and others
// are granted beside it.
func (l *Lease) heed(resource string, err error) {
	problem := ProblemOf(err)
	if problem == nil || resource != l.granted.Lock || l.granted.Mode == "shared" || endedByLoss(err) {
		return
	}
	stale := errors.Is(err, ErrTokenStale) && (problem.Reason == "superseded" || problem.Reason == "released" || problem.Reason == reasonMaxHold)
	if stale || errors.Is(err, ErrLeaseExpired) || errors.Is(err, ErrLeaseLost) {
		_ = l.trust.end(l.lost(err))
	}
}

// enter takes a place that one can have at a time.
func enter(ctx context.Context, place chan struct{}, op string) error {
	select {
	case place <- struct{}{}:
		return nil
	case <-ctx.Done():
		return endedWith(ctx, notSent(op, "ctx ended before its turn", ctx.Err()), nil)
	}
}

func leave(place chan struct{}) { <-place }
