package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

// server is a gateway that serves by itself, as in the program.
type server struct {
	base  string
	stop  context.CancelFunc // begins the shutdown
	ended chan error         // what Serve returned
}

// serveItself has the gateway serve by itself, and the client use it.
func (h *harness) serveItself(t testing.TB) *server {
	t.Helper()
	h.gateway.handler = conforming(t, h.gateway.handler)
	return h.serveUnchecked(t)
}

// serveUnchecked is serveItself without the comparison of each exchange with openapi.yaml, which costs time and memory.
func (h *harness) serveUnchecked(t testing.TB) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{base: "http://" + listener.Addr().String(), stop: cancel, ended: make(chan error, 1)}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.ended <- h.gateway.Serve(ctx, listener)
	}()
	t.Cleanup(func() {
		cancel()
		<-over
	})
	h.client = client{base: s.base, http: newHTTPClient(t, false)}
	return s
}

// end stops the server and returns what Serve returned.
func (s *server) end() error {
	s.stop()
	return <-s.ended
}

// expectEnd waits for the end of a shutdown, which must succeed.
func (s *server) expectEnd(t testing.TB) {
	t.Helper()
	if err := <-s.ended; err != nil {
		t.Errorf("Serve returned the error %v, want none", err)
	}
}

// awaitRefusal returns when nothing listens any more.
func (s *server) awaitRefusal(t testing.TB) {
	t.Helper()
	await.True(t, "the server refuses new connections", func() bool {
		connection, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
		if err == nil {
			_ = connection.Close()
		}
		return err != nil
	})
}

// newTimed is a gateway that serves by itself with these timeouts for answers and events.
func newTimed(t testing.TB, config Config, answerTimeout, eventTimeout time.Duration) *harness {
	t.Helper()
	h := newGateway(t, config, patientDatabase(t))
	h.gateway.AnswerTimeout, h.gateway.EventTimeout = answerTimeout, eventTimeout
	h.serveItself(t)
	return h
}

// newServed is newBusyHarness with a gateway that serves by itself.
func newServed(t testing.TB, config Config) (*harness, *server, api.Lease) {
	t.Helper()
	h := newGateway(t, config, patientDatabase(t))
	s := h.serveItself(t)
	lease := h.acquire(t, "job", "worker")
	as[api.WriteResult](t, h.put(t, lease, 1, "value"), http.StatusCreated)
	return h, s, lease
}

// A shutdown finishes and answers the requests in progress, and accepts no connections.
func TestServeFinishesRequests(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h, s, lease := newServed(t, Config{ShutdownTimeout: time.Minute})
		h.http = newHTTPClient(t, http2)
		unlock := h.holdFence(t, "job")
		answers := inBackground(func() answer { return h.put(t, lease, 2, "in progress") })
		h.awaitWaiting(t, 1)
		s.stop()
		s.awaitRefusal(t)
		select {
		case err := <-s.ended:
			t.Fatalf("Serve returned %v with a request in progress", err)
		default:
		}
		unlock()
		as[api.WriteResult](t, <-answers, http.StatusOK)
		s.expectEnd(t)
		if written := h.count(t, "select count(*) from fence.records where value = 'in progress'"); written != 1 {
			t.Errorf("the answered write stored %d records, want 1", written)
		}
	})
}

// A shutdown that takes longer than ShutdownTimeout cuts off the requests. None of them is half applied.
func TestServeCutsOffRequests(t *testing.T) {
	h, s, lease := newServed(t, Config{ShutdownTimeout: 50 * time.Millisecond, RequestTimeout: time.Hour})
	unlock := h.holdFence(t, "job")
	cut := make(chan error, 1)
	go func() {
		_, err := h.try(t, http.MethodPut, recordPath("job", "k"), "late", token(lease, 2))
		cut <- err
	}()
	h.awaitWaiting(t, 1)
	err := s.end()
	if err == nil || !strings.Contains(err.Error(), "still under way after 50ms") ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Serve returned %v, want DeadlineExceeded after 50ms", err)
	}
	if err := <-cut; err == nil {
		t.Error("the request was answered, want its connection cut off")
	}
	unlock()
	await.True(t, "no database connection is busy", func() bool { return h.store.PoolStats().Busy == 0 })
	const whole = "select count(*) from fence.fences join fence.records using (resource) where last_sequence = sequence"
	if h.count(t, whole) != 1 {
		t.Error("the write changed only one of the fence and the record")
	}
}

