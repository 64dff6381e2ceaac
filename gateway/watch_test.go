package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// Everything that happens to a lock is told, in its order, at whichever gateway it happens.
func TestWatch(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquireAs(t, "job", api.AcquireRequest{OwnerID: "a", Metadata: []byte("{\n\"x\":\r\"\\n\"}")})
	s := h.another(t, Config{}).open(t, lockPath("job", "/watch"))
	first := s.next(t, api.EventState)
	state := dataOf[api.WatchState](t, first)
	if state.Missed || state.State != "held" || state.FencingToken != lease.FencingToken || len(state.Holders) != 1 || state.Holders[0].OwnerID != "a" {
		t.Errorf("the state is %+v", state)
	}

	renewed := as[api.Lease](t, h.post(t, lockPath("job", "/renew"), refOf(lease)), http.StatusOK)
	event := s.next(t, api.EventRenewed)
	if e := dataOf[api.Event](t, event); e.Lock != "job" || e.OwnerID != "a" || e.FencingToken != lease.FencingToken || e.ExpiresAt == nil || !e.ExpiresAt.Equal(renewed.ExpiresAt.Time) ||
		e.Mode != "exclusive" || e.Scope != "node" || event.number(t) <= first.number(t) {
		t.Errorf("after %+v, and the renewal %+v, came %+v", first, renewed, event)
	}
	waiter := h.wait(t, "job", api.AcquireRequest{OwnerID: "b"})
	if e := s.nextEvent(t, api.EventQueued); e.OwnerID != "b" {
		t.Errorf("queued is %+v", e)
	}
	h.release(t, lease)
	if e := s.nextEvent(t, api.EventReleased); e.OwnerID != "a" || e.FencingToken != lease.FencingToken || e.ExpiresAt != nil {
		t.Errorf("released is %+v", e)
	}
	next := granted(t, waiter)
	if e := s.nextEvent(t, api.EventGranted); e.OwnerID != "b" || e.FencingToken != next.FencingToken || !e.ExpiresAt.Equal(next.ExpiresAt.Time) {
		t.Errorf("granted is %+v", e)
	}
	refused(t, h.put(t, lease, 7, "late"), api.CodeTokenStale)
	if err := h.recordNow(t); err != nil {
		t.Fatal(err)
	}
	if e := s.nextEvent(t, api.EventRejected); e.Code != api.CodeTokenStale || e.Reason != "superseded" || e.FencingToken != lease.FencingToken || e.Key != "k" || e.OwnerID != "a" {
		t.Errorf("rejected is %+v", e)
	}
	as[api.Broken](t, h.post(t, lockPath("job", "/break"), `{"reason":"stuck"}`), http.StatusOK)
	if e := s.nextEvent(t, api.EventBroken); e.OwnerID != "b" || e.Reason != "stuck" {
		t.Errorf("broken is %+v", e)
	}
	h.expire(t, h.acquire(t, "job", "c"))
	s.next(t, api.EventGranted)
	h.acquire(t, "job", "d")
	if e := s.nextEvent(t, api.EventExpired); e.OwnerID != "c" {
		t.Errorf("expired is %+v", e)
	}
	if e := s.nextEvent(t, api.EventGranted); e.OwnerID != "d" {
		t.Errorf("granted is %+v", e)
	}
}

