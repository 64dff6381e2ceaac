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
	"github.com/fencegate/fencegate/gateway/writes"
	"github.com/fencegate/fencegate/internal/logging"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/otlptest"
	"github.com/fencegate/fencegate/internal/testenv/process"
	"github.com/fencegate/fencegate/store"
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

// failing is a backend whose writes succeed and whose reads fail.
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
		gateway, err := New(config, failing{answered: accepts}, store.NewRecorder(nil), NewMetrics("test"))
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
	h.get(t, "/v1/locks/last", header)
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
				if i < 2 || path == "/v1/writes" {
					h.sendAny(t, methods[0], path, body, "Content-Type: "+api.BulkContentType, "Last-Event-ID: "+s.lease.LeaseID)
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

// newTraced is newHarness with a receiver of its spans.
func newTraced(t testing.TB, ratio float64, config Config, tracing store.Tracing) (*harness, *otlptest.Receiver) {
	t.Helper()
	received, provider := otlptest.Start(t, ratio)
	tracing.Provider = provider
	config.Tracing = tracing
	database := patientDatabase(t)
	database.Tracing = tracing
	return newHarnessOn(t, config, database), received
}

// traceparent returns the header of a request in the trace with this number, and the ID of the trace.
func traceparent(number int, sampled bool) (header, traceID string) {
	traceID = fmt.Sprintf("%032x", number)
	flags := map[bool]string{true: "01", false: "00"}[sampled]
	return "traceparent: 00-" + traceID + "-00000000000000aa-" + flags, traceID
}

// named waits for the span with this name in a trace.
func named(t testing.TB, from *otlptest.Receiver, traceID, name string) otlptest.Span {
	t.Helper()
	return from.Await(t, name, func(s otlptest.Span) bool { return s.TraceID == traceID && s.Name == name })
}

// The spans of a write lead from the client's request to the SQL statement.
func TestTraceOfAWrite(t *testing.T) {
	h, received := newTraced(t, 0, Config{}, store.Tracing{})
	lease := h.acquire(t, "job", "w")
	header, id := traceparent(1, true)
	got := as[api.WriteResult](t, h.putWith(t, "job", token(lease, 1), header), http.StatusCreated)
	request := named(t, received, id, "PUT /v1/resources/{resource}/records/{key}")
	write := named(t, received, id, "write")
	batch := named(t, received, id, "write batch")
	statement := named(t, received, id, "query fence.write_one")
	if request.ParentID != "00000000000000aa" || write.ParentID != request.SpanID || batch.ParentID != write.SpanID ||
		statement.ParentID != batch.SpanID {
		t.Errorf("each span must be the parent of the next: %+v", []otlptest.Span{request, write, batch, statement})
	}
	if !request.Server || !slices.Equal(batch.Links, []string{write.SpanID}) {
		t.Errorf("the request %+v must be a server span, and the batch %+v must link the write", request, batch)
	}
	expectAttributes(t, request, map[string]string{
		"http.request.method": "PUT", "http.route": "/v1/resources/{resource}/records/{key}",
		"http.response.status_code": "201", "url.path": "/v1/resources/job/records/k", "fencegate.resource": "job",
		"fencegate.key": "k", "client.address": "127.0.0.1",
	})
	expectAttributes(t, write, map[string]string{
		"fencegate.code": "accepted", "fencegate.fencing_token": fmt.Sprint(lease.FencingToken), "fencegate.sequence": "1",
		"fencegate.resource": "job", "fencegate.version": fmt.Sprint(got.Version), "fencegate.replayed": "false",
	})
	expectAttributes(t, batch, map[string]string{"fencegate.batch.writes": "1", "fencegate.batch.lane": "quick"})
}

func expectAttributes(t *testing.T, span otlptest.Span, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if span.Attributes[key] != value {
			t.Errorf("%s: %s is %q, want %q", span.Name, key, span.Attributes[key], value)
		}
	}
	if span.Failed {
		t.Errorf("the span %s failed, want success: %s", span.Name, span.Status)
	}
}

// The span of a rejected write did not fail. That of a write without a database did.
func TestTraceOfRejections(t *testing.T) {
	h, received := newTraced(t, 0, Config{}, store.Tracing{})
	lease := h.acquire(t, "job", "w")
	h.release(t, lease)
	h.acquire(t, "job", "w")
	stale := map[string]string{"fencegate.code": "token_stale", "fencegate.reason": "superseded"}
	header, id := traceparent(1, true)
	expectProblem(t, h.putWith(t, "job", token(lease, 1), header), api.CodeTokenStale)
	for _, name := range []string{"PUT /v1/resources/{resource}/records/{key}", "write"} {
		expectAttributes(t, named(t, received, id, name), stale)
	}
	await.True(t, "the zombie is refused early", func() bool {
		expectProblem(t, h.put(t, lease, 2, "v"), api.CodeTokenStale)
		return h.store.RefusedEarly() > 0
	})
	header, early := traceparent(2, true)
	expectProblem(t, h.putWith(t, "job", token(lease, 1), header), api.CodeTokenStale)
	write := named(t, received, early, "write")
	expectAttributes(t, write, stale)
	for _, span := range received.Spans() {
		if span.ParentID == write.SpanID {
			t.Errorf("an early refusal has the batch %+v, want none", span)
		}
	}

	h.exec(t, "alter function fence.write_one rename to write_none")
	newest := h.acquire(t, "other", "w")
	header, id = traceparent(3, true)
	expectUnavailable(t, h.putWith(t, "other", token(newest, 1), header), api.OutcomeNotApplied)
	for _, name := range []string{"PUT /v1/resources/{resource}/records/{key}", "write", "write batch"} {
		if span := named(t, received, id, name); !span.Failed {
			t.Errorf("the span %s did not fail: %+v", name, span)
		}
	}
}

