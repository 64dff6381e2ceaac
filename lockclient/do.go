package lockclient

import (
	"context"
	"errors"
)

// Do runs work while it holds the lock: it stands in line until the lock is granted or ctx ends (WithWait sets less), renews the lease in
// the background, and releases it when work has returned, panicked or called runtime.Goexit. A panic goes on.
//
// work's ctx is the lease's Context: it ends with the given ctx, too. work must stop when it ends; Do waits for it.
//
// If the lease was lost before work returned, the error is ErrLeaseLost and has work's own error in it: all that work did unfenced may
// have been done beside another holder. Otherwise it is what work returned. That the lease could not be released is not reported:
// work is done, and the lease ends with its TTL. What Acquire returns, Do returns without running work: of a deadline that ends the wait,
// context.DeadlineExceeded and ErrLockHeld. While no gateway serves it goes on trying: see [WithRetryHook].
func (c *Client) Do(ctx context.Context, lock string, work func(ctx context.Context, lease *Lease) error, opts ...LeaseOption) error {
	config := c.leaseConfig(append([]LeaseOption{func(config *leaseConfig) { config.wait = waitForCtx }}, opts...))
	if config.beat == nil && config.session == nil {
		config.beat = &heartbeatConfig{}
	}
	lease, err := c.acquire(ctx, ctx, lock, config)
	if err != nil {
		return err
	}
	defer lease.ReleaseOnce()
	err = work(lease.Context(), lease)
	if lost := lease.Err(); errors.Is(lost, ErrLeaseLost) {
		return errors.Join(lost, err)
	}
	if lost := lease.finish(); isLost(lost) {
		return errors.Join(lost, err)
	}
	return err
}

// finish is a ReleaseOnce that tells what came of it.
func (l *Lease) finish() (err error) {
	l.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseOnceTimeout)
		defer cancel()
		err = l.Release(ctx)
	})
	return err
}
