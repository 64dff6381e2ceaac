package lockclient

import (
	"context"
	"errors"
)

// Do runs work while it holds the lock. It waits until the lock is granted or ctx ends (WithWait sets a shorter
// wait), renews the lease as Acquire does, and releases it when work has returned, panicked or called
// runtime.Goexit. It does not recover a panic.
//
// The ctx of work is the lease's Context, which ends with the given ctx, too. work must stop when it ends; Do waits
// for it.
//
// If the lease was lost before work returned, the error matches ErrLeaseLost, and work's own error: unfenced effects of
// work may have happened beside another holder's. Otherwise Do returns the error of work. It does not report a failed
// release: work is done, and the lease ends with its TTL. If the lock is not granted, Do returns the error of Acquire
// without running work. While no gateway serves, Do retries: see [WithRetryHook].
func (c *Client) Do(
	ctx context.Context, lock string, work func(ctx context.Context, lease *Lease) error, opts ...LeaseOption,
) error {
	lease, err := c.acquire(ctx, ctx, lock, c.lastingConfig(opts))
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

// finish is a ReleaseOnce that returns the error.
func (l *Lease) finish() (err error) {
	l.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseOnceTimeout)
		defer cancel()
		err = l.Release(ctx)
	})
	return err
}
