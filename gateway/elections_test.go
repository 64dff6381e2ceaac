package gateway

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/events"
)

func (s *stream) nextLeader(t testing.TB) api.Election {
	t.Helper()
	return dataOf[api.Election](t, s.next(t, api.EventLeader))
}

// awaitLeader returns the next leader. Before it, the stream may report that there is none.
func (s *stream) awaitLeader(t testing.TB) api.Election {
	t.Helper()
	return awaitEvent(t, s, api.EventLeader, func(e api.Election) bool { return e.Leader != "" })
}

// The holder of a lock leads its election, and its token is the term. Observers receive every change of the leader, and
// no other events.
func TestElection(t *testing.T) {
	h := newHarness(t, Config{})
	second := h.another(t, Config{})
	observer := second.open(t, electionPath("a/b", "/observe"))
	first := observer.nextLeader(t)
	if first.Leader != "" || first.Term != 0 || first.Election != "a/b" || first.Since != nil || first.Value != nil {
		t.Errorf("the first event is %+v, want no leader", first)
	}
	term := h.win(t, "a/b", api.CampaignRequest{Candidate: "w1", Value: []byte(`{"url": [1, null]}`)})
	if term.Election != "a/b" || term.Candidate != "w1" || term.Term < 1 || term.TTLMS != longTTL || term.WaitedMS != 0 ||
		string(term.Value) != `{"url":[1,null]}` {
		t.Errorf("the term is %+v", term)
	}
	led := observer.nextLeader(t)
	if led.Leader != "w1" || led.Term != term.Term || string(led.Value) != `{"url":[1,null]}` ||
		!led.Since.Equal(term.GrantedAt.Time) || !led.ExpiresAt.Equal(term.ExpiresAt.Time) {
		t.Errorf("the event is %+v, want the term %+v", led, term)
	}
	as[api.WriteResult](t, h.put(t, leaseOf(term), 1, "x"), http.StatusCreated)
	held := expectProblem(t, h.campaign(t, "a/b", api.CampaignRequest{Candidate: "w2"}), api.CodeLockHeld)
	if held.Holder.OwnerID != "w1" {
		t.Errorf("the second candidate was refused with %+v, want the holder w1", held)
	}
	waiter := inBackground(func() answer {
		return second.campaign(t, "a/b", api.CampaignRequest{Candidate: "w2", WaitMS: 600_000})
	})
	h.awaitQueue(t, "a/b", "w2")
	h.renew(t, leaseOf(term)) // is no event
	if shown := h.election(t, "a/b"); shown.Leader != "w1" || !slices.Equal(shown.Candidates, []string{"w2"}) {
		t.Errorf("the election is shown as %+v, want the leader w1 and the candidate w2", shown)
	}
	h.resign(t, term)
	h.resign(t, term)
	successor := as[api.Term](t, <-waiter, http.StatusOK)
	expectProblem(t, h.put(t, leaseOf(term), 2, "late"), api.CodeTokenStale)
	led = observer.awaitLeader(t)
	if led.Leader != "w2" || led.Term != successor.Term || led.Value != nil || successor.Term <= term.Term {
		t.Errorf("the event is %+v, want the term %+v", led, successor)
	}
	h.resign(t, successor)
	if last := observer.nextLeader(t); last.Leader != "" || last.Term != successor.Term || last.ExpiresAt != nil {
		t.Errorf("the event is %+v, want no leader", last)
	}
	h.acquireAs(t, "a/b", api.AcquireRequest{OwnerID: "reader", Mode: "shared"})
	if shown := h.election(t, "a/b"); shown.Leader != "" || shown.Term <= successor.Term {
		t.Errorf("with a shared lease the election is shown as %+v, want no leader", shown)
	}
	h.breakLock(t, "a/b", "r")
	h.acquireAs(t, "a/b", api.AcquireRequest{OwnerID: "plain", Metadata: []byte(`{"value":7,"x":1}`)})
	if led = observer.awaitLeader(t); led.Leader != "plain" || string(led.Value) != "7" {
		t.Errorf("the event is %+v, want the holder that did not campaign", led)
	}
}