// A connection whose first bytes of HTTP/2 arrive during the shutdown does not delay it.
func TestServeEndsLateConnection(t *testing.T) {
	h, s, _ := newServed(t, Config{ShutdownTimeout: time.Minute})
	late := h.wire(t, "")
	newHarnessClient(t, h).get(t, "/healthz") // was accepted later, so that late was accepted, too
	s.stop()
	s.awaitRefusal(t)
	const preface, emptySettings = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	late.write(t, preface+emptySettings)
	s.expectEnd(t)
}

// While it drains, a gateway answers all requests, but is not ready, and each answer ends its connection.
func TestServeDrains(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		const delay = 100 * time.Millisecond
		h, s, lease := newServed(t, Config{DrainDelay: delay})
		h.http = newHTTPClient(t, http2)
		as[api.Health](t, h.get(t, "/readyz"), http.StatusOK)
		h.gateway.Leaving.Store(true)
		notReady := expectUnavailable(t, h.get(t, "/readyz"), api.OutcomeNotApplied)
		if !strings.Contains(notReady.Detail, "draining") {
			t.Errorf("/readyz says %q, want that it is draining", notReady.Detail)
		}
		as[api.WriteResult](t, h.put(t, lease, 2, "while it drains"), http.StatusOK)
		await.True(t, "each answer ends its connection", func() bool {
			reused := false
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GotConn: func(got httptrace.GotConnInfo) { reused = got.Reused },
			})
			got, err := h.tryFor(ctx, t, http.MethodGet, "/healthz", http.NoBody)
			return err == nil && got.status == http.StatusOK && !reused
		})
		stopped := time.Now()
		if err := s.end(); err != nil || time.Since(stopped) < delay {
			t.Errorf("Serve returned %v after %s, want nil after %s", err, time.Since(stopped), delay)
		}
	})
}

// newHarnessClient is another client of the same gateway, with connections of its own.
func newHarnessClient(t testing.TB, h *harness) client {
	t.Helper()
	return client{base: h.base, http: newHTTPClient(t, false)}
}

func TestServeOnClosedListener(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if err := withoutDatabase(t, Config{}).Serve(t.Context(), listener); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve returned %v, want net.ErrClosed", err)
	}
}

// lateBody is a body that arrives after the end of all work that began before it.
type lateBody struct {
	io.Reader
	gateway *Gateway
}

func (b *lateBody) Read(into []byte) (int, error) {
	b.gateway.EndWork()
	return b.Reader.Read(into)
}

