package lockclient

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// Acquire acquires a lease on a lock. Without WithWait it is one try.
//
// It returns
//   - ErrLockHeld if another lease holds the lock, after the wait if there is one. Its problem has the Holder. It
//     matches ctx's error, too, if ctx ended the wait.
//   - ErrDeadlock if the wait would never end (its problem has the Cycle).
//   - ErrUnavailable if no gateway could serve.
//   - ErrLeaseLost if the session is lost that the lease should be in.
//   - ErrClosed if the client is closed.
//
// The lease is renewed in the background, at a third of its TTL, until it is released or lost, or the client is closed
// (see WithoutHeartbeat). Failed renewals are retried while the lease lasts. It outlives ctx, which is for the call
// alone: defer [Lease.ReleaseOnce].
func (c *Client) Acquire(ctx context.Context, lock string, opts ...LeaseOption) (*Lease, error) {
	return c.acquire(ctx, context.WithoutCancel(ctx), lock, c.leaseConfig(opts))
}

// Elect is Acquire that waits until this process leads: it holds the lock with the election's name. By default it waits
// until ctx ends, and retries while no gateway serves. The lease is the term, its fencing token the number of the term.
// WithMetadata says what observers read about the leader (see [Client.Watch]), such as its address. Release resigns.
func (c *Client) Elect(ctx context.Context, election string, opts ...LeaseOption) (*Lease, error) {
	return c.acquire(ctx, context.WithoutCancel(ctx), election, c.lastingConfig(opts))
}

// AcquireWithRetry tries until it is granted the lock, as often as policy says; the zero policy is ten tries. It
// retries ErrLockHeld, ErrUnavailable and ErrRateLimited, after at least the pause that the gateway recommends, and
// returns the error of the last try. It is not in the queue between two tries, so waiters of the queue are granted
// the lock first. Prefer WithWait where many want the lock.
func (c *Client) AcquireWithRetry(
	ctx context.Context, lock string, policy RetryPolicy, opts ...LeaseOption,
) (*Lease, error) {
	again := func(err error) bool { return retryable(err) || errors.Is(err, ErrLockHeld) }
	return retry(ctx, c, policy, again, func() (*Lease, error) { return c.Acquire(ctx, lock, opts...) })
}

// Do runs work while it holds the lock. It waits until the lock is granted or ctx ends (WithWait sets a shorter
// wait), renews the lease as Acquire does, and releases it when work has returned, panicked or called
// runtime.Goexit. It does not recover a panic.
//
// The ctx of work is the lease's Context, which ends with the given ctx, too. work must stop when it ends; Do waits
// for it.
//
// If the lease was lost before work returned, the error matches ErrNotHolder and ErrLeaseLost, and work's own error:
// unfenced effects of work may have happened beside another holder's. Otherwise Do returns the error of work. It does
// not report a failed release: work is done, and the lease ends with its TTL. If the lock is not granted, Do returns the
// error of Acquire without running work. While no gateway serves, Do retries: see [WithRetryHook], and [ErrUnavailable]
// for what no retry can cure.
func (c *Client) Do(
	ctx context.Context, lock string, work func(ctx context.Context, lease *Lease) error, opts ...LeaseOption,
) error {
	lease, err := c.acquire(ctx, ctx, lock, c.lastingConfig(opts))
	if err != nil {
		return err
	}
	defer lease.ReleaseOnce()
	err = work(lease.Context(), lease)
	found, released := lease.Err(), lease.finish()
	if !isLost(found) {
		found = released
	}
	var lost *LostError
	if !errors.As(found, &lost) {
		return err
	}
	lease.askForHolder(ctx)
	return lost.withWork(err)
}

// acquire makes a lease whose context has the values and the end of base.
func (c *Client) acquire(ctx, base context.Context, lock string, config leaseConfig) (*Lease, error) {
	op := "acquire " + lock
	if err := config.check(op); err != nil {
		return nil, err
	}
	metadata, err := optionalJSON(op, "metadata", config.metadata)
	if err != nil {
		return nil, err
	}
	body := api.AcquireRequest{
		OwnerID: config.owner, TTLMS: config.ttlMS(), Mode: config.mode, Scope: config.scope,
		SessionID: config.sessionID(), Metadata: metadata,
	}
	send := func(ctx context.Context, wait time.Duration, requestID string) (api.Lease, error) {
		body.WaitMS, body.RequestID, body.NewestToken = wait.Milliseconds(), &requestID, c.newest.of(lock)
		granted, err := c.API().Acquire(ctx, lock, body)
		if err == nil {
			c.newest.note(lock, granted.FencingToken)
		}
		return granted, err
	}
	return c.awaitGrant(ctx, base, config, send)
}

