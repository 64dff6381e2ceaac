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
		lease, err := e.client.Campaign(ctx, e.election, nil, e.opts...)
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
