package gateway

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

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

// valueBytesMax bounds a leader's value. The metadata of its lease keeps it, and has room for a little more.
const valueBytesMax = 4000

func (g *Gateway) electionRoutes(router *mux.Router) {
	const election = "/v1/elections/{election" + anyText
	g.route(router, election+"/campaign", methods{"POST": acting(g, electionName, g.campaign)})
	g.route(router, election+"/resign", methods{"POST": acting(g, electionName, g.resign)})
	g.route(router, election+"/observe", methods{"GET": g.observe})
	g.route(router, election, methods{"GET": answeringNamed(g, electionName, g.getElection)})
	g.route(router, "/v1/elections", methods{"GET": g.answering(g.listElections)})
}

// campaign acquires the lock of the election's name.
func (g *Gateway) campaign(ctx context.Context, a action[store.Name, api.CampaignRequest]) (any, error) {
	request, err := campaignRequest(a.key, a.body)
	if err != nil {
		return nil, err
	}
	lease, err := g.grant(ctx, a.w, a.r, request)
	return termAnswer(lease), err
}

func campaignRequest(election store.Name, body api.CampaignRequest) (store.AcquireRequest, error) {
	if err := checkCandidate(body.Candidate); err != nil {
		return store.AcquireRequest{}, err
	}
	if len(body.Value) > valueBytesMax {
		return store.AcquireRequest{}, invalid("value has %d bytes, the limit is %d.", len(body.Value), valueBytesMax)
	}
	if body.NewestTerm < 0 || body.NewestTerm > api.MaxToken {
		return store.AcquireRequest{}, invalid("newest_term is %d, it must be 0 to 2^53-1.", body.NewestTerm)
	}
	value := optionalJSON(body.Value)
	if value == nil {
		value = []byte("null")
	}
	if err := store.CheckJSON("value", value); err != nil { // the store would name the field metadata
		return store.AcquireRequest{}, err
	}
	request, err := acquireRequest(election, api.AcquireRequest{
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
		return invalid("candidate is required.")
	case len(candidate) > store.OwnerBytesMax:
		return invalid("candidate has %d bytes, the limit is %d.", len(candidate), store.OwnerBytesMax)
	case strings.ContainsFunc(candidate, unicode.IsControl):
		return invalid("candidate has a control character.")
	}
	return nil
}

// resign releases the lock of the election's name.
func (g *Gateway) resign(ctx context.Context, a action[store.Name, api.ResignRequest]) (any, error) {
	if err := checkCandidate(a.body.Candidate); err != nil {
		return nil, err
	}
	ref, err := leaseRef(a.key, a.body.Candidate, a.body.LeaseID, "term", a.body.Term)
	if err != nil {
		return nil, err
	}
	return api.Resigned{Resigned: true}, g.releaseLease(ctx, ref)
}

func (g *Gateway) getElection(ctx context.Context, election store.Name) (any, error) {
	lock, err := g.backend.Lock(ctx, election)
	return electionAnswer(lock), err
}

func (g *Gateway) listElections(ctx context.Context, r *http.Request) (any, error) {
	page := readPage(r, "prefix")
	if page.err != nil {
		return nil, page.err
	}
	query := store.ElectionQuery{Prefix: page.prefix, After: page.after, Limit: page.limit}
	query.Within = principalOf(ctx).Within(access.Observe)
	locks, err := g.backend.Elections(ctx, query)
	next := nextCursor(page, locks, func(last store.Lock) string { return string(last.Lock) })
	return api.Elections{Elections: convert(locks, electionAnswer), NextCursor: next}, err
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

// observe streams the leaders of an election. There is nothing to resume: a stream begins with the current leader.
func (g *Gateway) observe(w *answerWriter, r *http.Request) error {
	election, err := electionName(r)
	if err != nil {
		return err
	}
	if _, p := lastEventID(r); p.err != nil {
		return p.err
	}
	return g.streamEvents(w, r, func() (eventSource, error) {
		events, err := g.watch(r, election, nil)
		return &leaderEvents{lockEvents: events, g: g}, err
	})
}

// leaderEvents sends the leader at first, and then whenever it changes. Events have no leader's value, so it reads the
// lock again: the leader that it sends is never older than the event, and may skip one that has gone meanwhile.
type leaderEvents struct {
	*lockEvents

	g    *Gateway
	sent api.Election
}

func (e *leaderEvents) begin(stream *eventStream) error {
	e.sent = electionAnswer(e.watch.Lock)
	return stream.send(&e.watch.ID, api.EventLeader, e.sent)
}

func (e *leaderEvents) send(ctx context.Context, stream *eventStream) error {
	switch e.event.Kind {
	case store.EventGranted, store.EventReleased, store.EventExpired, store.EventBroken:
	case store.EventRenewed, store.EventQueued, store.EventRejected:
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.g.config.RequestTimeout)
	defer cancel()
	lock, err := e.g.backend.Lock(ctx, e.event.Lock)
	if err != nil {
		return err
	}
	now := electionAnswer(lock)
	if now.Leader == e.sent.Leader && now.Term == e.sent.Term && bytes.Equal(now.Value, e.sent.Value) {
		return nil
	}
	e.sent = now
	return stream.send(&e.event.ID, api.EventLeader, now)
}
