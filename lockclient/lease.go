package lockclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	// releaseOnceTimeout bounds the time of a deferred release.
	releaseOnceTimeout = 5 * time.Second
	// releaseTryLimit leaves time for another gateway.
	releaseTryLimit = 2 * time.Second
)

// Lease is a lock that was granted to this process. It is safe for concurrent use.
//
// This process may believe that it holds a lease although it doesn't: it may have been paused, its renewals lost, its
// lock broken. The gateway's database decides whether a write is admitted, at the moment of the write, with the fence's
// row locked. That is why writes are sent even after Err says that the lease is lost.
//
//	  Acquire            Renew*             Release, or nothing
//	free ───────────► held ───────────► held ───────────► free / expired
//	                   │                                    │
//	                   │ writes with its token pass         │ if expired and not replaced: writes still pass,
//	                   ▼                                    ▼   unless the policy requires a live lease
//	          after a newer grant, a release or a break: ErrTokenStale, for ever
//
// # Validity
//
// The client's own view of a lease is its validity:
//
//	Acquire
//	   │        renewal answered: the window starts again
//	   ▼       ╭────────╮
//	 valid ◄───┴────────╯
//	   │
//	   ├── Release, Session.Close ────────────────────► ErrLeaseReleased
//	   ├── the window ends without a renewal ─────────► ErrLeaseLost
//	   ├── a renewal or a write is answered so ───────► ErrLeaseLost
//	   └── Client.Close ──────────────────────────────► ErrClosed
//
// Each of the four ends is final, and the cause of the lease's Context. No fence guards an e-mail or a call to another
// service: let such work depend on Context, which is canceled at the end of the window.
//
// A lease lasts by the database's clock, so don't compare its ExpiresAt with this machine's. The client reasons so: the
// database granted or renewed the lease after the request was sent. Therefore the lease lasts at least until the request
// was sent, plus its TTL. The window is that, less a hundredth of the TTL for clocks that run at different rates.
//
// For an acquire, the time of the first request counts. After a wait in the queue the window might be over, so a lease
// that arrives later than a tenth of its TTL is renewed before Acquire returns it, and the renewal's time counts. The
// times in answers are never used.
//
// The client reads the monotonic and the wall clock, and the one that says more counts: the first may stop while a
// machine sleeps, the second may be set back. A wall clock that is set forward may end the window too early, which is
// safe. The window can't stop what has begun: time passes between a look at the Context and the effect. Fence what must
// not happen late.
//
// # Numbered writes
//
// A token without a sequence admits one write. The writes of a Lease are numbered 34.1, 34.2, 34.3, … Each is applied
// exactly once, however often it is sent: a repetition gets the first answer again, marked Replayed. They are sent one
// at a time, in order, because a later number that arrives first makes the earlier one stale. Guarded transactions and
// writes by [Lease.Numbered] take their numbers in the same order.
type Lease struct {
	client    *Client
	granted   api.Lease
	session   *Session
	validity  *validity
	heartbeat heartbeat

	// renewing and writing let one renewal and one write run at a time.
	renewing chan struct{}
	writing  chan struct{}
	sequence int64
	loss     loss
	// order is the order in which Transact locks leases, so that no deadlock is possible.
	order int64

	once     sync.Once
	released atomic.Bool
}

var leasesMade atomic.Int64

func newLease(base context.Context, c *Client, granted api.Lease, session *Session) (*Lease, error) {
	lease := &Lease{
		client: c, granted: granted, session: session, order: leasesMade.Add(1),
		renewing: make(chan struct{}, 1), writing: make(chan struct{}, 1),
	}
	var within *validity
	if session != nil {
		within = session.validity
	}
	var err error
	lease.validity, err = newValidity(base, &c.background, within, lease.lost)
	return lease, err
}

func (l *Lease) lost(why error) error {
	l.loss.notePause(l.validity.pausedBy(why, l.HeartbeatErr()))
	return &LostError{What: l.String(), Why: why, loss: &l.loss}
}

// String names the lease, without its secret.
func (l *Lease) String() string {
	return fmt.Sprintf("the lease on %s with token %d", l.granted.Lock, l.granted.FencingToken)
}

