package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/events"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

const observePath = "/v1/elections/job/observe"

var watchPath = lockPath("job", "/watch")

// A watch receives every change of a lock, in order, from any gateway.
func TestWatch(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquireAs(t, "job", api.AcquireRequest{OwnerID: "a", Metadata: []byte("{\n\"x\":\r\"\\n\"}")})
	s := h.another(t, Config{}).open(t, watchPath)
	first := s.next(t, api.EventState)
	state := dataOf[api.WatchState](t, first)
	if state.Missed || state.State != "held" || state.FencingToken != lease.FencingToken || len(state.Holders) != 1 ||
		state.Holders[0].OwnerID != "a" {
		t.Errorf("the state is %+v, want it held by a", state)
	}

	renewed := h.renew(t, lease)
	event := s.next(t, api.EventRenewed)
	e := dataOf[api.Event](t, event)
	if e.Lock != "job" || e.OwnerID != "a" || e.FencingToken != lease.FencingToken || e.Mode != "exclusive" ||
		e.Scope != "node" ||
		e.ExpiresAt == nil || !e.ExpiresAt.Equal(renewed.ExpiresAt.Time) || event.number(t) <= first.number(t) {
		t.Errorf("the event after %+v is %+v, want the renewal %+v", first, event, renewed)
	}
	waiter := h.wait(t, "job", api.AcquireRequest{OwnerID: "b"})
	expect := func(kind, owner string) api.Event {
		t.Helper()
		e := s.nextEvent(t, kind)
		if e.OwnerID != owner {
			t.Errorf("the event %s is %+v, want the owner %s", kind, e, owner)
		}
		return e
	}
	expect(api.EventQueued, "b")
	h.release(t, lease)
	if e := expect(api.EventReleased, "a"); e.FencingToken != lease.FencingToken || e.ExpiresAt != nil {
		t.Errorf("the event of the release is %+v, want token %d and no expiry", e, lease.FencingToken)
	}
	next := granted(t, waiter)
	if e := expect(api.EventGranted, "b"); e.FencingToken != next.FencingToken || !e.ExpiresAt.Equal(next.ExpiresAt.Time) {
		t.Errorf("the event of the grant is %+v, want the lease %+v", e, next)
	}
	expectProblem(t, h.put(t, lease, 7, "late"), api.CodeTokenStale)
	h.record(t)
	if e := expect(api.EventRejected, "a"); e.Code != api.CodeTokenStale || e.Reason != "superseded" ||
		e.FencingToken != lease.FencingToken || e.Key != "k" {
		t.Errorf("the event of the rejection is %+v", e)
	}
	h.breakLock(t, "job", "stuck")
	if e := expect(api.EventBroken, "b"); e.Reason != "stuck" {
		t.Errorf("the event of the break is %+v, want the reason stuck", e)
	}
	h.expire(t, h.acquire(t, "job", "c"))
	expect(api.EventGranted, "c")
	h.acquire(t, "job", "d")
	expect(api.EventExpired, "c")
	expect(api.EventGranted, "d")
}

func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// A watch that is opened again resumes after the last event, without gaps or repetitions, at any gateway.
func TestWatchResumes(t *testing.T) {
	h := newHarness(t, Config{})
	second := h.another(t, Config{})
	s := h.open(t, watchPath)
	s.next(t, api.EventState)
	lease := h.acquire(t, "job", "a")
	seen := s.next(t, api.EventGranted)
	s.close()
	h.renew(t, lease)
	h.release(t, lease)

	streams := map[string]*stream{
		"header":               h.open(t, watchPath, "Last-Event-ID: "+seen.ID),
		"elsewhere":            second.open(t, watchPath, "Last-Event-ID: "+seen.ID),
		"parameter":            second.open(t, watchPath+"?last_event_id="+seen.ID),
		"header and parameter": h.open(t, watchPath+"?last_event_id=0", "Last-Event-ID: "+seen.ID),
	}
	h.acquire(t, "job", "b")
	for name, again := range streams {
		renewed, released := again.next(t, api.EventRenewed), again.next(t, api.EventReleased)
		if seen.number(t) >= renewed.number(t) || renewed.number(t) >= released.number(t) {
			t.Errorf("%s: the ids are %s, %s and %s, want them ascending", name, seen.ID, renewed.ID, released.ID)
		}
		if e := again.nextEvent(t, api.EventGranted); e.OwnerID != "b" {
			t.Errorf("%s: the event is %+v, want the grant to b", name, e)
		}
	}
	for _, id := range []string{"0", "9223372036854775807"} {
		state := dataOf[api.WatchState](t, h.open(t, watchPath, "Last-Event-ID: "+id).next(t, api.EventState))
		if !state.Missed || state.State != "held" {
			t.Errorf("after the event %s the state is %+v, want it held, and events missed", id, state)
		}
	}
}