// A client that began the trace decides whether it is sampled. Probes and files are not traced.
func TestSampling(t *testing.T) {
	h, received := newTraced(t, 0, Config{}, store.Tracing{})
	lease := h.acquire(t, "job", "w") // the gateway begins this trace, with a ratio of 0
	unsampled, _ := traceparent(1, false)
	as[api.WriteResult](t, h.putWith(t, "job", token(lease, 1), unsampled), http.StatusCreated)
	sampled, id := traceparent(2, true)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.yaml", "/", "/ui/base.css"} {
		if got := h.get(t, path, sampled); got.status != http.StatusOK {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	for _, broken := range []string{
		"traceparent: 00-zz", "traceparent: ", "traceparent: 00-" + strings.Repeat("0", 32) + "-00000000000000aa-01",
	} {
		as[api.Lock](t, h.get(t, "/v1/locks/job", broken), http.StatusOK)
	}
	as[api.Lock](t, h.get(t, "/v1/locks/job", sampled), http.StatusOK)
	request := named(t, received, id, "GET /v1/locks/{lock}")
	for _, span := range received.Spans() {
		if span.TraceID != id || span.Server && span.SpanID != request.SpanID {
			t.Errorf("the span %+v was sent, want only those of the sampled request", span)
		}
	}
}

// No span has the name of a lock in its own name, and with LeaveOutNames none has it at all. A request with invalid
// UTF-8 loses no spans.
func TestTraceNames(t *testing.T) {
	for _, leaveOut := range []bool{false, true} {
		h, received := newTraced(t, 1, Config{}, store.Tracing{LeaveOutNames: leaveOut})
		lease := h.acquire(t, "hidden", "w")
		as[api.WriteResult](t, h.put(t, lease, 1, "v"), http.StatusCreated)
		verdicts, _ := h.bulk(t, putLine(lease, 2, "hidden-key", "1"))
		as[api.Locks](t, h.get(t, "/v1/locks?prefix=hidden"), http.StatusOK)
		expectProblem(t, h.get(t, "/v1/locks/hidden%ff"), api.CodeInvalidName)
		expectProblem(t, h.get(t, "/hidden%ff", "User-Agent: \xff\xfe"), api.CodeNotFound)
		header, id := traceparent(9, true)
		as[api.Lock](t, h.get(t, "/v1/locks/hidden", header), http.StatusOK)
		named(t, received, id, "GET /v1/locks/{lock}")
		received.Await(t, "the request without a route", func(s otlptest.Span) bool {
			return s.Name == "GET" && s.Attributes["fencegate.code"] == "not_found"
		})
		for _, span := range received.Spans() {
			if strings.Contains(span.Name, "hidden") {
				t.Errorf("the name of the span %+v has the name of a lock", span)
			}
		}
		if shown := bytes.Contains(received.Raw(), []byte("hidden")); shown == leaveOut || len(verdicts) != 1 {
			t.Errorf("LeaveOutNames is %v, and spans have names: %v (%d verdicts)", leaveOut, shown, len(verdicts))
		}
	}
}

// A stream of writes has spans for a bounded number of lines per second.
func TestTraceOfABulkStream(t *testing.T) {
	h, received := newTraced(t, 1, Config{}, store.Tracing{})
	lease := h.acquire(t, "job", "w")
	var lines strings.Builder
	const count = 1000
	for i := range count {
		lines.WriteString(putLine(lease, int64(i)+1, "k", "1"))
	}
	begun := time.Now()
	verdicts, _ := h.bulk(t, lines.String())
	seconds := int(time.Since(begun)/time.Second) + 1
	stream := received.Await(t, "the stream of writes", func(s otlptest.Span) bool { return s.Name == "POST /v1/writes" })
	spanned, batches := 0, 0
	for _, span := range received.Spans() {
		switch {
		case span.Name == "write" && span.ParentID == stream.SpanID:
			spanned++
		case span.Name == "write batch":
			batches++
			if len(span.Links) == 0 || len(span.Links) > 64 {
				t.Errorf("a batch has %d links, want 1 to 64", len(span.Links))
			}
		}
	}
	if len(verdicts) != count || spanned < writes.LineSpansMax || spanned > writes.LineSpansMax*seconds || batches == 0 {
		t.Errorf("%d lines in %d s have %d spans and %d batches, want %d spans per second",
			len(verdicts), seconds, spanned, batches, writes.LineSpansMax)
	}
}
