//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// treePath leases subtrees, nested ones too, and names in them, alone and shared, for a TTL and in sessions, by HTTP.
type treePath struct {
	w    *world
	root string
	// newest is the newest token that a client of the tree was granted. They send it with each acquire; nil: they do not.
	newest *atomic.Int64

	gateway func() *lockclient.API
	session string // of the lease that was acquired last; "" if it has none
}

func newTreePath(w *world, root string, newest *atomic.Int64) *treePath {
	return &treePath{w: w, root: root, newest: newest}
}

func (*treePath) kind() string { return "tree" }

func (p *treePath) draw(random *rand.Rand) (lock string, request api.AcquireRequest, resources []string) {
	lock, request, resources = drawInTree(random, p.root+"/a/1", p.root+"/b/1")
	request.WaitMS = random.Int64N(300)
	p.gateway = func() *lockclient.API { return p.w.members[random.IntN(len(p.w.members))].api }
	if random.IntN(3) == 0 {
		p.session = "wanted"
	} else {
		p.session = ""
	}
	return lock, request, resources
}

func (p *treePath) acquire(ctx context.Context, lock string, request api.AcquireRequest) (lease api.Lease, granted bool) {
	calling, cancel := context.WithTimeout(ctx, 2*attemptTimeout)
	defer cancel()
	ttl := int64(pathTTLMS)
	if p.session != "" {
		session, err := p.gateway().CreateSession(calling, api.SessionRequest{OwnerID: request.OwnerID, TTLMS: &ttl})
		if err != nil {
			p.note(err)
			return lease, false
		}
		p.session, request.SessionID = session.SessionID, &session.SessionID
	} else {
		request.TTLMS = &ttl
	}
	if p.newest != nil {
		request.NewestToken = p.newest.Load()
	}
	lease, err := p.gateway().Acquire(calling, lock, request)
	p.note(err)
	if p.newest != nil {
		for known := p.newest.Load(); known < lease.FencingToken && !p.newest.CompareAndSwap(known, lease.FencingToken); {
			known = p.newest.Load()
		}
	}
	return lease, err == nil
}

// note notes an answer that no client can have deserved.
func (p *treePath) note(err error) {
	switch {
	case err == nil, errors.Is(err, lockclient.ErrUnavailable), errors.Is(err, context.Canceled),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, lockclient.ErrLockHeld),
		errors.Is(err, lockclient.ErrLeaseLost), errors.Is(err, lockclient.ErrNotFound):
	default:
		p.w.journal.Unexpected(fmt.Sprintf("tree: %v", err))
	}
}

func (p *treePath) write(ctx context.Context, w attempt) answer {
	result, err := p.gateway().Put(ctx, w.resource, w.key, lockclient.Write{
		Token: api.FencingToken{Token: w.token, Sequence: &w.sequence}, LeaseID: w.leaseID,
		ContentType: "application/json", Value: []byte(w.value),
	})
	if err == nil {
		return answer{verdict: admitted, version: result.Version, replayed: result.Replayed}
	}
	return answerTo(err, w.token >= neverGranted)
}

// bare writes without a token.
func (p *treePath) bare(ctx context.Context, w attempt) answer {
	_, err := p.gateway().Put(ctx, w.resource, w.key, lockclient.Write{
		LeaseID: w.leaseID, ContentType: "application/json", Value: []byte(w.value),
	})
	if err == nil {
		return answer{verdict: admitted}
	}
	return answerTo(err, false)
}

// answerTo says what an error means for a write. A token that was invented must be answered as unknown.
func answerTo(err error, invented bool) answer {
	problem := lockclient.ProblemOf(err)
	if problem == nil {
		return answer{verdict: unknown, surprise: err}
	}
	switch problem.Code {
	case api.CodeUnavailable:
		if problem.Outcome == api.OutcomeNotApplied {
			return answer{verdict: notApplied}
		}
		return answer{verdict: unknown}
	case api.CodeTokenUnknown:
		return answer{verdict: refused}
	case api.CodeTokenStale, api.CodeLeaseMismatch, api.CodeTokenRequired:
		if !invented {
			return answer{verdict: refused}
		}
	}
	return answer{verdict: refused, surprise: err}
}

func (p *treePath) release(ctx context.Context, lease api.Lease) bool {
	calling, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	var err error
	if p.session != "" {
		_, err = p.gateway().EndSession(calling, p.session)
	} else {
		err = p.gateway().Release(calling, lease.Lock, api.ReleaseRequest{
			OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken,
		})
	}
	p.note(err)
	return err == nil
}

func (*treePath) end() {}
