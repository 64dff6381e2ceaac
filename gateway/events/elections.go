// Package events is the part of the API that tells what becomes of locks: watches, and elections, whose leaders are the
// holders of locks.
package events

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/locks"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/watch"
)

// ValueBytesMax bounds a leader's value. The metadata of its lease keeps it, and has room for a little more.
const ValueBytesMax = 4000

// Service shows locks as they are now, wherever their leases are kept, their events, and elections.
type Service interface {
	Lock(context.Context, store.Name) (store.Lock, error)
	Watch(ctx context.Context, lock store.Name, after *int64) (*watch.Subscription, error)

	Elections(context.Context, store.ElectionQuery) ([]store.Lock, error)
}

// Endpoints are watches of locks, and elections, which are locks under other names.
type Endpoints struct {
	*endpoint.Server

	locks   *locks.Endpoints
	service Service
}

// New returns the endpoints of events.
func New(server *endpoint.Server, locks *locks.Endpoints, service Service) *Endpoints {
	return &Endpoints{server, locks, service}
}

// Routes adds the routes of watches and elections.
func (e *Endpoints) Routes(router *mux.Router) {
	e.Route(router, "/v1/locks/{lock"+endpoint.AnyText+"/watch", endpoint.Methods{"GET": e.watchLock})
	const election = "/v1/elections/{election" + endpoint.AnyText
	e.Route(router, election+"/campaign", endpoint.Methods{
		"POST": endpoint.WithBody(e.Server, endpoint.ElectionName, e.campaign),
	})
	e.Route(router, election+"/resign", endpoint.Methods{
		"POST": endpoint.WithBody(e.Server, endpoint.ElectionName, e.resign),
	})
	e.Route(router, election+"/observe", endpoint.Methods{"GET": e.observe})
	e.Route(router, election, endpoint.Methods{
		"GET": endpoint.WithoutBodyNamed(e.Server, endpoint.ElectionName, e.getElection),
	})
	e.Route(router, "/v1/elections", endpoint.Methods{"GET": e.WithoutBody(e.listElections)})
}

// campaign acquires the lock of the election's name.
func (e *Endpoints) campaign(ctx context.Context, a endpoint.Action[store.Name, api.CampaignRequest]) (any, error) {
	request, err := campaignRequest(a.Key, a.Body)
	if err != nil {
		return nil, err
	}
	lease, err := e.locks.Grant(ctx, a.W, a.R, request)
	return termAnswer(*lease), err
}

func campaignRequest(election store.Name, body api.CampaignRequest) (*store.AcquireRequest, error) {
	if err := checkCandidate(body.Candidate); err != nil {
		return nil, err
	}
	if len(body.Value) > ValueBytesMax {
		return nil, endpoint.Invalid(
			"value has %d bytes, the limit is %d.", len(body.Value), ValueBytesMax,
		)
	}
	if body.NewestTerm < 0 || body.NewestTerm > api.MaxToken {
		return nil, endpoint.Invalid("newest_term is %d, it must be 0 to 2^53-1.", body.NewestTerm)
	}
	value := endpoint.OptionalJSON(body.Value)
	if value == nil {
		value = []byte("null")
	}
	if err := store.CheckJSON("value", value); err != nil { // the store would name the field metadata
		return nil, err
	}
	request, err := locks.AcquireRequest(election, &api.AcquireRequest{
		OwnerID: body.Candidate, TTLMS: body.TTLMS, WaitMS: body.WaitMS, SessionID: body.SessionID, RequestID: body.RequestID,
		NewestToken: body.NewestTerm,
		// store.Elections recognises an election by this metadata, so it is there without a value, too.
		Metadata: slices.Concat([]byte(`{"value":`), value, []byte("}")),
	})
	request.Election = true
	return request, err
}

// checkCandidate applies the store's limits of an owner under the name that the field has here.
func checkCandidate(candidate string) error {
	switch {
	case candidate == "":
		return endpoint.Invalid("candidate is required.")
	case len(candidate) > store.OwnerBytesMax:
		return endpoint.Invalid("candidate has %d bytes, the limit is %d.", len(candidate), store.OwnerBytesMax)
	case strings.ContainsFunc(candidate, unicode.IsControl):
		return endpoint.Invalid("candidate has a control character.")
	}
	return nil
}

