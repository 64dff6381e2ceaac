package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/logging"
	"github.com/fencegate/fencegate/store"
)

// logged is a log, and its lines.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// lines returns those with a message.
func (l *logged) lines(t *testing.T, message string) (lines []map[string]any) {
	t.Helper()
	for text := range strings.Lines(l.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if line["msg"] == message {
			lines = append(lines, line)
		}
	}
	return lines
}

// accessKeys are those of every line of the access log.
var accessKeys = []string{"time", "level", "msg", "method", "route", "path", "status", "code", "reason", "took_ms", "address", "weight"}

func newLogged(t *testing.T, sample int, level slog.Level) (*Gateway, *logged) {
	t.Helper()
	log := &logged{}
	gateway, err := New(Config{AccessLogSample: sample, Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: level}))},
		failing{answered: accepts}, store.NewRecorder(nil), NewMetrics("test"))
	if err != nil {
		t.Fatal(err)
	}
	return gateway, log
}

// failing is a backend whose writes succeed and whose reads fail.
type failing struct{ answered }

func (failing) LockAndFence(context.Context, store.Name) (store.Lock, *store.Fence, error) {
	return store.Lock{}, nil, &store.UnavailableError{Outcome: store.OutcomeNotApplied, Err: errors.New("it is away")}
}

// One in so many requests is logged, and every failure: with the same keys always.
func TestAccessLog(t *testing.T) {
	const requests, failures = 100, 7
	for _, c := range []struct {
		sample, want int
		level        slog.Level
	}{
		{0, 0, slog.LevelInfo}, {1, requests + failures, slog.LevelInfo}, {10, requests/10 + failures, slog.LevelInfo}, {1000, failures, slog.LevelInfo},
		{0, requests + failures, slog.LevelDebug}, {10, requests + failures, slog.LevelDebug},
	} {
		gateway, log := newLogged(t, c.sample, c.level)
		client := serve(t, gateway)
		for i := range requests {
			client.send(t, http.MethodPut, "/v1/resources/job/records/k", "v", fmt.Sprintf("Fencing-Token: 1.%d", i+1))
		}
		for range failures {
			client.get(t, "/v1/locks/job")
		}
		var lines []map[string]any
		eventually(t, "all is logged", func() bool { lines = log.lines(t, "request"); return len(lines) >= c.want })
		if len(lines) != c.want {
			t.Errorf("sample %d, %s: %d lines, want %d", c.sample, c.level, len(lines), c.want)
		}
		failed := 0
		var stands float64
		for _, line := range lines {
			for _, key := range accessKeys {
				if _, there := line[key]; !there || len(line) != len(accessKeys) {
					t.Fatalf("the keys of %v are not %q", line, accessKeys)
				}
			}
			if line["status"] == 503.0 {
				failed++
				if line["code"] != "unavailable" || line["route"] != "/v1/locks/{lock}" || line["path"] != "/v1/locks/job" || line["weight"] != 1.0 {
					t.Errorf("got %v", line)
				}
			} else if line["level"] == "INFO" {
				stands += line["weight"].(float64)
			}
		}
		if c.want > 0 && failed != failures || c.sample > 0 && c.sample < requests && stands != requests {
			t.Errorf("sample %d: %d failures are logged, and lines that stand for %.0f requests", c.sample, failed, stands)
		}
	}
	if _, err := New(Config{AccessLogSample: -1}, nil, nil, NewMetrics("test")); !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), "--access-log-sample") {
		t.Errorf("-1 is taken: %v", err)
	}
}

// Lines of what is traced say in which trace, and those of failures, too.
func TestLogTrace(t *testing.T) {
	log := &logged{}
	h, received := newTraced(t, 0, Config{Logger: logging.New(log, slog.LevelInfo, true), AccessLogSample: 1}, store.Tracing{})
	h.acquire(t, "job", "w")
	header, id := traceparent(7, true)
	as[api.Broken](t, h.post(t, "/v1/locks/job/break", `{"reason":"r"}`, header), http.StatusOK)
	span := named(t, received, id, "POST /v1/locks/{lock}/break")
	for _, message := range []string{"lease broken", "request"} {
		var lines []map[string]any
		eventually(t, message, func() bool {
			lines = log.lines(t, message)
			return slices.ContainsFunc(lines, func(line map[string]any) bool { return line["trace_id"] == id && line["span_id"] == span.SpanID })
		})
	}
}

// secrets are what no log line and no span may ever have.
type secrets struct {
	lease, inSession api.Lease
	session          api.Session
}

func (s secrets) all() []string {
	return []string{s.lease.LeaseID, s.inSession.LeaseID, s.session.SessionID, "s3cret-value", "s3cret-metadata", "00000000-aaaa-bbbb-cccc-000000000000"}
}

var routeVariable = regexp.MustCompile(`\{(\w+)[^}]*\}`)