// Name returns the name of the lock, which is that of the resource that it protects.
func (l *Lease) Name() string { return l.granted.Lock }

// ID returns the lease_id, a secret of the holder.
func (l *Lease) ID() string { return l.granted.LeaseID }

// Owner returns the holder, as others see it.
func (l *Lease) Owner() string { return l.granted.OwnerID }

// FencingToken returns the token, which is greater than every token granted on this name before. Pass it to each system
// that the work writes to.
func (l *Lease) FencingToken() int64 { return l.granted.FencingToken }

// Info returns the lease as it was granted. Its times are by the database's clock: don't compare them with this
// machine's.
func (l *Lease) Info() api.Lease { return l.granted }

// Context returns the context for work that no fence guards. It has the values of the ctx that Acquire was called with,
// and is canceled when the lease ends. Its cause is
//   - [ErrLeaseLost], no later than the moment at which the lock may be granted to another holder;
//   - [ErrLeaseReleased], before a release is sent;
//   - [ErrClosed], when the client is closed.
//
// A policy may limit how long a lease is held (max_hold_ms). The context is canceled no later than that, however often
// the lease is renewed. A lease in a session knows the limit at its grant: a limit that is set later does not cancel the
// context.
//
// Err and Done of this context read the clocks: a process that was frozen past the lease's end sees it at once.
// Contexts derived from it are canceled a moment later, when a timer fires.
func (l *Lease) Context() context.Context { return l.validity.context() }

// Err returns nil while the lease can be relied on, by the clocks and by all answers. Afterwards it returns the reason:
// an error that matches ErrLeaseLost, ErrLeaseReleased or ErrClosed.
func (l *Lease) Err() error { return l.validity.check() }

// Valid says whether Err is nil. It holds for the moment of the call only: fence what must not happen late.
func (l *Lease) Valid() bool { return l.Err() == nil }

// ExpiresIn returns for how long the lease can be relied on without another renewal; 0 if it has ended. A lease in a
// session has the session's time.
func (l *Lease) ExpiresIn() time.Duration { return l.validity.left() }

// Renew renews the lease now. It returns ErrLeaseLost if the lease has ended, and ends it. It returns ErrUnavailable if
// no gateway could serve; the lease lasts as long as it would have.
func (l *Lease) Renew(ctx context.Context) error { return l.renewBy(ctx, nil) }

// RenewWithTTL renews the lease with another TTL, which later renewals keep. WithTTL has its limits.
func (l *Lease) RenewWithTTL(ctx context.Context, ttl time.Duration) error {
	return l.renewBy(ctx, &ttl)
}

func (l *Lease) renewBy(ctx context.Context, ttl *time.Duration) error {
	err := l.Err()
	if err == nil {
		err = l.renew(ctx, ttl)
		if isGone(err) {
			err = l.validity.end(l.lost(err))
		}
	}
	if isLost(err) {
		l.askForHolder(ctx)
	}
	return err
}

// renew sends a renewal until it is answered.
func (l *Lease) renew(ctx context.Context, ttl *time.Duration) error {
	again := func(err error) bool { return retryable(err) && l.validity.check() == nil }
	return l.client.retry(ctx, untilAnswered, again, func() error { return l.renewOnce(ctx, 0, ttl) })
}

// renewOnce sends one renewal, and moves the window if it is answered.
func (l *Lease) renewOnce(ctx context.Context, limit time.Duration, ttl *time.Duration) error {
	op := "renew " + l.granted.Lock
	if l.session != nil {
		return refused(op, api.CodeInvalidRequest, "a lease in a session is renewed by its session")
	}
	if err := takeTurn(ctx, l.renewing, op); err != nil {
		return err
	}
	defer endTurn(l.renewing)
	body := api.RenewRequest{
		OwnerID: l.granted.OwnerID, LeaseID: l.granted.LeaseID, FencingToken: l.granted.FencingToken,
	}
	from := readClock()
	if ttl != nil {
		ms := ttl.Milliseconds()
		body.TTLMS = &ms
		if current := l.validity.currentTTL(); current > 0 {
			l.validity.shorten(from, *ttl)
		}
	}
	renewed, err := l.client.API().limited(limit).Renew(ctx, l.granted.Lock, body)
	if err != nil {
		return err
	}
	l.validity.set(from, time.Duration(renewed.TTLMS)*time.Millisecond, holdOf(renewed, from))
	return nil
}

