package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

// A wait may last longer than the timeouts of bodies, answers and events, and so may a watch without events. The
// connection of the wait stays usable.
func TestWaitOutlivesTimeouts(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		const timeout = 3 * time.Second // all requests of the test have it, also on a busy machine
		h := newTimed(t, Config{BodyTimeout: timeout, KeepAlive: time.Hour}, timeout, timeout)
		h.http = newHTTPClient(t, http2)
		lease := h.acquire(t, "job", "holder")
		idle := h.open(t, lockPath("idle", "/watch"))
		idle.next(t, api.EventState)
		waiter := h.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "w"})
		time.Sleep(timeout * 4 / 3) // a timeout that must not happen
		h.awaitQueue(t, "job", "w")
		h.acquire(t, "idle", "a")
		idle.next(t, api.EventState)
		h.release(t, lease)
		next := granted(t, waiter)
		for sequence := range int64(4) { // on the connection of the wait, among others
			status := []int{http.StatusCreated, http.StatusOK}[min(sequence, 1)]
			as[api.WriteResult](t, h.put(t, next, sequence+1, "x"), status)
		}
		again := h.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "w2"})
		h.release(t, next)
		granted(t, again)
	})
}

// A waiter whose connection is closed leaves the queue, and delays no other waiter (P8).
func TestClientGoneWhileItWaits(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := newHarness(t, Config{})
		h.http = newHTTPClient(t, http2)
		lease := h.acquire(t, "job", "holder")
		ctx, hangUp := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			body := strings.NewReader(encode(api.AcquireRequest{OwnerID: "gone", WaitMS: 600_000}))
			_, err := h.tryFor(ctx, t, http.MethodPost, lockPath("job", "/acquire"), body, jsonType)
			gone <- err
		}()
		h.awaitQueue(t, "job", "gone")
		patient := newHarnessClient(t, h).wait(t, "job", api.AcquireRequest{OwnerID: "patient"})
		h.awaitQueue(t, "job", "gone", "patient")
		expectKept := h.expectSessionsKept(t)
		hangUp()
		if err := <-gone; err == nil {
			t.Error("the request that was cancelled returned an answer")
		}
		h.awaitQueue(t, "job", "patient")
		h.release(t, lease)
		if next := granted(t, patient); next.FencingToken != lease.FencingToken+1 {
			t.Errorf("token %d followed %d, want the next one: another waiter was granted the lock",
				next.FencingToken, lease.FencingToken)
		}
		expectKept()
		const operations, requests = "fencegate_lease_operations_total", "fencegate_http_request_duration_seconds"
		h.awaitMetric(t, 1, operations, "operation", "acquire", "mode", "exclusive", "result", "client_gone")
		h.awaitMetric(t, 1, requests, "route", "/v1/locks/{lock}/acquire", "status", "none")
	})
}

const quickInterval = 10 * time.Millisecond

// newWatchful is a gateway that checks often whether a waiting client is still connected, and a lease on "job".
func newWatchful(t testing.TB) (*harness, api.Lease) {
	t.Helper()
	h := newGateway(t, Config{KeepAlive: time.Hour}, patientDatabase(t))
	h.gateway.HangUpInterval = quickInterval
	h.serveItself(t)
	return h, h.acquire(t, "job", "worker")
}

// waitRequest is the text of an acquire that waits.
func waitRequest(lock, owner string) string {
	body := encode(api.AcquireRequest{OwnerID: owner, WaitMS: 600_000})
	return fmt.Sprintf("POST /v1/locks/%s/acquire HTTP/1.1\nHost: gateway\n%s\nContent-Length: %d\n\n%s",
		lock, jsonType, len(body), body)
}

// A waiter over HTTP/1.1 whose connection ends leaves the queue, whatever it sent meanwhile: net/http watches a
// connection only until the next byte.
func TestWaiterWhoseConnectionEnds(t *testing.T) {
	h, _ := newWatchful(t)
	for _, more := range []string{"", "x", "\r\n", "GET /healthz HTTP/1.1\r\nHost: gateway\r\n\r\n"} {
		for name, end := range map[string]func(raw) error{
			"closed": raw.Close, "half closed": raw.CloseWrite,
			"reset": func(connection raw) error {
				_ = connection.SetLinger(0)
				return connection.Close()
			},
		} {
			t.Run(fmt.Sprintf("%q, %s", more, name), func(t *testing.T) {
				connection := h.wire(t, waitRequest("job", "leaver"))
				h.awaitQueue(t, "job", "leaver")
				connection.write(t, more)
				if err := end(connection); err != nil {
					t.Fatal(err)
				}
				h.awaitQueue(t, "job")
			})
		}
	}
}

// A waiter over HTTP/1.1 that sends its next request stays in the queue and gets both answers.
func TestWaiterThatPipelines(t *testing.T) {
	h, lease := newWatchful(t)
	connection := h.wire(t, waitRequest("job", "eager"))
	h.awaitQueue(t, "job", "eager")
	connection.write(t, "GET /v1/locks/job HTTP/1.1\r\nHost: gateway\r\n\r\n")
	time.Sleep(10 * quickInterval) // a wrong hang-up would be noticed by then
	h.awaitQueue(t, "job", "eager")
	h.release(t, lease)
	got, _ := connection.answer(t)
	granted := as[api.Lease](t, got, http.StatusOK)
	got, _ = connection.answer(t)
	if lock := as[api.Lock](t, got, http.StatusOK); lock.FencingToken != granted.FencingToken {
		t.Errorf("the lease is %+v and then the lock is %+v, want the same token", granted, lock)
	}
}

// A stream of events over HTTP/1.1 ends with its connection.
func TestStreamWhoseConnectionEnds(t *testing.T) {
	h, _ := newWatchful(t)
	connection := h.wire(t, "GET /v1/locks/job/watch HTTP/1.1\nHost: gateway\n\n")
	h.awaitStreams(t, 1)
	connection.write(t, "x")
	connection.closeWrite(t)
	h.awaitStreams(t, 0)
}

// putFor is put with a context that may end.
func (h *harness) putFor(ctx context.Context, t testing.TB, lease api.Lease, sequence int64, value string) error {
	t.Helper()
	path := recordPath(lease.Lock, "k")
	_, err := h.tryFor(ctx, t, http.MethodPut, path, strings.NewReader(value), token(lease, sequence))
	return err
}

// A write whose client hangs up while it waits in the database is finished, on the same database connection.
func TestClientGoneDuringItsWrite(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h, lease := newBusyHarness(t, Config{})
		h.http = newHTTPClient(t, http2)
		unlock := h.holdFence(t, "job")
		ctx, hangUp := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- h.putFor(ctx, t, lease, 2, "unanswered") }()
		h.awaitWaiting(t, 1)
		expectKept := h.expectSessionsKept(t)
		hangUp()
		if err := <-gone; err == nil {
			t.Fatal("the request that was cancelled returned an answer")
		}
		unlock()
		await.True(t, "the write is finished", func() bool {
			return string(h.get(t, recordPath("job", "k")).body) == "unanswered"
		})
		again := as[api.WriteResult](t, h.put(t, lease, 2, "unanswered"), http.StatusOK)
		if !again.Replayed || again.Version != 2 {
			t.Errorf("the retry returned %+v, want a replay of version 2", again)
		}
		expectKept()
	})
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(all, one) })
}

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
