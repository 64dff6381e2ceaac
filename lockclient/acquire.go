package lockclient

import (
	"context"
	"errors"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
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