// resign releases the lock of the election's name.
func (e *Endpoints) resign(ctx context.Context, a endpoint.Action[store.Name, api.ResignRequest]) (any, error) {
	if err := checkCandidate(a.Body.Candidate); err != nil {
		return nil, err
	}
	ref, err := endpoint.LeaseRef(a.Key, a.Body.Candidate, a.Body.LeaseID, "term", a.Body.Term)
	if err != nil {
		return nil, err
	}
	return api.Resigned{Resigned: true}, e.locks.Release(ctx, ref)
}

func (e *Endpoints) getElection(ctx context.Context, election store.Name) (any, error) {
	lock, err := e.service.Lock(ctx, election)
	return electionAnswer(lock), err
}

func (e *Endpoints) listElections(ctx context.Context, r *http.Request) (any, error) {
	page := endpoint.ReadPage(r, "prefix")
	if page.Err != nil {
		return nil, page.Err
	}
	query := store.ElectionQuery{Prefix: page.Prefix, After: page.After, Limit: page.Limit}
	query.Within = endpoint.PrincipalOf(ctx).Within(access.Observe)
	locks, err := e.service.Elections(ctx, query)
	next := endpoint.NextCursor(page, locks, func(last store.Lock) string { return string(last.Lock) })
	return api.Elections{Elections: endpoint.Convert(locks, electionAnswer), NextCursor: next}, err
}

func termAnswer(lease store.Lease) api.Term {
	return api.Term{
		Election: string(lease.Lock), Candidate: lease.OwnerID, Term: lease.Token, LeaseID: lease.ID.String(),
		TTLMS: lease.TTL.Milliseconds(), GrantedAt: api.Time{Time: lease.GrantedAt},
		ExpiresAt: api.Time{Time: lease.ExpiresAt}, WaitedMS: lease.Waited.Milliseconds(),
		HoldUntil: endpoint.OptionalTime(lease.HoldUntil), HoldLeftMS: endpoint.HoldLeft(lease),
		SessionID: endpoint.OptionalID(lease.SessionID), Value: leaderValue(lease.Metadata),
	}
}

// electionAnswer names the holder of the lock as the leader, while its lease is live and exclusive.
func electionAnswer(lock store.Lock) api.Election {
	answer := api.Election{Election: string(lock.Lock), Term: lock.Token, Candidates: []string{}}
	if holder := lock.Holder(); holder != nil && lock.State == store.LockHeld && holder.Mode == store.Exclusive {
		answer.Leader, answer.Term = holder.OwnerID, holder.Token
		answer.Since, answer.ExpiresAt = endpoint.OptionalTime(holder.GrantedAt), endpoint.OptionalTime(holder.ExpiresAt)
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
	return endpoint.OptionalJSON([]byte(leader.Value))
}

// observe streams the leaders of an election. There is nothing to resume: a stream begins with the current leader.
func (e *Endpoints) observe(w *endpoint.Answer, r *http.Request) error {
	election, err := endpoint.ElectionName(r)
	if err != nil {
		return err
	}
	if _, p := endpoint.LastEventID(r); p.Err != nil {
		return p.Err
	}
	return e.StreamEvents(w, r, func() (endpoint.EventSource, error) {
		events, err := e.watch(r, election, nil)
		return &leaderEvents{lockEvents: events, of: e}, err
	})
}

// leaderEvents sends the leader at first, and then whenever it changes. Events have no leader's value, so it reads the
// lock again: the leader that it sends is never older than the event, and may skip one that has gone meanwhile.
type leaderEvents struct {
	*lockEvents

	of   *Endpoints
	sent api.Election
}

func (e *leaderEvents) Begin(stream *endpoint.EventStream) error {
	e.sent = electionAnswer(e.watch.Lock)
	return stream.Send(&e.watch.ID, api.EventLeader, e.sent)
}

func (e *leaderEvents) Send(ctx context.Context, stream *endpoint.EventStream) error {
	switch e.event.Kind {
	case store.EventGranted, store.EventReleased, store.EventExpired, store.EventBroken:
	case store.EventRenewed, store.EventQueued, store.EventRejected:
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.of.RequestTimeout)
	defer cancel()
	lock, err := e.of.service.Lock(ctx, e.event.Lock)
	if err != nil {
		return err
	}
	now := electionAnswer(lock)
	if now.Leader == e.sent.Leader && now.Term == e.sent.Term && bytes.Equal(now.Value, e.sent.Value) {
		return nil
	}
	e.sent = now
	return stream.Send(&e.event.ID, api.EventLeader, now)
}
