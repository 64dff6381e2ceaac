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
	"github.com/fencegate/fencegate/store"
)

func electionPath(election, action string) string { return "/v1/elections/" + election + action }

func (c client) campaign(t testing.TB, election string, request api.CampaignRequest) answer {
	t.Helper()
	return c.post(t, electionPath(election, "/campaign"), encode(request))
}

func (c client) resign(t testing.TB, term api.Term) {
	t.Helper()
	body := encode(api.ResignRequest{Candidate: term.Candidate, LeaseID: term.LeaseID, Term: term.Term})
	if !as[api.Resigned](t, c.post(t, electionPath(term.Election, "/resign"), body), http.StatusOK).Resigned {
		t.Error("it did not resign")
	}
}

// leaseOf is a term as the lease that it is.
func leaseOf(term api.Term) api.Lease {
	return api.Lease{Lock: term.Election, OwnerID: term.Candidate, LeaseID: term.LeaseID, FencingToken: term.Term}
}

// leads is who leads next; before that may be told that nobody does, or that may be over by the time that it is looked at.
func leads(t *testing.T, observer *stream) api.Election {
	t.Helper()
	for {
		if led := dataOf[api.Election](t, observer.next(t, api.EventLeader)); led.Leader != "" {
			return led
		}
	}
}

// Who holds the lock leads, its token is the term, and observers hear of every change, and of nothing else.
func TestElection(t *testing.T) {
	h := newHarness(t, Config{})
	second := h.another(t, Config{})
	observer := second.open(t, electionPath("a/b", "/observe"))
	next := func() api.Election { return dataOf[api.Election](t, observer.next(t, api.EventLeader)) }
	if nobody := next(); nobody.Leader != "" || nobody.Term != 0 || nobody.Election != "a/b" || nobody.Since != nil || nobody.Value != nil {
		t.Errorf("at first leads %+v", nobody)
	}
	term := as[api.Term](t, h.campaign(t, "a/b", api.CampaignRequest{Candidate: "w1", Value: []byte(`{"url": [1, null]}`)}), http.StatusOK)
	if term.Election != "a/b" || term.Candidate != "w1" || term.Term < 1 || term.TTLMS != 30000 || term.WaitedMS != 0 || string(term.Value) != `{"url":[1,null]}` {
		t.Errorf("the term is %+v", term)
	}
	led := next()
	if led.Leader != "w1" || led.Term != term.Term || string(led.Value) != `{"url":[1,null]}` || !led.Since.Equal(term.GrantedAt.Time) || !led.ExpiresAt.Equal(term.ExpiresAt.Time) {
		t.Errorf("under %+v leads %+v", term, led)
	}
	as[api.WriteResult](t, h.put(t, leaseOf(term), 1, "x"), http.StatusCreated)
	held := refused(t, h.campaign(t, "a/b", api.CampaignRequest{Candidate: "w2"}), api.CodeLockHeld)
	if held.Holder.OwnerID != "w1" {
		t.Errorf("a try is told %+v", held)
	}
	waiter := inBackground(func() answer {
		return second.campaign(t, "a/b", api.CampaignRequest{Candidate: "w2", WaitMS: 600_000})
	})
	h.awaitQueue(t, "a/b", "w2")
	as[api.Lease](t, h.post(t, lockPath("a/b", "/renew"), refOf(leaseOf(term))), http.StatusOK) // and nothing is told of it
	if shown := as[api.Election](t, h.get(t, electionPath("a/b", "")), http.StatusOK); shown.Leader != "w1" || !slices.Equal(shown.Candidates, []string{"w2"}) {
		t.Errorf("it is shown as %+v", shown)
	}
	h.resign(t, term)
	h.resign(t, term)
	successor := as[api.Term](t, <-waiter, http.StatusOK)
	refused(t, h.put(t, leaseOf(term), 2, "late"), api.CodeTokenStale)
	led = leads(t, observer)
	if led.Leader != "w2" || led.Term != successor.Term || led.Value != nil || successor.Term <= term.Term {
		t.Errorf("under %+v leads %+v", successor, led)
	}
	h.resign(t, successor)
	if nobody := next(); nobody.Leader != "" || nobody.Term != successor.Term || nobody.ExpiresAt != nil {
		t.Errorf("at last leads %+v", nobody)
	}
	h.acquireAs(t, "a/b", api.AcquireRequest{OwnerID: "reader", Mode: "shared"})
	if shown := as[api.Election](t, h.get(t, electionPath("a/b", "")), http.StatusOK); shown.Leader != "" || shown.Term <= successor.Term {
		t.Errorf("with readers of the lock it is shown as %+v", shown)
	}
	as[api.Broken](t, h.post(t, lockPath("a/b", "/break"), `{"reason":"r"}`), http.StatusOK)
	h.acquireAs(t, "a/b", api.AcquireRequest{OwnerID: "plain", Metadata: []byte(`{"value":7,"x":1}`)})
	led = leads(t, observer)
	if led.Leader != "plain" || string(led.Value) != "7" {
		t.Errorf("of who holds the lock without a campaign is told %+v", led)
	}
}

