package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
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
