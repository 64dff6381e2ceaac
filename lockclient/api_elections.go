package lockclient

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// Campaign stands for an election, as Acquire acquires a lock: the term is a lease on the lock with that name, and is
// renewed as one. It returns ErrLockHeld if another candidate leads, and the other errors of Acquire.
func (a *API) Campaign(ctx context.Context, election string, body api.CampaignRequest) (api.Term, error) {
	call := electionCall("campaign", http.MethodPost, election, "/campaign").withJSON(body)
	call.wait = time.Duration(max(0, body.WaitMS)) * time.Millisecond
	call.repeat, call.idempotent = repeatAcquire, body.RequestID != nil
	return fetch(ctx, a, call, termLacks)
}

// Resign ends a term. It may be sent twice. It returns ErrLeaseLost if the term was broken, or has expired and another
// candidate leads.
func (a *API) Resign(ctx context.Context, election string, body api.ResignRequest) error {
	call := electionCall("resign", http.MethodPost, election, "/resign").withJSON(body)
	call.idempotent = true
	_, err := fetch[api.Resigned](ctx, a, call, nil)
	return err
}

// Election returns the leader and the other candidates. The answer may be out of date when it arrives: pass the
// term along with decisions based on it. It returns ErrNotFound if there never was a candidate.
func (a *API) Election(ctx context.Context, election string) (api.Election, error) {
	return fetch[api.Election](ctx, a, electionCall("get election", http.MethodGet, election, ""), nil)
}

func electionCall(verb, method, election, suffix string) request {
	call := nameCall(verb, method, "/v1/elections/", election, suffix)
	for segment := range strings.SplitSeq(election, "/") {
		if slices.Contains(reservedElections, segment) {
			call.err = reservedSegment(call.op, election, segment)
		}
	}
	return call
}

func termLacks(term api.Term) string {
	if term.Term < 1 || term.LeaseID == "" {
		return "a term of office without term or lease_id"
	}
	return ""
}