// Secrets are not among what others may see.
func TestWatchTellsNoSecrets(t *testing.T) {
	h := newHarness(t, Config{})
	session := h.createSession(t, "a", time.Hour)
	s := h.open(t, lockPath("job", "/watch"))
	state := s.next(t, api.EventState)
	if lock := dataOf[api.WatchState](t, state); lock.State != "free" || lock.FencingToken != 0 || lock.Lock.Lock != "job" {
		t.Errorf("of a lock that there never was the state is %+v", lock)
	}
	request := "request-of-a"
	lease := h.acquireAs(t, "job", api.AcquireRequest{OwnerID: "a", SessionID: &session.SessionID, RequestID: &request})
	if e := s.next(t, api.EventGranted); dataOf[api.Event](t, e).ExpiresAt != nil || containsAny(e.data, lease.LeaseID, session.SessionID, request) {
		t.Errorf("granted is %+v", e)
	}
	for _, path := range []string{lockPath("job", ""), "/v1/locks", lockPath("job", "/watch"), "/v1/elections/job", "/v1/elections/job/observe", "/v1/resources/job/fence"} {
		text := ""
		if strings.HasSuffix(path, "/watch") || strings.HasSuffix(path, "/observe") {
			text = (<-h.open(t, path).events).data
		} else {
			text = string(h.get(t, path).body)
		}
		if containsAny(text, lease.LeaseID, session.SessionID, request) || !strings.Contains(text, "job") {
			t.Errorf("%s shows %s", path, text)
		}
	}
	held := h.post(t, lockPath("job", "/acquire"), `{"owner_id":"b"}`)
	if refused(t, held, api.CodeLockHeld); containsAny(string(held.body), lease.LeaseID, session.SessionID, request) {
		t.Errorf("another is told %s", held.body)
	}
}

func containsAny(text string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// Whoever comes back goes on where it was, without a gap and without hearing anything twice, at any gateway.
func TestWatchResumes(t *testing.T) {
	h := newHarness(t, Config{})
	second := h.another(t, Config{})
	s := h.open(t, lockPath("job", "/watch"))
	s.next(t, api.EventState)
	lease := h.acquire(t, "job", "a")
	seen := s.next(t, api.EventGranted)
	s.close()
	as[api.Lease](t, h.post(t, lockPath("job", "/renew"), refOf(lease)), http.StatusOK)
	h.release(t, lease)

	streams := map[string]*stream{
		"header":               h.open(t, lockPath("job", "/watch"), "Last-Event-ID: "+seen.id),
		"elsewhere":            second.open(t, lockPath("job", "/watch"), "Last-Event-ID: "+seen.id),
		"parameter":            second.open(t, lockPath("job", "/watch")+"?last_event_id="+seen.id),
		"header and parameter": h.open(t, lockPath("job", "/watch")+"?last_event_id=0", "Last-Event-ID: "+seen.id),
	}
	h.acquire(t, "job", "b")
	for name, again := range streams {
		renewed := again.next(t, api.EventRenewed)
		released := again.next(t, api.EventReleased)
		if seen.number(t) >= renewed.number(t) || renewed.number(t) >= released.number(t) {
			t.Errorf("%s: after %s came %s and %s", name, seen.id, renewed.id, released.id)
		}
		if e := again.nextEvent(t, api.EventGranted); e.OwnerID != "b" {
			t.Errorf("%s: then came %+v", name, e)
		}
	}
	for _, id := range []string{"0", "9223372036854775807"} {
		state := dataOf[api.WatchState](t, h.open(t, lockPath("job", "/watch"), "Last-Event-ID: "+id).next(t, api.EventState))
		if !state.Missed || state.State != "held" {
			t.Errorf("who has seen the event %s is told %+v", id, state)
		}
	}
}

// A stream that is silent shows that it lives, and lasts longer than an answer may take.
func TestWatchIsKeptAlive(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		const timeout = time.Second
		h := newTimed(t, Config{KeepAlive: 100 * time.Millisecond, BodyTimeout: timeout}, timeout, time.Minute)
		h.http = newHTTPClient(t, http2)
		s := h.open(t, lockPath("job", "/watch"))
		s.next(t, api.EventState)
		for until := time.Now().Add(2 * timeout); time.Now().Before(until); {
			select {
			case <-s.comments:
			case <-time.After(time.Minute):
				t.Fatal("no comment came")
			}
		}
		h.acquire(t, "job", "a")
		s.next(t, api.EventGranted)
		s.close()
		h.awaitStreams(t, 0)
	}
}

// An event may take its time, but no longer: the deadline of each does not end a stream on which nothing happens.
func TestWatchOutlivesTheTimeOfAnEvent(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		const timeout = 300 * time.Millisecond
		h := newTimed(t, Config{KeepAlive: time.Hour}, time.Minute, timeout)
		h.http = newHTTPClient(t, http2)
		s := h.open(t, lockPath("job", "/watch"))
		s.next(t, api.EventState)
		passed(t, 2*timeout)
		h.acquire(t, "job", "a")
		s.next(t, api.EventGranted)
	}
}

