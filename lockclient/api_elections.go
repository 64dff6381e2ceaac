package lockclient

import (
	"context"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// Campaign stands for an election, as Acquire acquires a lock: the term is a lease on the lock with that name, and is
// renewed as one. It returns ErrLockHeld if another candidate leads, and the other errors of Acquire.
func (a *API) Campaign(ctx context.Context, election string, body api.CampaignRequest) (api.Term, error) {
	call, err := electionCall("campaign", election, body)
	if err != nil {
		return api.Term{}, err
	}
	call.wait = time.Duration(max(0, body.WaitMS)) * time.Millisecond
	call.repeat, call.idempotent = repeatAcquire, body.RequestID != nil
	return fetch(ctx, a, call, termLacks)
}

// Resign ends a term. It may be sent twice. It returns ErrLeaseLost if the term was broken, or has expired and another
// candidate leads.
func (a *API) Resign(ctx context.Context, election string, body api.ResignRequest) error {
	call, err := electionCall("resign", election, body)
	if err != nil {
		return err
	}
	call.idempotent = true
	_, err = fetch(ctx, a, call, nothing[api.Resigned])
	return err
}

// Election returns the leader and the other candidates. The answer may be out of date when it arrives. It returns
// ErrNotFound if there never was a candidate.
func (a *API) Election(ctx context.Context, election string) (api.Election, error) {
	op := "get election " + election
	path, err := electionPath(op, election)
	if err != nil {
		return api.Election{}, err
	}
	return fetch(ctx, a, request{op: op, method: http.MethodGet, path: "/v1/elections/" + path}, nothing[api.Election])
}

func electionCall(verb, election string, body any) (request, error) {
	op := verb + " " + election
	path, err := electionPath(op, election)
	if err != nil {
		return request{}, err
	}
	return actionCall(op, "/v1/elections/"+path+"/"+verb, body)
}

func termLacks(term api.Term) string {
	if term.Term < 1 || term.LeaseID == "" {
		return "a term of office without term or lease_id"
	}
	return ""
}
