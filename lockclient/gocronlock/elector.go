package gocronlock

import (
	"context"
	"errors"
	"sync"
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

	mu         sync.Mutex
	leadership *lockclient.Leadership
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
		leadership, err := e.client.Campaign(ctx, e.election, nil, e.opts...)
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
		e.set(leadership)
		select {
		case <-leadership.Context().Done():
		case <-ctx.Done():
		}
		e.set(nil)
		leadership.ResignOnce()
	}
}

func (e *Elector) set(leadership *lockclient.Leadership) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leadership = leadership
}

// IsLeader returns nil if this process leads, by its own clock at this moment, and ErrNotLeader otherwise. It sends no
// request.
func (e *Elector) IsLeader(context.Context) error {
	if leadership := e.Leadership(); leadership == nil || leadership.Err() != nil {
		return ErrNotLeader
	}
	return nil
}

// Leadership returns the term of this process, nil if it does not lead: for writes of a job under the term's token.
func (e *Elector) Leadership() *lockclient.Leadership {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leadership
}

// Close resigns, and ends everything in the background. It may be called again.
func (e *Elector) Close() {
	e.cancel()
	e.running.Wait()
}
