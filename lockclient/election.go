package lockclient

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// Campaign stands for an election, and returns when the candidate leads, or ctx ends. WithWait bounds the wait, and
// WithWait(0) is one try. value is what observers read about the leader: any JSON value of at most 4000 bytes. The
// candidate is the owner: that of the client, of WithLeaseOwner, or of the session.
//
// The lease is that of the term: on the lock with the election's name, renewed as by Acquire. Its fencing token is
// the number of the term, greater than every term before. Release resigns. Campaign returns the errors of Acquire.
func (c *Client) Campaign(ctx context.Context, election string, value any, opts ...LeaseOption) (*Lease, error) {
	op := "campaign " + election
	config := c.lastingConfig(opts)
	if err := config.check(op); err != nil {
		return nil, err
	}
	if config.mode != "" || config.scope != "" || config.metadata != nil {
		return nil, refused(op, api.CodeInvalidRequest,
			"Shared, Subtree and WithMetadata are options of a lease, not of a candidate")
	}
	text, err := optionalJSON(op, "value", value)
	if err != nil {
		return nil, err
	}
	body := api.CampaignRequest{Candidate: config.owner, TTLMS: config.ttlMS(), SessionID: config.sessionID(), Value: text}
	send := func(ctx context.Context, wait time.Duration, requestID string) (api.Lease, error) {
		body.WaitMS, body.RequestID, body.NewestTerm = wait.Milliseconds(), &requestID, c.newest.of(election)
		term, err := c.API().Campaign(ctx, election, body)
		if err == nil {
			c.newest.note(election, term.Term)
		}
		return leaseOf(term), err
	}
	return c.awaitGrant(ctx, context.WithoutCancel(ctx), config, send)
}

func leaseOf(term api.Term) api.Lease {
	return api.Lease{
		Lock: term.Election, OwnerID: term.Candidate, LeaseID: term.LeaseID, FencingToken: term.Term,
		Mode: "exclusive", Scope: "node", TTLMS: term.TTLMS, GrantedAt: term.GrantedAt, ExpiresAt: term.ExpiresAt,
		HoldUntil: term.HoldUntil, HoldLeftMS: term.HoldLeftMS, WaitedMS: term.WaitedMS, SessionID: term.SessionID,
	}
}

// Observe begins to observe an election. The first item is the current leader, and each further one another leader, or
// none. After a lost connection the watch may return the same leader again. Its end and its errors are those of
// Client.Watch.
func (c *Client) Observe(ctx context.Context, election string) (*Watch[api.Election], error) {
	stream, err := c.openEvents(ctx, electionCall("observe", http.MethodGet, election, "/observe"), "")
	if err != nil {
		return nil, err
	}
	return &Watch[api.Election]{stream, decodeElection}, nil
}

func decodeElection(got serverEvent) (election api.Election, ok bool, err error) {
	if got.kind != api.EventLeader {
		return election, false, nil
	}
	err = json.Unmarshal(got.data, &election)
	return election, true, err
}
