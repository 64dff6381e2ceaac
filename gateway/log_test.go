package gateway

import (
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

	"github.com/fencegate/fencegate/internal/logging"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// logged is the text of a log.
type logged struct{ process.Buffer }

// lines returns the JSON lines with a message.
func (l *logged) lines(t testing.TB, message string) (lines []map[string]any) {
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

// accessKeys are the keys of every line of the access log.
var accessKeys = []string{
	"time", "level", "msg", "method", "route", "path", "status", "code", "reason", "took_ms", "address", "weight",
}

// failing is an engine whose writes succeed and whose reads fail.
type failing struct{ answered }

func (failing) LockAndFence(context.Context, store.Name) (store.Lock, *store.Fence, error) {
	return store.Lock{}, nil, &store.UnavailableError{Outcome: store.OutcomeNotApplied, Err: errors.New("no connection")}
}

// The access log has a sample of the requests, each with its weight, and every failure. All lines have the same keys.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	const requests, failures = 40, 7
	for _, c := range []struct {
		sample, want int
		level        slog.Level
	}{
		{0, 0, slog.LevelInfo}, {1, requests + failures, slog.LevelInfo}, {10, requests/10 + failures, slog.LevelInfo},
		{1000, failures, slog.LevelInfo}, {0, requests + failures, slog.LevelDebug},
		{10, requests + failures, slog.LevelDebug},
	} {
		log := &logged{}
		config := Config{
			AccessLogSample: c.sample, Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: c.level})),
		}
		gateway, err := New(config, failing{answered: accepts}, postgres.NewRecorder(nil), NewMetrics("test"))
		if err != nil {
			t.Fatal(err)
		}
		client := serve(t, gateway)
		for i := range requests {
			client.putWith(t, "job", fmt.Sprintf("Fencing-Token: 1.%d", i+1))
		}
		for range failures {
			client.get(t, "/v1/locks/job")
		}
		await.True(t, fmt.Sprintf("%d requests are logged", c.want),
			func() bool { return len(log.lines(t, "request")) >= c.want })
		lines := log.lines(t, "request")
		if len(lines) != c.want {
			t.Errorf("sample %d, %s: %d lines, want %d", c.sample, c.level, len(lines), c.want)
		}
		failed, weight := 0, 0.0
		for _, line := range lines {
			for _, key := range accessKeys {
				if _, there := line[key]; !there || len(line) != len(accessKeys) {
					t.Fatalf("the keys of %v are not %q", line, accessKeys)
				}
			}
			if line["status"] == 503.0 {
				failed++
				if line["code"] != "unavailable" || line["route"] != "/v1/locks/{lock}" || line["path"] != "/v1/locks/job" ||
					line["weight"] != 1.0 {
					t.Errorf("the line of a failure is %v", line)
				}
			} else if line["level"] == "INFO" {
				weight += line["weight"].(float64)
			}
		}
		if c.want > 0 && failed != failures || c.sample > 0 && c.sample < requests && weight != requests {
			t.Errorf("sample %d: %d failures of %d are logged, and the weights add up to %.0f of %d",
				c.sample, failed, failures, weight, requests)
		}
	}
}

// What an administrator does is logged, and lines of a traced request have the IDs of its trace and span.
func TestLogTrace(t *testing.T) {
	log := &logged{}
	config := Config{Logger: logging.New(log, slog.LevelInfo, true), AccessLogSample: 1}
	h, received := newTraced(t, 0, config, store.Tracing{})
	h.acquire(t, "job", "w")
	header, id := traceparent(7, true)
	as[api.Policy](t, h.send(t, http.MethodPut, "/v1/policies/job", "{}", jsonType, header), http.StatusOK)
	h.delete(t, "/v1/policies/job", header)
	as[api.Broken](t, h.post(t, "/v1/locks/job/break", `{"reason":"stuck"}`, header), http.StatusOK)
	for message, request := range map[string]string{
		"policy set": "PUT /v1/policies/{prefix}", "policy deleted": "DELETE /v1/policies/{prefix}",
		"lease broken": "POST /v1/locks/{lock}/break", "request": "POST /v1/locks/{lock}/break",
	} {
		span := named(t, received, id, request)
		await.True(t, fmt.Sprintf("%q is logged with the trace", message), func() bool {
			return slices.ContainsFunc(log.lines(t, message), func(line map[string]any) bool {
				return line["trace_id"] == id && line["span_id"] == span.SpanID &&
					(message != "lease broken" || line["reason"] == "stuck")
			})
		})
	}
}

