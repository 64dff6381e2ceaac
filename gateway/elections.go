package gateway

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// valueBytesMax bounds a leader's value. The metadata of its lease keeps it, and has room for a little more.
const valueBytesMax = 4000

func (g *Gateway) electionRoutes(router *mux.Router) {
	const election = "/v1/elections/{election" + anyText
	g.route(router, election+"/campaign", methods{"POST": acting(g, electionName, g.campaign)})
	g.route(router, election+"/resign", methods{"POST": acting(g, electionName, g.resign)})
	g.route(router, election+"/observe", methods{"GET": g.observe})
	g.route(router, election, methods{"GET": g.answeringNamed(electionName, g.getElection)})
	g.route(router, "/v1/elections", methods{"GET": g.listElections()})
}

// campaign acquires the lock of the election's name.
func (g *Gateway) campaign(ctx context.Context, a action[api.CampaignRequest]) (any, error) {
	request, err := campaignRequest(a.name, a.body)
	if err != nil {
		return nil, err
	}
	lease, err := g.grant(ctx, a.w, a.r, request)
	return termAnswer(lease), err
}

func campaignRequest(election store.Name, body api.CampaignRequest) (store.AcquireRequest, error) {
	request := store.AcquireRequest{
		Lock: election, OwnerID: body.Candidate, Mode: store.Exclusive, Scope: store.Node,
	}
	if err := checkCandidate(body.Candidate); err != nil {
		return request, err
	}
	if len(body.Value) > valueBytesMax {
		return request, invalid("value has %d bytes, the limit is %d.", len(body.Value), valueBytesMax)
	}
	value := optionalJSON(body.Value)
	if value == nil {
		value = []byte("null")
	}
	if err := store.CheckJSON("value", value); err != nil { // the store would name the field metadata
		return request, err
	}
	// store.Elections recognises an election by this metadata, so it is there without a value, too.
	request.Metadata = bytes.Join([][]byte{[]byte(`{"value":`), value, []byte("}")}, nil)
	err := readTerms(&request, terms{body.TTLMS, body.WaitMS, body.SessionID, body.RequestID})
	return request, err
}

// checkCandidate applies the store's limits of an owner under the name that the field has here.
func checkCandidate(candidate string) error {
	switch {
	case candidate == "":
		return invalid("candidate is required.")
	case len(candidate) > store.OwnerBytesMax:
		return invalid("candidate has %d bytes, the limit is %d.", len(candidate), store.OwnerBytesMax)
	case strings.ContainsFunc(candidate, unicode.IsControl):
		return invalid("candidate has a control character.")
	}
	return nil
}

// resign releases the lock of the election's name.
func (g *Gateway) resign(ctx context.Context, a action[api.ResignRequest]) (any, error) {
	if err := checkCandidate(a.body.Candidate); err != nil {
		return nil, err
	}
	id, err := parseLeaseID("lease_id", a.body.LeaseID)
	if err != nil {
		return nil, err
	}
	if err := checkToken("term", a.body.Term); err != nil {
		return nil, err
	}
	ref := store.LeaseRef{Lock: a.name, OwnerID: a.body.Candidate, ID: id, Token: a.body.Term}
	return api.Resigned{Resigned: true}, g.releaseLease(ctx, ref)
}

func (g *Gateway) getElection(ctx context.Context, election store.Name) (any, error) {
	lock, err := g.backend.Lock(ctx, election)
	return electionAnswer(lock), err
}

func (g *Gateway) listElections() handler {
	return listing(g, collection[store.ElectionQuery, store.Lock, api.Election]{
		parameters: []string{"prefix"},
		query: func(_ *http.Request, page page) (store.ElectionQuery, error) {
			return store.ElectionQuery{Prefix: page.prefix, After: page.after, Limit: page.limit}, nil
		},
		rows:   Backend.Elections,
		item:   electionAnswer,
		cursor: func(_ store.ElectionQuery, last store.Lock) string { return string(last.Lock) },
		answer: func(_ context.Context, _ store.ElectionQuery, elections []api.Election, next string) (any, error) {
			return api.Elections{Elections: elections, NextCursor: next}, nil
		},
	})
}

func termAnswer(lease store.Lease) api.Term {
	return api.Term{
		Election: string(lease.Lock), Candidate: lease.OwnerID, Term: lease.Token, LeaseID: lease.ID.String(),
		TTLMS: lease.TTL.Milliseconds(), GrantedAt: api.Time{Time: lease.GrantedAt},
		ExpiresAt: api.Time{Time: lease.ExpiresAt}, WaitedMS: lease.Waited.Milliseconds(),
		HoldUntil: optionalTime(lease.HoldUntil), HoldLeftMS: holdLeft(lease),
		SessionID: optionalID(lease.SessionID), Value: leaderValue(lease.Metadata),
	}
}

// electionAnswer names the holder of the lock as the leader, while its lease is live and exclusive.
func electionAnswer(lock store.Lock) api.Election {
	answer := api.Election{Election: string(lock.Lock), Term: lock.Token, Candidates: []string{}}
	if holder := lock.Holder(); holder != nil && lock.State == store.LockHeld && holder.Mode == store.Exclusive {
		answer.Leader, answer.Term = holder.OwnerID, holder.Token
		answer.Since, answer.ExpiresAt = optionalTime(holder.GrantedAt), optionalTime(holder.ExpiresAt)
		answer.Value = leaderValue(holder.Metadata)
	}
	for _, waiter := range lock.Queue {
		if waiter.Mode == store.Exclusive {
			answer.Candidates = append(answer.Candidates, waiter.OwnerID)
		}
	}
	return answer
}

// leaderValue returns the leader's value from the metadata of its lease; nil if there is none.
func leaderValue(metadata []byte) []byte {
	var leader struct {
		Value jsontext.Value `json:"value"`
	}
	if metadata == nil || json.Unmarshal(metadata, &leader) != nil {
		return nil
	}
	return optionalJSON([]byte(leader.Value))
}
