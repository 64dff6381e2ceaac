package lockclient

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

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

// sendAcquire sends one acquire or campaign.
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

// acquireLoop is the state of one call of Acquire or Campaign, which may send many requests.
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
