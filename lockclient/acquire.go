package lockclient

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

const (
	// requestWaitMax is as long as a gateway lets one request stand in line.
	requestWaitMax = 10 * time.Minute
	// answerSlackMax is what is left of ctx for the answer of a gateway that has waited in vain.
	answerSlackMax = time.Second
	// confirmShare is the part of its TTL that a grant may be old when it arrives without being renewed at once.
	confirmShare = 10
	// abandonTimeout bounds the work of giving back what was granted to nobody.
	abandonTimeout = 5 * time.Second
)

// Acquire asks for a lease on a lock. Without WithWait it is a try.
//
// Every acquire carries a random request_id, so that it is sent again where an answer was lost: there is never a second lease. Where the
// caller gives up before it is known whether a lease was granted, the client gives that back in the background, as far as it can.
//
// It returns ErrLockHeld if another holds the lock (see Holder), after the wait if there is one, together with ctx's error if that ended
// the wait; ErrDeadlock if the wait would never end
// (see Cycle); ErrUnavailable if no gateway could serve; ErrClosed. It also returns ErrLeaseLost if the session is lost that it
// should be in.
//
// The lease is not renewed unless WithHeartbeat or StartHeartbeat says so. It does not hang on ctx, which is for the call alone.
func (c *Client) Acquire(ctx context.Context, lock string, opts ...LeaseOption) (*Lease, error) {
	return c.acquire(ctx, context.WithoutCancel(ctx), lock, c.leaseConfig(opts))
}