// A stream that can't be told what has happened ends; its client comes back.
func TestWatchUnavailable(t *testing.T) {
	h := newHarness(t, Config{RequestTimeout: 500 * time.Millisecond})
	observer, watch := h.open(t, "/v1/elections/job/observe"), h.open(t, lockPath("job", "/watch"))
	observer.next(t, api.EventLeader)
	watch.next(t, api.EventState)
	tx, err := h.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "lock table fence.fences in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	h.fill(t, 1)
	observer.endedFor(t, "unavailable")
	watch.next(t, api.EventBroken) // it needs no more than the event
}

// Streams are bounded, and who is beyond the bound is told to go elsewhere.
func TestWatchesMax(t *testing.T) {
	h := newHarness(t, Config{WatchesMax: 2})
	h.acquire(t, "job", "a")
	first := h.open(t, lockPath("job", "/watch"))
	h.open(t, "/v1/elections/job/observe").next(t, api.EventLeader)
	h.unchanged(t, func() {
		for _, path := range []string{lockPath("job", "/watch"), "/v1/elections/job/observe"} {
			if problem := unavailable(t, h.get(t, path), api.OutcomeNotApplied); !strings.Contains(problem.Detail, "--watches-max") {
				t.Errorf("beyond the bound: %s", problem.Detail)
			}
		}
	})
	first.close()
	h.awaitStreams(t, 1)
	h.open(t, lockPath("job", "/watch")).next(t, api.EventState)
}

// fill makes events of 20 KB each, more than connections hold.
func (h *harness) fill(t *testing.T, events int) {
	t.Helper()
	h.exec(t, `select fence.publish_event(row(null, 'job', 'broken', null, 'w', i, null, null, null, repeat('x', 20000), null, null)::fence.events)
		from generate_series(1, $1) i`, events)
}

// Who reads too slowly is cut off and told so, and holds up nobody else.
func TestWatchSlowReader(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h := newTimed(t, Config{}, time.Minute, time.Hour)
		fast := h.open(t, lockPath("job", "/watch"))
		slowly := client{base: h.base, http: newHTTPClient(t, http2)}
		slow := slowly.openUnread(t, lockPath("job", "/watch"))
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
		heard := 0
		for event := range slow.events {
			if event.kind == api.EventEnd {
				if end := dataOf[api.WatchEnd](t, event); end.Reason != "slow_reader" {
					t.Errorf("it ended for %s", end.Reason)
				}
				break
			}
			if heard++; dataOf[api.Event](t, event).FencingToken != int64((heard-1)%batch+1) {
				t.Fatalf("event %d is %.100s", heard, event.data)
			}
		}
		if slow.over(t); heard == 0 || heard >= batches*batch {
			t.Errorf("of %d events it heard %d", batches*batch, heard)
		}
		h.awaitStreams(t, 1)
	}
}

// Who does not read at all is not waited for.
func TestWatchUnread(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h := newTimed(t, Config{}, time.Minute, 300*time.Millisecond)
		unread := client{base: h.base, http: newHTTPClient(t, http2)}
		s := unread.openUnread(t, lockPath("job", "/watch"))
		h.awaitStreams(t, 1)
		eventually(t, "the stream is given up", func() bool {
			h.fill(t, 100)
			metrics, _ := h.scrape(t)
			return metrics.value("fencegate_open_watches") == 0
		})
		if _, err := io.Copy(io.Discard, s.response.Body); err == nil {
			t.Error("the stream ended as if it were whole")
		}
	}
}

// A gateway that ends says so on its streams, and does not wait for their clients.
func TestServeEndsStreams(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h, s, _ := newServed(t, Config{})
		h.http = newHTTPClient(t, http2)
		watch, observer := h.open(t, lockPath("job", "/watch")), h.open(t, "/v1/elections/job/observe")
		watch.next(t, api.EventState)
		observer.next(t, api.EventLeader)
		if err := s.end(); err != nil {
			t.Errorf("it ended with %v", err)
		}
		watch.endedFor(t, "shutdown")
		observer.endedFor(t, "shutdown")
	}
}
