package lockclient

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// beatsPerTTL leaves time for two more heartbeats after one that failed.
	beatsPerTTL = 3
	// tryLimitShare is the part of a TTL that one gateway may take to answer a heartbeat, so that a frozen gateway leaves
	// time for another.
	tryLimitShare = 6
	tryLimitMin   = 50 * time.Millisecond
)

// heartbeatConfig is that of one lease or session.
type heartbeatConfig struct {
	off     bool
	every   time.Duration
	onError func(error)
}

// interval returns the time from one heartbeat to the next. It is up to a fifth less than a third of the TTL, so that
// heartbeats that began together drift apart. random is from 0 to below 1.
func (c heartbeatConfig) interval(ttl time.Duration, random float64) time.Duration {
	longest := ttl / beatsPerTTL
	if c.every > 0 {
		longest = min(longest, c.every)
	}
	return longest - time.Duration(random*float64(longest)/5)
}

// sendBeat sends one renewal. limit is for each gateway.
type sendBeat func(ctx context.Context, limit time.Duration) error

// heartbeat renews something in the background. Its zero value is at rest.
type heartbeat struct {
	mu  sync.Mutex
	err error
}

// start begins to send heartbeats. It is called once.
func (h *heartbeat) start(client *Client, v *validity, config heartbeatConfig, send sendBeat) {
	client.background.run(func() { h.run(client, v, config, send) })
}

// last returns the error of the last heartbeat, nil if it succeeded.
func (h *heartbeat) last() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

func (h *heartbeat) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// run sends heartbeats until the validity ends.
func (h *heartbeat) run(client *Client, v *validity, config heartbeatConfig, send sendBeat) {
	defer h.reportLoss(v, config)
	pause := config.interval(v.currentTTL(), jitter())
	for failed := 0; sleep(v.life, pause) == nil; {
		ttl := v.currentTTL()
		err := send(v.life, max(ttl/tryLimitShare, tryLimitMin))
		_ = v.check() // before the error of a request that was under way while this process did not run
		switch {
		case err == nil:
			failed, pause = 0, config.interval(v.currentTTL(), jitter())
			h.note(nil)
		case v.life.Err() != nil:
			return
		case isGone(err):
			_ = v.end(v.lost(err))
			return
		default:
			failed++
			pause = heartbeatRetry(ttl).pause(failed, 0, jitter())
			h.note(err)
			client.retries.report(v.life, Retry{Err: err, Attempt: failed, Pause: pause})
			if config.onError != nil {
				config.onError(err)
			}
		}
	}
}

// reportLoss reports the end of the validity, if that is a loss.
func (h *heartbeat) reportLoss(v *validity, config heartbeatConfig) {
	cause := context.Cause(v.life)
	if !isLost(cause) {
		return
	}
	h.note(cause)
	if config.onError != nil {
		config.onError(cause)
	}
}

// heartbeatRetry is the policy of a failed heartbeat: so many retries that the lease survives an outage of a part of
// its TTL.
func heartbeatRetry(ttl time.Duration) RetryPolicy {
	return RetryPolicy{Base: ttl / 60, Max: ttl / 12}
}

// isGone says that a gateway has answered that the lease or session has ended.
func isGone(err error) bool {
	return (errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrNotFound)) && !endedByCaller(err)
}