// secrets are what no log line and no span may have.
type secrets struct {
	lease, inSession api.Lease
	session          api.Session
}

const otherSession = "00000000-aaaa-bbbb-cccc-000000000000"

func (s secrets) all() []string {
	return []string{
		s.lease.LeaseID, s.inSession.LeaseID, s.session.SessionID, "s3cret-value", "s3cret-metadata", otherSession,
	}
}

var routeVariable = regexp.MustCompile(`\{(\w+)[^}]*\}`)

// Neither the log at level debug nor any span has a lease_id, a session_id or a stored value. The test sends secrets to
// every route, wherever a client may put them and where they do not belong. A refusal does not show the path of a
// session.
func TestSecretsStayHidden(t *testing.T) {
	log := &logged{}
	config := Config{
		Logger: logging.New(log, slog.LevelDebug, true), AccessLogSample: 1, KeepAlive: 200 * time.Millisecond,
	}
	h, received := newTraced(t, 1, config, store.Tracing{})
	h.client = serve(t, h.gateway) // the requests are not those of openapi.yaml
	s := secrets{lease: h.acquire(t, "job", "w")}
	created := h.post(t, "/v1/sessions", `{"owner_id":"w","metadata":{"x":"s3cret-metadata"}}`)
	s.session = as[api.Session](t, created, http.StatusCreated)
	s.inSession = h.acquireAs(t, "other", api.AcquireRequest{OwnerID: "w", SessionID: &s.session.SessionID})
	h.sendToRoutes(t, s)
	h.sendToOtherPaths(t, s)
	for _, r := range requestsOf(s.lease) {
		path := strings.ReplaceAll(r.path, noSession, s.session.SessionID)
		h.sendAny(t, r.method, path, strings.ReplaceAll(r.body, "600000", "1"), r.headers...)
	}
	path := sessionPath(s.session)
	for _, path := range []string{
		path + "/nothing", path + "/", path + "?x=1", "/" + path, strings.Replace(path, "sessions/", "sessions//", 1),
	} {
		got := h.get(t, path)
		if got.status < http.StatusBadRequest || strings.Contains(string(got.body), s.session.SessionID) {
			t.Errorf("%s: want an error without the ID, got %d %s", got.request, got.status, got.body)
		}
	}
	h.exec(t, "drop schema fence cascade") // from here, requests fail
	h.sendToRoutes(t, s)
	h.sendToOtherPaths(t, s)
	header, id := traceparent(1, true)
	problem := expectUnavailable(t, h.get(t, "/v1/locks/last", header), api.OutcomeNotApplied)
	if !strings.Contains(problem.Detail, "no schema of fencegate") || !strings.Contains(problem.Detail, "fencegate migrate") {
		t.Errorf("the detail is %q; want what is missing, and the command that makes it", problem.Detail)
	}
	named(t, received, id, "GET /v1/locks/{lock}")
	await.True(t, "the last request is logged", func() bool { return strings.Contains(log.String(), "/v1/locks/last") })
	for what, text := range map[string]string{"the log": log.String(), "a span": string(received.Raw())} {
		for _, secret := range s.all() {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s shows %s: …%q", what, secret, text[max(0, at-300):min(len(text), at+60)])
			}
		}
	}
	if requests := len(log.lines(t, "request")); requests < 100 || len(log.lines(t, "database unavailable")) == 0 {
		t.Errorf("%d requests are logged, want at least 100 and a failure of the database", requests)
	}
}