// adopt makes a lease of a grant.
func (c *Client) adopt(
	ctx, base context.Context, loop *acquireLoop, granted api.Lease, config leaseConfig, send sendAcquire,
) (*Lease, error) {
	lease, err := newLease(base, c, granted, config.session)
	if err != nil {
		c.giveBack(granted)
		return nil, err
	}
	if err := lease.confirm(ctx, loop, send); err != nil {
		_ = lease.validity.end(err)
		c.giveBack(granted)
		return nil, err
	}
	lease.beat(config.beat)
	return lease, nil
}

// confirm finds out how long a new lease can be relied on.
//
// If its request was sent long ago, the lease is renewed. The answer's waited_ms does not help: a grant that is
// answered a second time has the first wait's. A lease in a session is not renewed; if it has a limit of its own
// (max_hold_ms), the same request is sent again.
func (l *Lease) confirm(ctx context.Context, loop *acquireLoop, send sendAcquire) error {
	ttl, end := time.Duration(l.granted.TTLMS)*time.Millisecond, holdOf(l.granted, loop.from)
	if l.session != nil && end == nil {
		return nil
	}
	fresh := ttl
	if end != nil {
		fresh = min(ttl, end.left)
	}
	switch {
	case readClock().since(loop.from) <= fresh/confirmShare:
		l.validity.set(loop.from, ttl, end)
		return nil
	case l.session == nil:
		// The validity has no window until the renewal is answered. Nobody has the lease yet.
		return l.renew(ctx, nil)
	}
	return l.client.retry(ctx, lostAnswers, retryable, func() error {
		from := readClock()
		again, err := send(ctx, 0, loop.requestID)
		if err == nil {
			l.validity.set(from, ttl, holdOf(again, from))
		}
		return err
	})
}

// giveBack releases, in the background, a lease that no caller got.
func (c *Client) giveBack(granted api.Lease) {
	c.background.run(func() {
		ctx, cancel := context.WithTimeout(c.background.ctx, abandonTimeout)
		defer cancel()
		_ = c.API().Release(ctx, granted.Lock, releaseOf(granted))
	})
}

// abandon finds out, in the background, whether a request was granted a lease whose answer was lost, and releases it.
// It sends the same request without a wait. The answer is that lease, a refusal, or a grant that is released at once.
func (c *Client) abandon(ctx context.Context, requestID string, send sendAcquire) {
	ctx = context.WithoutCancel(ctx)
	c.background.run(func() {
		ctx, cancel := context.WithTimeout(ctx, abandonTimeout)
		defer cancel()
		defer context.AfterFunc(c.background.ctx, cancel)()
		_ = c.retry(ctx, untilAnswered, retryable, func() error {
			granted, err := send(ctx, 0, requestID)
			if err != nil {
				return err
			}
			return c.API().Release(ctx, granted.Lock, releaseOf(granted))
		})
	})
}

func releaseOf(granted api.Lease) api.ReleaseRequest {
	return api.ReleaseRequest{OwnerID: granted.OwnerID, LeaseID: granted.LeaseID, FencingToken: granted.FencingToken}
}

const (
	// requestWaitMax is the longest time that a gateway lets one request wait in the queue.
	requestWaitMax = 10 * time.Minute
	// answerSlackMax is the part of ctx's time that is left for the answer of a gateway after a wait without a grant.
	answerSlackMax = time.Second
	// confirmShare: a grant that arrives later than this part of its TTL is renewed at once.
	confirmShare = 10
	// abandonTimeout bounds the release of a lease that no caller got.
	abandonTimeout = 5 * time.Second
)

// lostAnswers is short: the caller of a try wants its result, and a wait sends its next request.
var lostAnswers = RetryPolicy{Attempts: 5, Base: 50 * time.Millisecond, Max: time.Second, Within: 10 * time.Second}

// sendAcquire sends one acquire.
type sendAcquire func(ctx context.Context, wait time.Duration, requestID string) (api.Lease, error)