// AcquireWithRetry tries until it is granted the lock, as often as the policy says; the zero policy is ten tries. It goes on after
// ErrLockHeld, ErrUnavailable and ErrRateLimited, honours the pause that the gateway recommends, and returns what the last try
// returned. It stands in no line: whoever does is served before it. Prefer WithWait where many want the lock.
func (c *Client) AcquireWithRetry(ctx context.Context, lock string, policy RetryPolicy, opts ...LeaseOption) (*Lease, error) {
	var lease *Lease
	worth := func(err error) bool { return unanswered(err) || errors.Is(err, ErrLockHeld) }
	err := c.insist(ctx, policy, worth, func() (err error) {
		lease, err = c.Acquire(ctx, lock, opts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// acquire makes a lease whose context has the values and the end of base.
func (c *Client) acquire(ctx, base context.Context, lock string, config leaseConfig) (*Lease, error) {
	op := "acquire " + lock
	if err := config.check(op); err != nil {
		return nil, err
	}
	metadata, err := jsonOf(op, "metadata", config.metadata)
	if err != nil {
		return nil, err
	}
	body := api.AcquireRequest{
		OwnerID: config.owner, TTLMS: config.ttlMS(), Mode: config.mode, Scope: config.scope, SessionID: config.sessionID(), Metadata: metadata,
	}
	return c.stand(ctx, base, config, func(ctx context.Context, wait time.Duration, requestID string) (api.Lease, error) {
		body.WaitMS, body.RequestID = wait.Milliseconds(), &requestID
		return c.API().Acquire(ctx, lock, body)
	})
}

// ask sends one acquire or campaign.
type ask func(ctx context.Context, wait time.Duration, requestID string) (api.Lease, error)

// stand asks until it is granted a lease, is refused for good, or has waited long enough.
func (c *Client) stand(ctx, base context.Context, config leaseConfig, send ask) (*Lease, error) {
	if err := c.background.open(); err != nil {
		return nil, err
	}
	line := newLine(config.wait)
	var held error // the last answer that the lock is
	for {
		granted, err := c.turn(ctx, line, send)
		if err == nil {
			lease, err := c.hold(ctx, base, line, granted, config, send)
			if err == nil || !line.waits(ctx) || !errors.Is(err, ErrLeaseLost) || c.background.open() != nil || config.session != nil {
				return lease, err
			}
			// It was lost on the way: the grant was too old when it was heard of. Stand again.
			line.renew()
			continue
		}
		if errors.Is(err, ErrLockHeld) {
			held = err
		}
		switch {
		case errors.Is(err, ErrOutcomeUnknown) && (ctx.Err() != nil || !line.waits(ctx)):
			c.abandon(ctx, line.requestID, send)
			return nil, endedWith(ctx, err, held)
		case errors.Is(err, ErrLeaseLost) && config.session == nil && line.waits(ctx):
			// The answer that granted it was lost, and it has ended before it was heard of. Stand again.
			line.renew()
			continue
		case !line.waits(ctx) || !(unanswered(err) || errors.Is(err, ErrLockHeld)):
			return nil, endedWith(ctx, err, held)
		}
		pause := line.pause(err)
		if unanswered(err) {
			c.retries.report(ctx, Retry{Err: err, Attempt: line.failed, Pause: pause})
		}
		if sleep(ctx, pause) != nil {
			return nil, endedWith(ctx, err, held)
		}
	}
}

// turn asks once, and again where the answer was lost: the request_id makes that safe.
func (c *Client) turn(ctx context.Context, line *line, send ask) (api.Lease, error) {
	var granted api.Lease
	err := c.insist(ctx, lostAnswers, func(err error) bool { return errors.Is(err, ErrOutcomeUnknown) && unanswered(err) }, func() (err error) {
		granted, err = send(ctx, line.next(ctx), line.requestID)
		return err
	})
	return granted, err
}

// lostAnswers is short: whoever tries wants to know, and whoever waits asks again.
var lostAnswers = RetryPolicy{Attempts: 5, Base: 50 * time.Millisecond, Max: time.Second, Within: 10 * time.Second}

// line is one standing for a lock.
type line struct {
	requestID string
	// from is before requestID was sent for the first time: what it is granted was not granted before.
	from  moment
	until time.Time
	// forever says that only ctx ends the wait.
	forever bool
	asked   time.Time
	wait    time.Duration
	failed  int
}

func newLine(wait time.Duration) *line {
	l := &line{forever: wait == waitForCtx, until: time.Now().Add(wait)}
	l.renew()
	return l
}

// renew begins with another request_id, after what the last one was granted has ended.
func (l *line) renew() { l.requestID, l.from = rand.Text(), now() }

// waits says whether there is time left to wait.
func (l *line) waits(ctx context.Context) bool {
	return ctx.Err() == nil && (l.forever || time.Until(l.until) >= time.Millisecond)
}

// next is how long the gateway should wait now. It leaves time for its answer before ctx ends: an answer that nobody hears may be a
// lease that nobody knows of.
func (l *line) next(ctx context.Context) time.Duration {
	l.asked, l.wait = time.Now(), requestWaitMax
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

// pause keeps from asking in a tight loop where the gateway did not wait, though it was asked to.
func (l *line) pause(err error) time.Duration {
	if time.Since(l.asked) >= l.wait/2 && errors.Is(err, ErrLockHeld) && l.wait > 0 {
		l.failed = 0
		return 0
	}
	l.failed++
	policy := RetryPolicy{Max: 2 * time.Second}.withDefaults()
	return policy.pause(l.failed, 0, 0.5+jitter()/2)
}

// hold makes a lease of a grant.
func (c *Client) hold(ctx, base context.Context, line *line, granted api.Lease, config leaseConfig, send ask) (*Lease, error) {
	lease, err := newLease(base, c, granted, config.session)
	if err != nil {
		c.giveBack(granted)
		return nil, err
	}
	if err := lease.confirm(ctx, line, send); err != nil {
		_ = lease.trust.end(err)
		c.giveBack(granted)
		return nil, err
	}
	if config.beat != nil {
		lease.beat(config.beat)
	}
	return lease, nil
}

// confirm finds out how long a lease that was just granted can be relied on.
//
// What it was asked for with may be long ago: the owner stood in line, or answers were lost. "Sent + TTL" may have passed although the
// lease was granted just now. The answer's waited_ms does not help, since it need not count from what this process counts from: of a
// grant that is answered a second time it is the first wait's. So such a lease is renewed before it is given out: the renewal's own
// "sent + TTL" is a bound that needs no other clock and no belief. A lease in a session, which is not renewed, is asked for again by the same
// request where it has a limit of its own.
func (l *Lease) confirm(ctx context.Context, line *line, send ask) error {
	ttl, end := time.Duration(l.granted.TTLMS)*time.Millisecond, holdOf(l.granted, line.from)
	if l.session != nil && end == nil {
		return nil
	}
	fresh := ttl
	if end != nil {
		fresh = min(ttl, end.left)
	}
	switch {
	case now().since(line.from) <= fresh/confirmShare:
		if l.session == nil {
			l.trust.set(line.from, ttl)
		}
		l.trust.limit(end)
		return nil
	case l.session == nil:
		// Until the renewal is answered the lease is not looked at; nobody has it yet.
		return l.renew(ctx, nil)
	}
	return l.client.insist(ctx, lostAnswers, unanswered, func() error {
		from := now()
		again, err := send(ctx, 0, line.requestID)
		if err == nil {
			l.trust.limit(holdOf(again, from))
		}
		return err
	})
}

// giveBack releases, in the background, a lease that nobody has got.
func (c *Client) giveBack(granted api.Lease) {
	c.background.run(func() {
		ctx, cancel := context.WithTimeout(c.background.ctx, abandonTimeout)
		defer cancel()
		_ = c.API().Release(ctx, granted.Lock, releaseOf(granted))
	})
}

// abandon finds out, in the background, whether a request was granted a lease that nobody heard of, and releases it. The same request
// sent again without a wait is answered with that lease; if there is none it is refused, or granted and released at once.
func (c *Client) abandon(ctx context.Context, requestID string, send ask) {
	ctx = context.WithoutCancel(ctx)
	c.background.run(func() {
		ctx, cancel := context.WithTimeout(ctx, abandonTimeout)
		defer cancel()
		defer context.AfterFunc(c.background.ctx, cancel)()
		_ = c.insist(ctx, insistence, unanswered, func() error {
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
