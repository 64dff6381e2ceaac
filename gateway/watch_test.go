package gateway

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

var watchPath = lockPath("job", "/watch")

func (s *stream) nextState(t testing.TB) api.WatchState {
	t.Helper()
	return dataOf[api.WatchState](t, s.next(t, api.EventState))
}

// A watch receives the state of a lock at once and after each change, at any gateway, as GET shows it. After a reconnect
// it begins with the lock as it is, and a greater version.
func TestWatch(t *testing.T) {
	h := newHarness(t, Config{})
	second := h.another(t, Config{})
	lease := h.acquireAs(t, "job", api.AcquireRequest{OwnerID: "a", Metadata: []byte("{\n\"x\":\r\"\\n\"}")})
	s := second.open(t, watchPath)
	first := s.nextState(t)
	shown := h.lock(t, "job")
	shown.Fence = nil
	if encode(first.Lock) != encode(shown) || len(first.Holders) != 1 || first.Holders[0].FencingToken != lease.FencingToken {
		t.Errorf("the state is %s, want the lock as it is shown: %s", encode(first), encode(shown))
	}
	waiter := h.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "b"})
	queued := s.nextState(t)
	if queued.QueueLength != 1 || len(queued.Queue) != 0 || queued.Version <= first.Version {
		t.Errorf("after %+v the state is %+v, want one waiter", first, queued)
	}
	h.release(t, lease)
	next := granted(t, waiter)
	handed := awaitEvent(t, s, api.EventState, func(state api.WatchState) bool { return state.FencingToken == next.FencingToken })
	if handed.State != "held" || handed.Holders[0].OwnerID != "b" || handed.Version <= queued.Version {
		t.Errorf("after %+v the state is %+v, want it held by b", queued, handed)
	}
	s.close()
	again := h.open(t, watchPath, "Last-Event-ID: 1").nextState(t)
	if again.Version <= handed.Version || encode(again.Lock) != encode(handed.Lock) {
		t.Errorf("after a reconnect the state is %+v, want %+v with a greater version", again, handed)
	}
}

func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
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
		s.next(t, api.EventState)
		s.close()
		rejections.close()
		h.awaitStreams(t, 0)
	})
}

// At most WatchesMax streams are open. The refusal of another names the flag.
func TestWatchesMax(t *testing.T) {
	h := newHarness(t, Config{WatchesMax: 2})
	h.acquire(t, "job", "a")
	first := h.open(t, watchPath)
	h.open(t, lockPath("other", "/watch")).next(t, api.EventState)
	h.unchanged(t, func() {
		for _, path := range []string{watchPath, streamPath, overviewStream} {
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

// fill makes a change of the watched lock by which it has further readers, each with metadata of 4 KB.
func (h *harness) fill(t testing.TB, readers int) {
	t.Helper()
	h.exec(t, `
		with granted as (
			insert into fence.leases (lock, fencing_token, lease_id, owner_id, mode, ttl_ms, granted_at, expires_at, metadata)
			select 'job', nextval('fence.tokens'), gen_random_uuid(), 'w', 'shared', 3600000, now(), now() + interval '1 hour',
				json_build_object('text', repeat('x', 4000))
			from generate_series(1, $1) returning lock
		)
		select count(fence.note_change(lock)) from granted`, readers)
}

// A slow reader receives the newest state once it reads again, and few of those before. Other readers are not delayed.
func TestWatchSlowReader(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := newGateway(t, Config{}, patientDatabase(t))
		h.gateway.EventTimeout = time.Hour
		h.client = serve(t, h.gateway) // too much text for conforming
		h.fill(t, 100)
		fast := h.open(t, watchPath)
		slow := client{base: h.base, http: newHTTPClient(t, http2)}.openUnread(t, watchPath)
		fast.next(t, api.EventState)
		const changes = 60 // of 400 KB each, more than a connection buffers
		var newest api.WatchState
		for range changes {
			h.fill(t, 1)
			newest = fast.nextState(t)
		}
		slow.read(t)
		received := 1
		for last := slow.nextState(t); last.Version < newest.Version; received++ {
			next := slow.nextState(t)
			if next.Version <= last.Version {
				t.Fatalf("after the version %d there is %d", last.Version, next.Version)
			}
			last = next
		}
		if received >= changes {
			t.Errorf("the slow reader received %d states of %d, want some left out", received, changes+1)
		}
	})
}

// The gateway cuts off a stream that is not read at all.
func TestWatchUnread(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := newTimed(t, Config{}, time.Minute, 300*time.Millisecond)
		s := client{base: h.base, http: newHTTPClient(t, http2)}.openUnread(t, watchPath)
		h.awaitStreams(t, 1)
		h.fill(t, 100)
		await.True(t, "the stream is cut off", func() bool {
			h.fill(t, 1) // 400 KB, of which a connection buffers few
			return h.gateway.Streams.Load() == 0
		})
		if _, err := io.Copy(io.Discard, s.response.Body); err == nil {
			t.Error("the stream that was cut off ended without an error")
		}
	})
}