// awaitGrant sends acquires until one is granted, or refused for good, or the wait has ended.
func (c *Client) awaitGrant(ctx, base context.Context, config leaseConfig, send sendAcquire) (*Lease, error) {
	if err := c.background.open(); err != nil {
		return nil, err
	}
	loop := newAcquireLoop(config.wait)
	var held error // the last ErrLockHeld
	for {
		granted, err := loop.sendOnce(ctx, c, send)
		if err == nil {
			lease, err := c.adopt(ctx, base, loop, granted, config, send)
			if err == nil || !loop.waits(ctx) || !errors.Is(err, ErrLeaseLost) || c.background.open() != nil ||
				config.session != nil {
				return lease, err
			}
			// The grant was so old when it arrived that the lease was lost. Begin again.
			loop.restart()
			continue
		}
		if errors.Is(err, ErrLockHeld) {
			held = err
		}
		switch {
		case errors.Is(err, ErrOutcomeUnknown) && (ctx.Err() != nil || !loop.waits(ctx)):
			c.abandon(ctx, loop.requestID, send)
			return nil, endedWith(ctx, err, held)
		case errors.Is(err, ErrLeaseLost) && config.session == nil && loop.waits(ctx):
			// The answer with the grant was lost, and the lease ended before the request was sent again. Begin again.
			loop.restart()
			continue
		case !loop.waits(ctx) || !(retryable(err) || errors.Is(err, ErrLockHeld)):
			return nil, endedWith(ctx, err, held)
		}
		pause := loop.pause(err)
		if retryable(err) {
			c.retries.report(ctx, Retry{Err: err, Attempt: loop.failed, Pause: pause})
		}
		if sleep(ctx, pause) != nil {
			return nil, endedWith(ctx, err, held)
		}
	}
}

// acquireLoop is the state of one call of acquire, which may send many requests.
type acquireLoop struct {
	requestID string
	// from is before requestID was sent for the first time: its grant is not older.
	from  dualClock
	until time.Time
	// forever says that only ctx ends the wait.
	forever bool
	sent    time.Time
	wait    time.Duration
	failed  int
}

func newAcquireLoop(wait time.Duration) *acquireLoop {
	l := &acquireLoop{forever: wait == waitForCtx, until: time.Now().Add(wait)}
	l.restart()
	return l
}

// restart begins a new request_id, after the lease that the last one was granted has ended.
func (l *acquireLoop) restart() { l.requestID, l.from = rand.Text(), readClock() }

// waits says whether there is time left to wait.
func (l *acquireLoop) waits(ctx context.Context) bool {
	return ctx.Err() == nil && (l.forever || time.Until(l.until) >= time.Millisecond)
}

// sendOnce sends one request, and resends it if the answer is lost: the request_id makes that safe.
func (l *acquireLoop) sendOnce(ctx context.Context, c *Client, send sendAcquire) (api.Lease, error) {
	lost := func(err error) bool { return errors.Is(err, ErrOutcomeUnknown) && retryable(err) }
	return retry(ctx, c, lostAnswers, lost, func() (api.Lease, error) {
		return send(ctx, l.nextWait(ctx), l.requestID)
	})
}

// nextWait returns how long the gateway should wait now. It leaves time for the answer before ctx ends: an answer that
// comes too late may be a lease that nobody knows of.
func (l *acquireLoop) nextWait(ctx context.Context) time.Duration {
	l.sent, l.wait = time.Now(), requestWaitMax
	if !l.forever {
		l.wait = min(l.wait, time.Until(l.until))
	}
	if deadline, limited := ctx.Deadline(); limited {
		left := time.Until(deadline)
		l.wait = min(l.wait, left-min(answerSlackMax, left/5))
	}
	l.wait = max(0, l.wait)
	return l.wait
}

// pause keeps the loop from being tight where the gateway did not wait as long as it should have.
func (l *acquireLoop) pause(err error) time.Duration {
	if time.Since(l.sent) >= l.wait/2 && errors.Is(err, ErrLockHeld) && l.wait > 0 {
		l.failed = 0
		return 0
	}
	l.failed++
	policy := RetryPolicy{Max: 2 * time.Second}.withDefaults()
	return policy.pause(l.failed, 0, 0.5+jitter()/2)
}

// newestTokensMax bounds the names whose tokens a client remembers.
const newestTokensMax = 10_000

// newestTokens are the greatest fencing tokens that the client was granted, by name. It sends them with acquires: a
// gateway whose database went back to an older state, and does not know of it, finds out by them.
type newestTokens struct {
	mu     sync.Mutex
	byName map[string]int64
}

func (n *newestTokens) of(name string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byName[name]
}

func (n *newestTokens) note(name string, token int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byName == nil {
		n.byName = map[string]int64{}
	}
	if _, known := n.byName[name]; !known && len(n.byName) >= newestTokensMax {
		for forgotten := range n.byName {
			delete(n.byName, forgotten)
			break
		}
	}
	n.byName[name] = max(n.byName[name], token)
}