// The RequestTimeout begins when the body has arrived: a slow upload leaves the work its whole time.
func TestWorkBeginsAfterTheBody(t *testing.T) {
	h := newHarness(t, Config{Terraform: true})
	lease := h.acquire(t, "job", "w")
	h.terraform("state").mustLock(t, "a")
	token := strconv.FormatInt(lease.FencingToken, 10)
	for _, of := range []struct{ method, path, body string }{
		{"POST", "/v1/locks/late/acquire", `{"owner_id":"w"}`},
		{"POST", "/v1/locks/job/renew", refOf(lease)},
		{"PUT", "/v1/resources/job/records/k", "value"},
		{"POST", "/v1/transactions", `{"fences":[{"resource":"job","fencing_token":` + token + `,"sequence":7}],` +
			`"ops":[{"op":"put","resource":"job","key":"k","value":1}]}`},
		{"POST", "/v1/sessions", `{"owner_id":"w"}`},
		{"PUT", "/v1/policies/late", `{"require_lease_id":true}`},
		{"POST", "/v1/terraform/state?ID=a", stateText(1, "x")},
		{"POST", "/v1/terraform/state/unlock", lockBody("a")},
		{"POST", "/v1/locks/job/release", refOf(lease)},
	} {
		r := httptest.NewRequest(of.method, of.path, &lateBody{strings.NewReader(of.body), h.gateway})
		r.ContentLength = int64(len(of.body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(api.HeaderFencingToken, token+".1")
		if of.method == http.MethodPut && strings.Contains(of.path, "/records/") {
			r.Header.Set("Content-Type", "text/plain")
		}
		_ = h.gateway.Work(r) // work that began before
		w := httptest.NewRecorder()
		h.gateway.ServeHTTP(w, r)
		if w.Code >= http.StatusBadRequest {
			t.Errorf("%s %s with a body that came late: answered %d %s", of.method, of.path, w.Code, w.Body)
		}
	}
}

// A request that needs no body is answered before its body has arrived, and the answer ends the connection. This holds
// for chunked and sized bodies, and for those announced with Expect: 100-continue.
func TestAnswersBeforeTheBody(t *testing.T) {
	h, _, lease := newServed(t, Config{BodyTimeout: time.Hour})
	type exchange struct {
		request    string
		status     int
		code       api.Code
		connection raw
	}
	var exchanges []exchange // all at the same time: the gateway ends each connection only after a while
	for _, early := range []exchange{
		{"POST /v1/locks//acquire" + onWire + jsonType + "\n", 400, api.CodeInvalidName, raw{}},
		{putOnWire, 428, api.CodeTokenRequired, raw{}},
		{"POST /v1/locks/l/acquire" + onWire + "Content-Type: text/plain\n", 415, api.CodeInvalidRequest, raw{}},
		{"PATCH /v1/locks" + onWire, 405, api.CodeInvalidRequest, raw{}},
		{"POST /nowhere" + onWire, 404, api.CodeNotFound, raw{}},
		{"DELETE /v1/resources/job/records/none" + onWire + token(lease, 2) + "\n", 404, api.CodeNotFound, raw{}},
		{"GET /v1/resources/job/records/none" + onWire, 404, api.CodeNotFound, raw{}},
	} {
		for _, body := range []string{
			"Transfer-Encoding: chunked\n\n4\nhalf\n", "Content-Length: 10\n\nhalf", "Expect: 100-continue\nContent-Length: 10\n\n",
		} {
			e := early
			e.request += body
			e.connection = h.wire(t, e.request)
			exchanges = append(exchanges, e)
		}
	}
	for _, e := range exchanges {
		got, closed := e.connection.answer(t)
		if expectProblem(t, got, e.code); got.status != e.status || !closed {
			t.Errorf("%q: status %d, announces the end of the connection: %v; want %d and true: %s",
				e.request, got.status, closed, e.status, got.body)
		}
	}
	for _, e := range exchanges {
		if rest, err := io.ReadAll(e.connection.reader); err != nil || len(rest) > 0 {
			t.Errorf("%q: after the answer the connection has %q and %v, want its end", e.request, rest, err)
		}
	}
}

// Over HTTP/2 the connection stays usable after such an answer.
func TestAnswersBeforeTheBodyOverHTTP2(t *testing.T) {
	h, _, _ := newServed(t, Config{BodyTimeout: time.Hour})
	h.http = newHTTPClient(t, true)
	h.open(t, watchPath).next(t, api.EventState)
	stalled, sender := io.Pipe()
	t.Cleanup(func() { _ = sender.Close() })
	got, err := h.tryFor(t.Context(), t, http.MethodPost, "/v1/locks//acquire", stalled, jsonType)
	if err != nil {
		t.Fatal(err)
	}
	expectProblem(t, got, api.CodeInvalidName)
	h.acquire(t, "other", "worker")
	if proto := h.get(t, "/healthz").proto; proto != 2 {
		t.Errorf("the next answer came over HTTP/%d, want HTTP/2", proto)
	}
}

// A gateway that shuts down ends its streams with a final event, and does not wait for their clients.
func TestServeEndsStreams(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h, s, _ := newServed(t, Config{})
		h.http = newHTTPClient(t, http2)
		watch := h.open(t, watchPath)
		watch.next(t, api.EventState)
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
		if last.Kind != api.EventEnd || dataOf[api.WatchEnd](t, last).Reason != endpoint.EndShutdown {
			t.Errorf("the last event is %+v, want the end with the reason %s", last, endpoint.EndShutdown)
		}
		for _, stream := range append(rejections, watch) {
			stream.endedFor(t, "shutdown")
		}
		<-feedEnded
	})
}