// sendToRoutes sends valid and invalid requests to all routes at the same time.
func (h *harness) sendToRoutes(t *testing.T, s secrets) {
	t.Helper()
	bodies := []string{
		"", "s3cret-value", `{"owner_id":"w","s3cret-value":1}`, `{"value":"s3cret-value"`,
		`{"owner_id":"w","session_id":"` + s.session.SessionID + `"}`,
		`{"owner_id":"w","lease_id":"` + s.lease.LeaseID + `","fencing_token":99}`,
		`{"candidate":"w","metadata":"s3cret-metadata"}`,
		`{"owner_id":"w","lease_id":"` + s.inSession.LeaseID + `","fencing_token":1,"ttl_ms":"` + s.lease.LeaseID + `"}`,
		transaction(s.lease, 3), putLine(s.lease, 4, "k", `"s3cret-value"`),
	}
	var sending sync.WaitGroup
	err := h.gateway.routes().Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		template, err := route.GetPathTemplate()
		methods, errMethods := route.GetMethods()
		if err != nil || errMethods != nil {
			return nil //nolint:nilerr // the routes that refuse other methods
		}
		path := routeVariable.ReplaceAllStringFunc(template, func(variable string) string {
			switch {
			case strings.HasPrefix(variable, "{session"):
				return s.session.SessionID
			case strings.HasPrefix(variable, "{key"):
				return "k"
			}
			return "job"
		})
		sending.Go(func() {
			bodies := bodies
			if methods[0] == http.MethodGet { // no body is read
				bodies = bodies[:2]
			}
			for i, body := range bodies {
				h.sendAny(t, methods[0], path, body, jsonType, token(s.lease, 0), api.HeaderLeaseID+": "+s.session.SessionID)
				if i < 2 {
					h.sendAny(t, methods[0], path+"?cursor="+s.lease.LeaseID, body, jsonType)
				}
				if i < 2 {
					h.sendAny(t, methods[0], path, body, "Last-Event-ID: "+s.lease.LeaseID)
				}
			}
		})
		return nil
	})
	sending.Wait()
	if err != nil {
		t.Fatal(err)
	}
}

// sendToOtherPaths sends secrets to paths without a route, and in headers where they do not belong.
func (h *harness) sendToOtherPaths(t *testing.T, s secrets) {
	t.Helper()
	session := s.session.SessionID
	for _, path := range []string{
		"/v1/session/" + session, "/v1/sessions/" + session + "/keep-alive", "/v1/Sessions/" + session,
		"/v1/%73essions/" + session,
		"/v1//sessions/" + session, "//v1/sessions/" + session + "/..", "/proxied/v1/sessions/" + session,
		"/v1/sessions/" + otherSession, "/" + s.lease.LeaseID, "/v1/sessions/" + session + "%ff",
		"/v1/sessions?session_id=" + session, "/v1/rejections?lease_id=" + s.lease.LeaseID,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch} {
			h.sendAny(t, method, path, `"s3cret-value"`, jsonType)
		}
	}
	stale := s.lease
	stale.FencingToken += 1000
	for _, headers := range [][]string{
		{token(stale, 1), api.HeaderLeaseID + ": " + s.lease.LeaseID},
		{token(s.lease, 9), api.HeaderLeaseID + ": " + s.inSession.LeaseID},
		{"Fencing-Token: " + s.lease.LeaseID},
	} {
		h.sendAny(t, http.MethodPut, recordPath("job", "k"), "s3cret-value", headers...)
	}
}

// sendAny sends a request whose answer may be a stream without end: of that it reads only the headers.
func (h *harness) sendAny(t *testing.T, method, path, body string, headers ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, h.base+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	addHeaders(request.Header, headers...)
	response, err := h.http.Do(request)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return
	}
	defer response.Body.Close()
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		_, _ = io.Copy(io.Discard, response.Body)
	}
}
