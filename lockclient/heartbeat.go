package lockclient

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// beatsPerTTL leaves two more chances after a heartbeat that failed.
	beatsPerTTL = 3
	// tryLimitShare is the part of a TTL that one gateway may take to answer a heartbeat, so that a frozen one leaves time for another.
	tryLimitShare = 6
	tryLimitMin   = 50 * time.Millisecond
)

// HeartbeatOption changes how a heartbeat runs.
type HeartbeatOption func(*heartbeatConfig)

type heartbeatConfig struct {
	every   time.Duration
	onError func(error)
}

// HeartbeatEvery sets the longest time between two renewals. Default, and the most that is taken: a third of the TTL.
func HeartbeatEvery(interval time.Duration) HeartbeatOption {
	return func(c *heartbeatConfig) { c.every = interval }
}

// OnHeartbeatError sets what is called with every heartbeat that fails, in the heartbeat's goroutine: keep it short, and don't call Close
// in it. Failures are retried until the lease is lost; the last call has an error that is ErrLeaseLost.
func OnHeartbeatError(told func(error)) HeartbeatOption {
	return func(c *heartbeatConfig) { c.onError = told }
}

func heartbeatOf(opts []HeartbeatOption) *heartbeatConfig {
	config := &heartbeatConfig{}
	for _, opt := range opts {
		opt(config)
	}
	return config
}

// interval is the time from one heartbeat to the next: up to a fifth less than a third of the TTL, so that those who began together
// drift apart. random is from 0 to below 1.
func (c *heartbeatConfig) interval(ttl time.Duration, random float64) time.Duration {
	longest := ttl / beatsPerTTL
	if c.every > 0 {
		longest = min(longest, c.every)
	}
	return longest - time.Duration(random*float64(longest)/5)
}

// heart keeps a trust alive. Its zero value is at rest.
type heart struct {
	mu      sync.Mutex
	beating bool
	err     error
}

// start begins to beat in the background, unless it does already. beat sends one renewal, with the limit for each gateway.
func (h *heart) start(client *Client, t *trust, config *heartbeatConfig, beat func(ctx context.Context, limit time.Duration) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.beating {
		h.beating = client.background.run(func() { h.run(client, t, config, beat) })
	}
}

// last is the error of the last heartbeat, nil if it succeeded.
func (h *heart) last() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

func (h *heart) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// run beats until the trust ends.
func (h *heart) run(client *Client, t *trust, config *heartbeatConfig, beat func(ctx context.Context, limit time.Duration) error) {
	pause := config.interval(t.currentTTL(), jitter())
	for failed := 0; ; {
		if sleep(t.life, pause) != nil {
			h.tellEnd(t, config)
			return
		}
		ttl := t.currentTTL()
		err := beat(t.life, max(ttl/tryLimitShare, tryLimitMin))
		switch {
		case err == nil:
			failed, pause = 0, config.interval(t.currentTTL(), jitter())
			h.note(nil)
		case t.life.Err() != nil:
			h.tellEnd(t, config)
			return
		case gone(err):
			_ = t.end(t.lost(err))
			h.tellEnd(t, config)
			return
		default:
			failed++
			pause = beatAgain(ttl).pause(failed, 0, jitter())
			h.note(err)
			client.retries.report(t.life, Retry{Err: err, Attempt: failed, Pause: pause})
			if config.onError != nil {
				config.onError(err)
			}
		}
	}
}

// tellEnd tells of a loss; an end that was asked for is none.
func (h *heart) tellEnd(t *trust, config *heartbeatConfig) {
	cause := context.Cause(t.life)
	if !isLost(cause) {
		return
	}
	h.note(cause)
	if config.onError != nil {
		config.onError(cause)
	}
}

// beatAgain is how a failed heartbeat is repeated: often enough that an outage of a part of the TTL is outlived.
func beatAgain(ttl time.Duration) RetryPolicy {
	return RetryPolicy{Base: ttl / 60, Max: ttl / 12}
}

// gone says that a gateway has answered that what is renewed is no more.
func gone(err error) bool {
	return (errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrNotFound)) && !endedByLoss(err)
}