// A leader that is late leads no more; a sweep tells the observers.
func TestElectionExpires(t *testing.T) {
	h := newHarness(t, Config{})
	term := as[api.Term](t, h.campaign(t, "e", api.CampaignRequest{Candidate: "w", Value: []byte("0")}), http.StatusOK)
	observer := h.open(t, electionPath("e", "/observe"), "Last-Event-ID: 1")
	if led := dataOf[api.Election](t, observer.next(t, api.EventLeader)); led.Leader != "w" || string(led.Value) != "0" {
		t.Errorf("at first leads %+v", led)
	}
	h.expire(t, leaseOf(term))
	if shown := as[api.Election](t, h.get(t, electionPath("e", "")), http.StatusOK); shown.Leader != "" || shown.Term != term.Term || shown.Value != nil {
		t.Errorf("it is shown as %+v", shown)
	}
	h.sweep(t)
	if nobody := dataOf[api.Election](t, observer.next(t, api.EventLeader)); nobody.Leader != "" || nobody.Term != term.Term {
		t.Errorf("then leads %+v", nobody)
	}

	term = as[api.Term](t, h.campaign(t, "e", api.CampaignRequest{Candidate: "w"}), http.StatusOK)
	observer.next(t, api.EventLeader)
	h.expire(t, leaseOf(term))
	again := as[api.Term](t, h.campaign(t, "e", api.CampaignRequest{Candidate: "w"}), http.StatusOK)
	if led := dataOf[api.Election](t, observer.next(t, api.EventLeader)); led.Leader != "w" || led.Term != again.Term {
		t.Errorf("in another term of the same leads %+v", led)
	}
}

// sweep tidies once.
func (h *harness) sweep(t *testing.T) {
	t.Helper()
	sweeper, err := store.NewSweeper(h.store.Store, store.SweeperConfig{Interval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sweeper.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A leader's value is any JSON.
func TestElectionValues(t *testing.T) {
	h := newHarness(t, Config{})
	for _, value := range []string{
		`"http://10.0.0.7:9000"`, `0`, `-1e99`, `true`, `""`, `[]`, `{}`, `{"value":{"value":null}}`, `"\u0001 \ud83e\udd80 <&>"`, `[null]`,
		`"` + strings.Repeat("x", valueBytesMax-2) + `"`, `"` + strings.Repeat("é", valueBytesMax/2-1) + `"`,
	} {
		term := as[api.Term](t, h.campaign(t, "e", api.CampaignRequest{Candidate: "w", Value: []byte(value)}), http.StatusOK)
		shown := as[api.Election](t, h.get(t, electionPath("e", "")), http.StatusOK)
		observed := dataOf[api.Election](t, h.open(t, electionPath("e", "/observe")).next(t, api.EventLeader))
		for _, got := range []json.RawMessage{term.Value, shown.Value, observed.Value} {
			if !sameJSON(t, got, value) {
				t.Errorf("%.100s became %.100s", value, got)
			}
		}
		h.resign(t, term)
	}
	term := as[api.Term](t, h.post(t, electionPath("e", "/campaign"), `{"candidate":"w","value":null,"ttl_ms":null,"session_id":null,"request_id":null}`), http.StatusOK)
	if term.Value != nil {
		t.Errorf("nothing became %s", term.Value)
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

// A campaign that got no answer is sent again, and a term lasts as long as its session.
func TestElectionTerms(t *testing.T) {
	h := newHarness(t, Config{})
	session, request := h.createSession(t, "w", time.Hour), "r"
	campaign := api.CampaignRequest{Candidate: "w", SessionID: &session.SessionID, RequestID: &request, Value: []byte(`"v"`)}
	term := as[api.Term](t, h.campaign(t, "e", campaign), http.StatusOK)
	if again := as[api.Term](t, h.campaign(t, "e", campaign), http.StatusOK); again.LeaseID != term.LeaseID || string(again.Value) != `"v"` || again.SessionID != session.SessionID {
		t.Errorf("%+v is now %+v", term, again)
	}
	observer := h.open(t, electionPath("e", "/observe"))
	observer.next(t, api.EventLeader)
	as[api.SessionEnded](t, h.send(t, http.MethodDelete, sessionPath(session), ""), http.StatusOK)
	if nobody := dataOf[api.Election](t, observer.next(t, api.EventLeader)); nobody.Leader != "" {
		t.Errorf("after the session leads %+v", nobody)
	}
	campaign.Candidate = "other"
	refused(t, h.campaign(t, "e", campaign), api.CodeInvalidRequest)
}
