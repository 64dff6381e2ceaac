package gateway

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/watch"
)

// valueBytesMax bounds a leader's value. It is kept in the metadata of its lease, which has room for a little more.
const valueBytesMax = 4000

// leaderMetadata is the metadata of a leader's lease.
type leaderMetadata struct {
	Value jsontext.Value `json:"value"`
}

// campaign acquires the lock of the election's name.
func (g *Gateway) campaign(w http.ResponseWriter, r *http.Request, election store.Name, body api.CampaignRequest) (any, error) {
	request, err := campaignRequest(election, body)
	if err != nil {
		return nil, err
	}
	lease, err := g.grant(w, r, request)
	return termAnswer(lease), err
}

func campaignRequest(election store.Name, body api.CampaignRequest) (store.AcquireRequest, error) {
	request := store.AcquireRequest{Lock: election, OwnerID: body.Candidate, Mode: store.Exclusive, Scope: store.Node}
	if err := checkCandidate(body.Candidate); err != nil {
		return request, err
	}
	if len(body.Value) > valueBytesMax {
		return request, invalid("value has %d bytes, the limit is %d.", len(body.Value), valueBytesMax)
	}
	value := unlessNull(body.Value)
	if value == nil {
		value = []byte("null")
	}
	if err := store.CheckJSON("value", value); err != nil { // under the name that it has here
		return request, err
	}
	// As store.Elections knows it, also where there is no value.
	request.Metadata = bytes.Join([][]byte{[]byte(`{"value":`), value, []byte("}")}, nil)
	err := readTerms(&request, terms{body.TTLMS, body.WaitMS, body.SessionID, body.RequestID})
	return request, err
}

// checkCandidate holds a candidate against the limits of an owner, which it is to the store, under the name that it has here.
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
func (g *Gateway) resign(_ http.ResponseWriter, r *http.Request, election store.Name, body api.ResignRequest) (any, error) {
	if err := checkCandidate(body.Candidate); err != nil {
		return nil, err
	}
	id, err := parseLeaseID("lease_id", body.LeaseID)
	if err != nil {
		return nil, err
	}
	if err := checkToken("term", body.Term); err != nil {
		return nil, err
	}
	return api.Resigned{Resigned: true}, g.giveBack(r, store.LeaseRef{Lock: election, OwnerID: body.Candidate, ID: id, Token: body.Term})
}

func (g *Gateway) getElection(ctx context.Context, election store.Name) (any, error) {
	lock, err := g.backend.Lock(ctx, election)
	return electionAnswer(lock), err
}

func (g *Gateway) listElections(w http.ResponseWriter, r *http.Request) error {
	page, err := readPage(r, "prefix")
	if err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	locks, err := g.backend.Elections(ctx, store.ElectionQuery{Prefix: page.prefix, After: page.after, Limit: page.limit})
	if err != nil {
		return err
	}
	answer := api.Elections{Elections: make([]api.Election, len(locks))}
	for i, lock := range locks {
		answer.Elections[i] = electionAnswer(lock)
	}
	answer.NextCursor = nextCursor(len(locks), page.limit, func() string { return string(locks[len(locks)-1].Lock) })
	return answerJSON(w, http.StatusOK, answer)
}

// observe streams who leads.
func (g *Gateway) observe(w http.ResponseWriter, r *http.Request) error {
	election, err := electionName(r)
	if err != nil {
		return err
	}
	// Whoever comes back is told who leads now, whatever it has missed.
	if _, err := lastEventID(r); err != nil {
		return err
	}
	return g.follow(w, r, election, nil, &leaderTeller{g: g})
}

// leaderTeller tells who leads: at first, and whenever it has changed. It reads the lock again for that, for an event says nothing of the
// leader's value. So what it tells is never older than the event, and a leader who was gone before that is not told.
type leaderTeller struct {
	g    *Gateway
	last api.Election // that was told
}

func (t *leaderTeller) begin(stream *eventStream, watch *watch.Subscription) error {
	t.last = electionAnswer(watch.Lock)
	return stream.send(&watch.ID, api.EventLeader, t.last)
}

func (t *leaderTeller) tell(ctx context.Context, stream *eventStream, event store.Event) error {
	switch event.Kind {
	case store.EventGranted, store.EventReleased, store.EventExpired, store.EventBroken:
	case store.EventRenewed, store.EventQueued, store.EventRejected:
		return nil
	}
	lock, err := t.g.readLock(ctx, event.Lock)
	if err != nil {
		return err
	}
	now := electionAnswer(lock)
	if now.Leader == t.last.Leader && now.Term == t.last.Term && bytes.Equal(now.Value, t.last.Value) {
		return nil
	}
	t.last = now
	return stream.send(&event.ID, api.EventLeader, now)
}

// readLock reads a lock for a client that may leave meanwhile.
func (g *Gateway) readLock(ctx context.Context, name store.Name) (store.Lock, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.config.RequestTimeout)
	defer cancel()
	return g.backend.Lock(ctx, name)
}

func termAnswer(lease store.Lease) api.Term {
	return api.Term{
		Election: string(lease.Lock), Candidate: lease.OwnerID, Term: lease.Token, LeaseID: lease.ID.String(), TTLMS: lease.TTL.Milliseconds(),
		GrantedAt: api.Time{Time: lease.GrantedAt}, ExpiresAt: api.Time{Time: lease.ExpiresAt}, WaitedMS: lease.Waited.Milliseconds(),
		HoldUntil: timeAnswer(lease.HoldUntil), HoldLeftMS: holdLeft(lease), SessionID: idText(lease.SessionID), Value: valueIn(lease.Metadata),
	}
}

// electionAnswer takes the holder of the lock for the leader, as long as its lease is live and no other can have one beside it.
func electionAnswer(lock store.Lock) api.Election {
	answer := api.Election{Election: string(lock.Lock), Term: lock.Token, Candidates: []string{}}
	if holder := lock.Holder(); holder != nil && lock.State == store.LockHeld && holder.Mode == store.Exclusive {
		answer.Leader, answer.Term = holder.OwnerID, holder.Token
		answer.Since, answer.ExpiresAt = timeAnswer(holder.GrantedAt), timeAnswer(holder.ExpiresAt)
		answer.Value = valueIn(holder.Metadata)
	}
	for _, waiter := range lock.Queue {
		if waiter.Mode == store.Exclusive {
			answer.Candidates = append(answer.Candidates, waiter.OwnerID)
		}
	}
	return answer
}

// valueIn is a leader's value; nil where there is none in the metadata.
func valueIn(metadata []byte) []byte {
	var leader leaderMetadata
	if metadata == nil || json.Unmarshal(metadata, &leader) != nil {
		return nil
	}
	return unlessNull([]byte(leader.Value))
}