// A leader whose lease expired does not lead. A sweep or the next grant reports it to the observers.
func TestElectionExpires(t *testing.T) {
	h := newHarness(t, Config{})
	term := h.win(t, "e", api.CampaignRequest{Candidate: "w", Value: []byte("0")})
	observer := h.open(t, electionPath("e", "/observe"), "Last-Event-ID: 1")
	if led := observer.nextLeader(t); led.Leader != "w" || string(led.Value) != "0" {
		t.Errorf("the first event is %+v, want the leader w", led)
	}
	h.expire(t, leaseOf(term))
	if shown := h.election(t, "e"); shown.Leader != "" || shown.Term != term.Term || shown.Value != nil {
		t.Errorf("the election is shown as %+v, want no leader", shown)
	}
	h.sweep(t)
	if swept := observer.nextLeader(t); swept.Leader != "" || swept.Term != term.Term {
		t.Errorf("after the sweep the event is %+v, want no leader", swept)
	}

	term = h.win(t, "e", api.CampaignRequest{Candidate: "w"})
	observer.nextLeader(t)
	h.expire(t, leaseOf(term))
	again := h.win(t, "e", api.CampaignRequest{Candidate: "w"})
	if led := observer.nextLeader(t); led.Leader != "w" || led.Term != again.Term {
		t.Errorf("the event is %+v, want the new term %+v of the same leader", led, again)
	}
}

// The value of a leader is any JSON. Terms, elections and events show it.
func TestElectionValues(t *testing.T) {
	h := newHarness(t, Config{})
	for _, value := range []string{
		`"http://10.0.0.7:9000"`, `0`, `-1e99`, `true`, `""`, `[]`, `{}`, `{"value":{"value":null}}`,
		`"\u0001 \ud83e\udd80 <&>"`, `[null]`,
		`"` + strings.Repeat("x", events.ValueBytesMax-2) + `"`, `"` + strings.Repeat("é", events.ValueBytesMax/2-1) + `"`,
	} {
		term := h.win(t, "e", api.CampaignRequest{Candidate: "w", Value: []byte(value)})
		observed := h.open(t, electionPath("e", "/observe")).nextLeader(t)
		for _, got := range []json.RawMessage{term.Value, h.election(t, "e").Value, observed.Value} {
			if !sameJSON(t, got, value) {
				t.Errorf("the value %.100s is shown as %.100s", value, got)
			}
		}
		h.resign(t, term)
	}
	const nulls = `{"candidate":"w","value":null,"ttl_ms":null,"session_id":null,"request_id":null}`
	if term := as[api.Term](t, h.post(t, electionPath("e", "/campaign"), nulls), http.StatusOK); term.Value != nil {
		t.Errorf("a campaign without a value has the value %s", term.Value)
	}
}

func sameJSON(t *testing.T, got json.RawMessage, want string) bool {
	t.Helper()
	read := func(text string) (value any) {
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		return value
	}
	return reflect.DeepEqual(read(string(got)), read(want))
}

// A campaign that is sent again returns the same term, unless a parameter differs. A term ends with its session.
func TestElectionTerms(t *testing.T) {
	h := newHarness(t, Config{})
	session := h.createSession(t, "w", time.Hour)
	campaign := api.CampaignRequest{
		Candidate: "w", SessionID: &session.SessionID, RequestID: new("r"), Value: []byte(`"v"`),
	}
	term := h.win(t, "e", campaign)
	again := h.win(t, "e", campaign)
	if again.LeaseID != term.LeaseID || string(again.Value) != `"v"` || again.SessionID != session.SessionID {
		t.Errorf("the campaign sent again returned %+v, want %+v", again, term)
	}
	other := campaign
	other.Value = []byte(`"other"`)
	expectProblem(t, h.campaign(t, "e", other), api.CodeInvalidRequest)
	observer := h.open(t, electionPath("e", "/observe"))
	observer.nextLeader(t)
	h.endSession(t, session)
	if ended := observer.nextLeader(t); ended.Leader != "" {
		t.Errorf("after the end of the session the event is %+v, want no leader", ended)
	}
	campaign.Candidate = "other"
	expectProblem(t, h.campaign(t, "e", campaign), api.CodeInvalidRequest)
}