// Neither the log at its most talkative nor any span has a secret in it: not the ID of a lease or a session, and nothing of what is stored.
// Every route is asked, with secrets wherever a client may put them, also where they are out of place.
func TestSecretsStayHidden(t *testing.T) {
	log := &logged{}
	h, received := newTraced(t, 1, Config{Logger: logging.New(log, slog.LevelDebug, true), AccessLogSample: 1}, store.Tracing{})
	h.client = serve(t, h.gateway) // what is sent here, openapi.yaml does not know
	s := secrets{lease: h.acquire(t, "job", "w")}
	s.session = as[api.Session](t, h.post(t, "/v1/sessions", `{"owner_id":"w","metadata":{"x":"s3cret-metadata"}}`), http.StatusCreated)
	s.inSession = as[api.Lease](t, h.post(t, "/v1/locks/other/acquire", `{"owner_id":"w","session_id":"`+s.session.SessionID+`"}`), http.StatusOK)
	ask := func() {
		h.askEverything(t, s)
		h.askStrangely(t, s)
	}
	ask()
	for _, r := range requestsOf(s.lease) {
		h.hurried(t, r.method, strings.ReplaceAll(r.path, noSession, s.session.SessionID), strings.ReplaceAll(r.body, "600000", "1"), r.header...)
	}
	if _, err := h.db.Exec(t.Context(), "drop schema fence cascade"); err != nil {
		t.Fatal(err)
	}
	ask() // and all fails
	header, id := traceparent(1, true)
	h.get(t, "/v1/locks/last", header)
	named(t, received, id, "GET /v1/locks/{lock}")
	eventually(t, "the last is logged", func() bool { return strings.Contains(log.String(), "/v1/locks/last") })
	spans := string(received.Raw())
	for _, secret := range s.all() {
		for what, text := range map[string]string{"the log": log.String(), "spans": spans} {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s show %s: …%q", what, secret, text[max(0, at-300):min(len(text), at+60)])
			}
		}
	}
	if requests := len(log.lines(t, "request")); requests < 100 || len(log.lines(t, "database unavailable")) == 0 {
		t.Errorf("only %d requests are logged, or no failure", requests)
	}
}

// askEverything sends to every route of every method what it takes and what it doesn't.
func (h *harness) askEverything(t *testing.T, s secrets) {
	bodies := []string{
		"", "s3cret-value", `{"owner_id":"w","s3cret-value":1}`, `{"value":"s3cret-value"`, `{"owner_id":"w","session_id":"` + s.session.SessionID + `"}`,
		`{"owner_id":"w","lease_id":"` + s.lease.LeaseID + `","fencing_token":99}`, `{"candidate":"w","metadata":"s3cret-metadata"}`,
		`{"owner_id":"w","lease_id":"` + s.inSession.LeaseID + `","fencing_token":1,"ttl_ms":"` + s.lease.LeaseID + `"}`,
		transaction(s.lease, 3), putLine(s.lease, 4, "k", `"s3cret-value"`),
	}
	err := h.gateway.routes().Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		template, err := route.GetPathTemplate()
		methods, errMethods := route.GetMethods()
		if err != nil || errMethods != nil {
			return nil //nolint:nilerr // the fast path, and what answers to other methods
		}
		path := routeVariable.ReplaceAllStringFunc(template, func(variable string) string {
			if strings.HasPrefix(variable, "{session") {
				return s.session.SessionID
			}
			return map[bool]string{true: "job", false: "k"}[!strings.HasPrefix(variable, "{key")]
		})
		for _, body := range bodies {
			h.hurried(t, methods[0], path+"?cursor="+s.lease.LeaseID, body, jsonType)
			h.hurried(t, methods[0], path, body, jsonType, token(s.lease, 0), api.HeaderLeaseID+": "+s.session.SessionID)
			h.hurried(t, methods[0], path, body, "Content-Type: "+api.BulkContentType, "Last-Event-ID: "+s.lease.LeaseID)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// askStrangely has secrets in paths where there is nothing, and where they do not belong.
func (h *harness) askStrangely(t *testing.T, s secrets) {
	for _, path := range []string{
		"/v1/session/" + s.session.SessionID, "/v1/sessions/" + s.session.SessionID + "/keep-alive", "/v1/Sessions/" + s.session.SessionID,
		"/v1/%73essions/" + s.session.SessionID, "/v1//sessions/" + s.session.SessionID, "//v1/sessions/" + s.session.SessionID + "/..",
		"/proxied/v1/sessions/" + s.session.SessionID, "/v1/sessions/00000000-aaaa-bbbb-cccc-000000000000", "/" + s.lease.LeaseID,
		"/v1/sessions/" + s.session.SessionID + "%ff", "/v1/sessions?session_id=" + s.session.SessionID, "/v1/rejections?lease_id=" + s.lease.LeaseID,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch} {
			h.hurried(t, method, path, `"s3cret-value"`, jsonType)
		}
	}
	stale := s.lease
	stale.FencingToken += 1000
	h.hurried(t, http.MethodPut, recordPath("job", "k"), "s3cret-value", token(stale, 1), api.HeaderLeaseID+": "+s.lease.LeaseID)
	h.hurried(t, http.MethodPut, recordPath("job", "k"), "s3cret-value", token(s.lease, 9), api.HeaderLeaseID+": "+s.inSession.LeaseID)
	h.hurried(t, http.MethodPut, recordPath("job", "k"), "s3cret-value", "Fencing-Token: "+s.lease.LeaseID)
}

// hurried sends a request, whose answer may be a stream that does not end.
func (h *harness) hurried(t *testing.T, method, path, body string, headers ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, h.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Add(name, value)
	}
	response, err := h.http.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		_, _ = io.Copy(io.Discard, response.Body)
	}
}
