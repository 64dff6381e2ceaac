package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
)

// server is a gateway that serves by itself, as the program does.
type server struct {
	base  string
	ask   context.CancelFunc // to end
	ended chan error         // what Serve returned
}

func newServer(t *testing.T, h *harness) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{base: "http://" + listener.Addr().String(), ask: cancel, ended: make(chan error, 1)}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.ended <- h.gateway.Serve(ctx, listener)
	}()
	t.Cleanup(func() {
		cancel()
		<-over
	})
	return s
}

// end asks the server to end and waits until it has.
func (s *server) end() error {
	s.ask()
	return <-s.ended
}

// awaitRefusal returns when nobody listens any more.
func (s *server) awaitRefusal(t *testing.T) {
	t.Helper()
	eventually(t, "new connections are refused", func() bool {
		connection, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
		if err == nil {
			_ = connection.Close()
		}
		return err != nil
	})
}

// newTimed is a gateway that serves by itself, with other timeouts for answers and events.
func newTimed(t *testing.T, config Config, answerTimeout, eventTimeout time.Duration) *harness {
	t.Helper()
	h := newGateway(t, config, store.Config{DatabaseURL: pgtest.Migrated(t)})
	h.gateway.answerTimeout, h.gateway.eventTimeout = answerTimeout, eventTimeout
	h.gateway.handler = conforming(t, h.gateway.handler)
	h.client = client{base: newServer(t, h).base, http: newHTTPClient(t, false)}
	return h
}

// newServed is a busy gateway that serves by itself.
func newServed(t *testing.T, config Config) (*harness, *server, api.Lease) {
	t.Helper()
	h := newGateway(t, config, store.Config{DatabaseURL: pgtest.Migrated(t), StatementTimeout: time.Hour})
	h.gateway.handler = conforming(t, h.gateway.handler)
	s := newServer(t, h)
	h.client = client{base: s.base, http: newHTTPClient(t, false)}
	lease := h.acquire(t, "job", "worker")
	as[api.WriteResult](t, h.put(t, lease, 1, "value"), http.StatusCreated)
	return h, s, lease
}

func TestServeEnds(t *testing.T) {
	_, s, _ := newServed(t, Config{})
	if err := s.end(); err != nil {
		t.Errorf("without requests under way it ended with %v", err)
	}
}

// What was taken is finished and answered; nothing new is taken.
func TestServeFinishesWhatItTook(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h, s, lease := newServed(t, Config{})
		h.http = newHTTPClient(t, http2)
		letGo := h.holdFence(t, "job")
		answers := inBackground(func() answer { return h.put(t, lease, 2, "under way") })
		h.awaitWaiting(t, 1)
		s.ask()
		s.awaitRefusal(t)
		select {
		case err := <-s.ended:
			t.Fatalf("it ended with a request under way: %v", err)
		default:
		}
		letGo()
		if got := <-answers; got.status != http.StatusOK {
			t.Errorf("the request under way was answered %d %s", got.status, got.body)
		}
		if err := <-s.ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
		if value := h.count(t, "select count(*) from fence.records where value = 'under way'"); value != 1 {
			t.Error("what was answered was not written")
		}
	}
}

func TestServeGivesUp(t *testing.T) {
	h, s, lease := newServed(t, Config{ShutdownTimeout: 50 * time.Millisecond, RequestTimeout: time.Hour})
	letGo := h.holdFence(t, "job")
	cut := make(chan error, 1)
	go func() {
		_, err := h.try(t, http.MethodPut, recordPath("job", "k"), "late", token(lease, 2))
		cut <- err
	}()
	h.awaitWaiting(t, 1)
	err := s.end()
	if err == nil || !strings.Contains(err.Error(), "still under way after 50ms") || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
	if err := <-cut; err == nil {
		t.Error("the request was answered")
	}
	eventually(t, "the work is cut off", func() bool { return h.store.PoolStats().Busy == 0 })
	letGo()
	if h.count(t, "select count(*) from fence.fences join fence.records using (resource) where last_sequence = sequence") != 1 {
		t.Error("the write was half applied")
	}
}

// A connection over HTTP/2 whose first bytes come when the server ends already is told so, too.
func TestServeEndsLateConnection(t *testing.T) {
	h, s, _ := newServed(t, Config{ShutdownTimeout: time.Minute})
	late, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Close() }()
	another := newHarnessClient(t, h)
	another.get(t, "/healthz") // what is accepted later is served, so that one is accepted
	s.ask()
	s.awaitRefusal(t)
	const preface, emptySettings = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	if _, err := late.Write([]byte(preface + emptySettings)); err != nil {
		t.Fatal(err)
	}
	if err := <-s.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestServeWithoutListener(t *testing.T) {
	h := newGateway(t, Config{}, store.Config{DatabaseURL: pgtest.Migrated(t)})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if err := h.gateway.Serve(t.Context(), listener); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it served nobody, and said %v", err)
	}
}
