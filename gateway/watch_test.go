package gateway

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/internal/testenv/await"
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
		"header":               h.open(t, watchPath, "Last-Event-ID: "+seen.id),
		"elsewhere":            second.open(t, watchPath, "Last-Event-ID: "+seen.id),
		"parameter":            second.open(t, watchPath+"?last_event_id="+seen.id),
		"header and parameter": h.open(t, watchPath+"?last_event_id=0", "Last-Event-ID: "+seen.id),
	}
	h.acquire(t, "job", "b")
	for name, again := range streams {
		renewed, released := again.next(t, api.EventRenewed), again.next(t, api.EventReleased)
		if seen.number(t) >= renewed.number(t) || renewed.number(t) >= released.number(t) {
			t.Errorf("%s: the ids are %s, %s and %s, want them ascending", name, seen.id, renewed.id, released.id)
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

// An idle watch receives comments, and lasts longer than the timeouts of bodies and answers.
func TestWatchIsKeptAlive(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		const timeout = time.Second
		h := newTimed(t, Config{KeepAlive: 100 * time.Millisecond, BodyTimeout: timeout}, timeout, time.Minute)
		h.http = newHTTPClient(t, http2)
		s := h.open(t, watchPath)
		s.next(t, api.EventState)
		s.awaitKeptAlive(t, 2*timeout)
		h.acquire(t, "job", "a")
		s.next(t, api.EventGranted)
		s.close()
		h.awaitStreams(t, 0)
	})
}

// The timeout of an event does not end a watch that has none.
func TestWatchOutlivesTheEventTimeout(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		const timeout = time.Second
		h := newTimed(t, Config{KeepAlive: time.Hour}, time.Minute, timeout)
		h.http = newHTTPClient(t, http2)
		s := h.open(t, watchPath)
		s.next(t, api.EventState)
		time.Sleep(2 * timeout) // a timeout that must not happen
		h.acquire(t, "job", "a")
		s.next(t, api.EventGranted)
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
		for ; event.kind == api.EventBroken; event = <-slow.events {
			if got, want := dataOf[api.Event](t, event).FencingToken, int64(received%batch+1); got != want {
				t.Fatalf("event %d has the token %d, want %d: an event is missing", received, got, want)
			}
			received++
		}
		if event.kind != api.EventEnd || dataOf[api.WatchEnd](t, event).Reason != endpoint.EndSlowReader {
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

// A gateway that shuts down ends its streams with a final event, and does not wait for their clients.
func TestServeEndsStreams(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h, s, _ := newServed(t, Config{})
		h.http = newHTTPClient(t, http2)
		watch, observer := h.open(t, watchPath), h.open(t, observePath)
		watch.next(t, api.EventState)
		observer.next(t, api.EventLeader)
		rejections := []*stream{h.open(t, streamPath), h.open(t, streamPath+"?resource=job")}
		feedEnded := h.feedEnd(t)
		rejections[0].position(t)
		overviews := h.open(t, overviewStream)
		overviews.next(t, api.EventOverview)
		s.stop()
		s.expectEnd(t)
		var last streamEvent
		for event := range overviews.events {
			last = event
		}
		if last.kind != api.EventEnd || dataOf[api.WatchEnd](t, last).Reason != endpoint.EndShutdown {
			t.Errorf("the last event is %+v, want the end with the reason %s", last, endpoint.EndShutdown)
		}
		for _, stream := range append(rejections, watch, observer) {
			stream.endedFor(t, "shutdown")
		}
		<-feedEnded
	})
}