// An idle stream receives comments, and lasts longer than the timeouts of bodies and answers. One of rejections receives
// its position, too, so that a client that reconnects resumes from there.
func TestWatchIsKeptAlive(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		const timeout = time.Second
		h := newTimed(t, Config{KeepAlive: 100 * time.Millisecond, BodyTimeout: timeout}, timeout, time.Minute)
		h.http = newHTTPClient(t, http2)
		s, rejections := h.open(t, watchPath), h.open(t, streamPath+"?resource=none")
		s.next(t, api.EventState)
		first := rejections.position(t)
		h.reject(t, "other")
		await.True(t, "the position passes a group that is not selected", func() bool {
			return rejections.position(t) > first && len(rejections.comments) > 0
		})
		s.awaitKeptAlive(t, 2*timeout)
		rejections.awaitKeptAlive(t, timeout/2)
		h.acquire(t, "job", "a")
		s.next(t, api.EventGranted)
		s.close()
		rejections.close()
		h.awaitStreams(t, 0)
	})
}

// An observer whose event can't be read from the database ends with unavailable. A watch needs no such read.
func TestWatchUnavailable(t *testing.T) {
	h := newHarness(t, Config{RequestTimeout: 4 * time.Second})
	observer, watch := h.open(t, observePath), h.open(t, watchPath)
	observer.next(t, api.EventLeader)
	watch.next(t, api.EventState)
	h.hold(t, "lock table fence.fences in access exclusive mode")
	h.fill(t, 1)
	observer.endedFor(t, "unavailable")
	watch.next(t, api.EventBroken)
}

// At most WatchesMax streams are open. The refusal of another names the flag.
func TestWatchesMax(t *testing.T) {
	h := newHarness(t, Config{WatchesMax: 2})
	h.acquire(t, "job", "a")
	first := h.open(t, watchPath)
	h.open(t, observePath).next(t, api.EventLeader)
	h.unchanged(t, func() {
		for _, path := range []string{watchPath, observePath, streamPath, overviewStream} {
			problem := expectUnavailable(t, h.get(t, path), api.OutcomeNotApplied)
			if !strings.Contains(problem.Detail, "--watches-max") {
				t.Errorf("%s: the detail is %q, want --watches-max in it", path, problem.Detail)
			}
		}
	})
	first.close()
	h.awaitStreams(t, 1)
	h.open(t, watchPath).next(t, api.EventState)
}

// fill publishes events of 20 KB each. A hundred of them are more than a connection buffers.
func (h *harness) fill(t testing.TB, events int) {
	t.Helper()
	h.exec(t, `select fence.publish_event(row(null, 'job', 'broken', null, 'w', i, null, null, null,
			repeat('x', 20000), null, null, null)::fence.events)
		from generate_series(1, $1) i`, events)
}

// The gateway disconnects a slow reader with a final event. Other readers are not delayed.
func TestWatchSlowReader(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := newGateway(t, Config{}, patientDatabase(t))
		h.gateway.EventTimeout = time.Hour
		h.client = serve(t, h.gateway) // too much text for conforming
		fast := h.open(t, watchPath)
		slow := client{base: h.base, http: newHTTPClient(t, http2)}.openUnread(t, watchPath)
		fast.next(t, api.EventState)
		const batches, batch = 16, 100
		for range batches {
			h.fill(t, batch)
			for range batch {
				fast.next(t, api.EventBroken)
			}
		}
		slow.read(t)
		slow.next(t, api.EventState)
		received := 0
		event := <-slow.events
		for ; event.Kind == api.EventBroken; event = <-slow.events {
			if got, want := dataOf[api.Event](t, event).FencingToken, int64(received%batch+1); got != want {
				t.Fatalf("event %d has the token %d, want %d: an event is missing", received, got, want)
			}
			received++
		}
		if event.Kind != api.EventEnd || dataOf[api.WatchEnd](t, event).Reason != endpoint.EndSlowReader {
			t.Errorf("the stream of the slow reader ended with %+v, want the reason %s", event, endpoint.EndSlowReader)
		}
		slow.over(t)
		if received == 0 || received >= batches*batch {
			t.Errorf("the slow reader received %d events of %d, want some and not all", received, batches*batch)
		}
		h.awaitStreams(t, 1)
	})
}

// The gateway cuts off a stream that is not read at all.
func TestWatchUnread(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := newTimed(t, Config{}, time.Minute, 300*time.Millisecond)
		s := client{base: h.base, http: newHTTPClient(t, http2)}.openUnread(t, watchPath)
		h.awaitStreams(t, 1)
		await.True(t, "the stream is cut off", func() bool {
			h.fill(t, 100)
			return h.gateway.Streams.Load() == 0
		})
		if _, err := io.Copy(io.Discard, s.response.Body); err == nil {
			t.Error("the stream that was cut off ended without an error")
		}
	})
}

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
