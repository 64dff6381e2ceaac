// Package gocronlock lets several schedulers of [github.com/go-co-op/gocron/v2] share their jobs by fencegate.
//
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(gocronlock.NewLocker(client, "cron/")))
//
// A [Locker] grants each run of a job to one scheduler. An [Elector] lets one scheduler run all jobs.
//
// # Limits
//
// A lock keeps two schedulers from running a job at the same time, not from running it twice: a scheduler with a slow
// clock finds the lock free after another has finished. And a job that was frozen may continue after the loss of its
// lease. Let a job write under a fencing token what must happen once: acquire a lease in the job, or use the Elector's
// Lease, whose token is the term. Write it under a key of the scheduled time, so that the second run finds it:
// docs/recipes.md computes one.
package gocronlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

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

// ErrNotLeader says that this process does not lead, or can't be sure of it.
var ErrNotLeader = errors.New("this process is not the leader")

// campaignPause is the pause after a failed campaign.
const campaignPause = time.Second

// Elector lets one of several schedulers run all jobs: the leader of an election. It is a [gocron.Elector], for
// gocron.WithDistributedElector. It campaigns in the background until Close.
type Elector struct {
	client   *lockclient.Client
	election string
	opts     []lockclient.LeaseOption
	onError  func(error)

	cancel  context.CancelFunc
	running sync.WaitGroup

	lease atomic.Pointer[lockclient.Lease]
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector campaigns in an election, and again whenever its term has ended, until Close. It calls onError, which
// may be nil, with the error of each failed campaign, and retries. Options such as lockclient.WithTTL apply to every
// term.
func NewElector(
	client *lockclient.Client,
	election string,
	onError func(error),
	opts ...lockclient.LeaseOption,
) *Elector {
	ctx, cancel := context.WithCancel(context.Background())
	if onError == nil {
		onError = func(error) {}
	}
	e := &Elector{client: client, election: election, opts: opts, onError: onError, cancel: cancel}
	e.running.Go(func() { e.run(ctx) })
	return e
}

// run campaigns, leads, and campaigns again.
func (e *Elector) run(ctx context.Context) {
	for ctx.Err() == nil {
		lease, err := e.client.Elect(ctx, e.election, e.opts...)
		if errors.Is(err, lockclient.ErrClosed) {
			return
		}
		if err != nil {
			if ctx.Err() == nil {
				e.onError(err)
			}
			select {
			case <-time.After(campaignPause):
			case <-ctx.Done():
			}
			continue
		}
		e.lease.Store(lease)
		select {
		case <-lease.Context().Done():
		case <-ctx.Done():
		}
		e.lease.Store(nil)
		lease.ReleaseOnce()
	}
}

// IsLeader returns nil if this process leads, by its own clock at this moment, and ErrNotLeader otherwise. It sends no
// request.
func (e *Elector) IsLeader(context.Context) error {
	if lease := e.Lease(); lease == nil || lease.Err() != nil {
		return ErrNotLeader
	}
	return nil
}

// Lease returns the lease of this process's term, nil if it does not lead: for writes of a job under the term's token.
func (e *Elector) Lease() *lockclient.Lease { return e.lease.Load() }

// Close resigns, and ends everything in the background. It may be called again.
func (e *Elector) Close() {
	e.cancel()
	e.running.Wait()
}
