package gocronlock

import (
	"context"
	"errors"

	"github.com/go-co-op/gocron/v2"

	"github.com/fencegate/fencegate/lockclient"
)

// Locker lets each run of a job happen on one of several schedulers: the one that is granted the lock of the job's
// name. It is a [gocron.Locker], for gocron.WithDistributedLocker.
type Locker struct {
	client *lockclient.Client
	prefix string
	opts   []lockclient.LeaseOption
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker makes a locker. The lock of a job is prefix and the job's name, which keeps it apart from other locks of
// the same database: "cron/" and "report" make cron/report. Options such as lockclient.WithTTL apply to every lease.
// A job whose lock name is invalid does not run; gocron logs why.
func NewLocker(client *lockclient.Client, prefix string, opts ...lockclient.LeaseOption) *Locker {
	return &Locker{client: client, prefix: prefix, opts: opts}
}

// Lock tries to acquire the lock, and the lease is renewed until Unlock. It returns lockclient.ErrLockHeld if another
// scheduler runs the job, or another error of lockclient.Client.Acquire. After any of them gocron skips this run.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.client.Acquire(ctx, l.prefix+key, l.opts...)
	if err != nil {
		return nil, err
	}
	return lock{lease}, nil
}

type lock struct{ lease *lockclient.Lease }

// Unlock releases the lease, also after the job's ctx has ended. The loss of the lease is no error: nothing is left to
// release.
func (l lock) Unlock(ctx context.Context) error {
	err := l.lease.Release(context.WithoutCancel(ctx))
	if errors.Is(err, lockclient.ErrLeaseLost) {
		return nil
	}
	return err
}