// holdOf returns the limit in an answer to a request that was sent after from; nil: none.
func holdOf(answer api.Lease, from dualClock) *hold {
	if answer.HoldLeftMS == nil {
		return nil
	}
	return &hold{from, time.Duration(*answer.HoldLeftMS) * time.Millisecond}
}

// beat renews the lease in the background until it ends. The leases of a session have no heartbeat of their own.
func (l *Lease) beat(config heartbeatConfig) {
	if config.off || l.session != nil {
		return
	}
	l.heartbeat.start(l.client, l.validity, config, func(ctx context.Context, limit time.Duration) error {
		return l.renewOnce(ctx, limit, nil)
	})
}

// HeartbeatErr returns the error of the last heartbeat; nil if it succeeded, or if there was none yet.
func (l *Lease) HeartbeatErr() error {
	if l.session != nil {
		return l.session.HeartbeatErr()
	}
	return l.heartbeat.last()
}

// Release ends the lease and closes the fence behind it. First it cancels the Context and stops the heartbeat, even if
// the rest fails. End the writes before: later ones are ErrTokenStale.
//
// It is resent until it is answered or ctx ends, for some 30 seconds, and may be called again. It returns nil if the
// lease is released, by this call or another; ErrLeaseLost if it was broken, or has expired and was replaced;
// ErrUnavailable if no gateway answered: then the lease ends with its TTL.
func (l *Lease) Release(ctx context.Context) error {
	err := l.release(ctx)
	if isLost(err) {
		l.askForHolder(ctx)
	}
	return err
}

func (l *Lease) release(ctx context.Context) error {
	ctx, cancel := l.validity.endBefore(ctx)
	defer cancel()
	if l.released.Load() {
		return nil
	}
	calls := l.client.API().limited(releaseTryLimit)
	err := l.client.retry(ctx, untilAnswered, retryable, func() error {
		return calls.Release(ctx, l.granted.Lock, releaseOf(l.granted))
	})
	switch {
	case err == nil:
		l.released.Store(true)
	case isGone(err):
		return l.lost(err)
	}
	return err
}

// ReleaseOnce is Release for a defer: the first call releases, within 5 seconds, and later calls do nothing. It returns
// nothing, since nothing is left to do about an error: a lease that it could not release ends with its TTL. A nil lease
// is released already.
func (l *Lease) ReleaseOnce() {
	if l == nil {
		return
	}
	_ = l.finish()
}

// finish is a ReleaseOnce that returns the error.
func (l *Lease) finish() (err error) {
	l.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseOnceTimeout)
		defer cancel()
		err = l.release(ctx)
	})
	return err
}

// endIfRejected ends the lease if the rejection of a write says that the lease has ended, and returns whether it does.
// That of a shared lease does not: it may not write, and others are granted beside it.
func (l *Lease) endIfRejected(resource string, err error) bool {
	problem := ProblemOf(err)
	if problem == nil || resource != l.granted.Lock || l.granted.Mode == "shared" || endedByCaller(err) {
		return false
	}
	ended := problem.Reason == "superseded" || problem.Reason == "released"
	if !(errors.Is(err, ErrTokenStale) && ended || errors.Is(err, ErrLeaseExpired) || errors.Is(err, ErrLeaseLost)) {
		return false
	}
	var rejected *Error // which nobody else has seen yet
	if errors.As(err, &rejected) {
		rejected.loss = &l.loss
	}
	_ = l.validity.end(l.lost(err))
	return true
}

// takeTurn waits until turn is free, and takes it. The capacity of turn is 1: one caller has it at a time.
func takeTurn(ctx context.Context, turn chan struct{}, op string) error {
	select {
	case turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return endedWith(ctx, notSent(op, "ctx ended before its turn", ctx.Err()), nil)
	}
}

func endTurn(turn chan struct{}) { <-turn }
