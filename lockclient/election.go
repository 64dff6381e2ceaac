package lockclient

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// Leadership is a term of office: a lease on the lock with the election's name, renewed in the background. Its fencing
// token is the term.
type Leadership struct {
	lease *Lease
	term  api.Term
}

// Campaign stands for an election, and returns when the candidate leads, or ctx ends. WithWait bounds the wait, and
// WithWait(0) is one try. value is what observers read about the leader: any JSON value of at most 4000 bytes. The
// candidate is the owner: that of the client, of WithLeaseOwner, or of the session.
//
// The term lasts until Resign, the loss of its lease, or the end of its session or client. Campaign returns the
// errors of Acquire.
func (c *Client) Campaign(ctx context.Context, election string, value any, opts ...LeaseOption) (*Leadership, error) {
	op := "campaign " + election
	config := c.leaseConfig(append([]LeaseOption{func(config *leaseConfig) { config.wait = waitForCtx }}, opts...))
	if err := config.check(op); err != nil {
		return nil, err
	}
	if config.mode != "" || config.scope != "" || config.metadata != nil {
		return nil, refused(op, api.CodeInvalidRequest,
			"Shared, Subtree and WithMetadata are options of a lease, not of a candidate")
	}
	text, err := jsonOf(op, "value", value)
	if err != nil {
		return nil, err
	}
	if config.beat == nil && config.session == nil {
		config.beat = &heartbeatConfig{}
	}
	body := api.CampaignRequest{Candidate: config.owner, TTLMS: config.ttlMS(), SessionID: config.sessionID(), Value: text}
	leadership := &Leadership{}
	leadership.lease, err = c.awaitGrant(ctx, context.WithoutCancel(ctx), config,
		func(ctx context.Context, wait time.Duration, requestID string) (api.Lease, error) {
			body.WaitMS, body.RequestID = wait.Milliseconds(), &requestID
			term, err := c.API().Campaign(ctx, election, body)
			if err != nil {
				return api.Lease{}, err
			}
			leadership.term = term
			return leaseOf(term), nil
		})
	if err != nil {
		return nil, err
	}
	return leadership, nil
}

func leaseOf(term api.Term) api.Lease {
	return api.Lease{
		Lock: term.Election, OwnerID: term.Candidate, LeaseID: term.LeaseID, FencingToken: term.Term,
		Mode: "exclusive", Scope: "node", TTLMS: term.TTLMS, GrantedAt: term.GrantedAt, ExpiresAt: term.ExpiresAt,
		HoldUntil: term.HoldUntil, HoldLeftMS: term.HoldLeftMS, WaitedMS: term.WaitedMS, SessionID: term.SessionID,
	}
}

// Lease returns the lease of the term: write under it what only the leader may write.
func (l *Leadership) Lease() *Lease { return l.lease }

// Context returns the context of the term's lease: it is canceled when the candidate no longer leads.
func (l *Leadership) Context() context.Context { return l.lease.Context() }

// Err returns nil while the candidate can rely on leading, and the reason afterwards, as Lease.Err does.
func (l *Leadership) Err() error { return l.lease.Err() }

// Term returns the number of the term, greater than every term before: the fencing token of its lease.
func (l *Leadership) Term() int64 { return l.term.Term }

// Election returns the name of the election.
func (l *Leadership) Election() string { return l.term.Election }

// Candidate returns the leader.
func (l *Leadership) Candidate() string { return l.term.Candidate }

// Resign ends the term, as Lease.Release ends a lease.
func (l *Leadership) Resign(ctx context.Context) error {
	body := api.ResignRequest{Candidate: l.term.Candidate, LeaseID: l.term.LeaseID, Term: l.term.Term}
	return l.lease.release(ctx, func(ctx context.Context, a *API) error { return a.Resign(ctx, l.term.Election, body) })
}

// ResignOnce is Resign for a defer, as Lease.ReleaseOnce is Release. A nil leadership has resigned already.
func (l *Leadership) ResignOnce() {
	if l != nil {
		l.lease.ReleaseOnce()
	}
}

// Leader returns the leader and the other candidates. The answer may be out of date when it arrives: pass the term
// along with decisions based on it. It returns ErrNotFound if there never was a candidate.
func (c *Client) Leader(ctx context.Context, election string) (api.Election, error) {
	return c.API().Election(ctx, election)
}
