package gocronlock

import (
	"context"
	"errors"

	"github.com/go-co-op/gocron/v2"

	"github.com/fencegate/fencegate/lockclient"
)

// Locker lets each run of a job happen on one of several schedulers: the one that is granted the lock of the job's name. It is a
// [gocron.Locker], for gocron.WithDistributedLocker.
type Locker struct {
	client *lockclient.Client
	prefix string
	opts   []lockclient.LeaseOption
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker makes a locker of the client's. The lock of a job is the prefix and the job's name, so that other users of the same
// database are not in the way: "cron/" and "report" make cron/report. Options such as lockclient.WithTTL are for every lease. A name that
// is no valid lock name keeps the job from running; gocron logs why.
func NewLocker(client *lockclient.Client, prefix string, opts ...lockclient.LeaseOption) *Locker {
	opts = append([]lockclient.LeaseOption{lockclient.WithHeartbeat()}, opts...)
	return &Locker{client: client, prefix: prefix, opts: opts}
}

// Lock is a try, and the lease is renewed until Unlock. It returns lockclient.ErrLockHeld if another scheduler runs the job, and what
// lockclient.Client.Acquire returns otherwise; in each case gocron skips this run.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.client.Acquire(ctx, l.prefix+key, l.opts...)
	if err != nil {
		return nil, err
	}
	return lock{lease}, nil
}

type lock struct{ lease *lockclient.Lease }

// Unlock releases the lease, also after the job's ctx has ended. A lease that was lost has nothing to be released, and is no error:
// gocron could do nothing about it.
func (l lock) Unlock(ctx context.Context) error {
	err := l.lease.Release(context.WithoutCancel(ctx))
	if errors.Is(err, lockclient.ErrLeaseLost) {
		return nil
	}
	return err
}
