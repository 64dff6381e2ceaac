package openapi

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/mux"
)

// failures keeps the failures of a test.
type failures struct {
	testing.TB

	texts []string
}

func (f *failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) {
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}

// expect checks that one failure has this text, or with "" that there are none.
func (f *failures) expect(t *testing.T, text string) {
	t.Helper()
	got := strings.Join(f.texts, "\n")
	if text == "" && got != "" || !strings.Contains(got, text) {
		t.Errorf("the failures are %q, want one with %q", got, text)
	}
}

const (
	fakeLease = `{"lock":"job-42","owner_id":"worker-1","lease_id":"0b2f6a36-5c0e-4f2b-9d8e-5a0b6f5f3c11",` +
		`"fencing_token":34,"mode":"exclusive","scope":"node","ttl_ms":30000,"granted_at":"2026-01-02T09:00:00.000Z",` +
		`"expires_at":"2026-01-02T09:00:30.000Z","waited_ms":0}`
	fakeWritten = `{"resource":"job-42","key":"draft","version":1,"fencing_token":34,"sequence":1,"replayed":false}`
	fakeFence   = `{"resource":"job/42","granted_token":34,"open":true,"last_token":0,"last_sequence":0,` +
		`"policy":` + fakePolicy + `}`
	fakePolicy = `{"prefix":"","rule":"strict","authority":"builtin",` +
		`"require_lease_id":false,"require_live_lease":false}`
	problemFormat = `{"type":"urn:fencegate:problem:%[2]s","title":"t","status":%[1]d,"detail":"d",` +
		`"code":"%[2]s","retryable":false%[3]s}`
)

func problemText(status int, code, more string) string {
	return fmt.Sprintf(problemFormat, status, code, more)
}

// addLines adds headers that are written as lines "Name: value".
func addLines(header http.Header, text string) {
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); found {
			header.Add(name, value)
		}
	}
}

// fakeExchange is a request, and the answer of a fake handler.
type fakeExchange struct {
	name          string
	request       string // method and target
	requestHeader string // lines
	requestBody   string
	status        int    // 0: 200
	header        string // lines
	body          string
	failure       string // a part of what the check must report; "": nothing
}

func (e fakeExchange) run(t *testing.T) {
	recorder := &failures{TB: t}
	handler := described(t).Conforming(recorder, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		addLines(w.Header(), e.header)
		if w.Header().Get("Content-Type") == "" && strings.HasPrefix(e.body, "{") {
			w.Header().Set("Content-Type", "application/json")
			if e.status >= http.StatusBadRequest {
				w.Header().Set("Content-Type", "application/problem+json")
			}
		}
		w.WriteHeader(max(e.status, http.StatusOK))
		_, _ = io.WriteString(w, e.body)
	}))
	method, target, _ := strings.Cut(e.request, " ")
	r := httptest.NewRequest(method, target, strings.NewReader(e.requestBody))
	addLines(r.Header, e.requestHeader)
	if strings.HasPrefix(e.requestBody, "{") {
		r.Header.Set("Content-Type", "application/json")
	}
	handler.ServeHTTP(httptest.NewRecorder(), r)
	recorder.expect(t, e.failure)
}

func TestOpenAPICheckOfAnswers(t *testing.T) {
	t.Parallel()
	lease := func(old, with string) string { return strings.Replace(fakeLease, old, with, 1) }
	held := problemText(409, "lock_held", `,"holder":{"owner_id":"w","expires_at":"2026-01-02T09:00:00.000Z"},`+
		`"queue_length":0,"recommended_retry_ms":1`)
	held = strings.Replace(held, `"retryable":false`, `"retryable":true`, 1)
	const plain, retry = "Content-Type: text/plain", "Retry-After: 1"
	invalid := problemText(400, "invalid_request", "")
	for _, e := range []fakeExchange{
		{name: "as described", body: fakeLease},
		{name: "field not described", body: lease("{", `{"term":1,`), failure: `property "term" is unsupported`},
		{name: "field missing", body: lease(`"fencing_token":34,`, ""), failure: `property "fencing_token" is missing`},
		{name: "time without milliseconds", body: lease("09:00:00.000Z", "09:00:00Z"), failure: "/granted_at"},
		{name: "status not described", status: 202, body: fakeLease, failure: "status is not described for acquire"},
		{name: "no body", header: "Content-Type: application/json", failure: "failed to decode"},
		{name: "another content type", header: plain, body: fakeLease, failure: "Content-Type"},
		{name: "header not described", header: "Etag: \"1\"", body: fakeLease,
			failure: "header Etag of the answer is not described"},
		{name: "problem", status: 409, header: retry, body: held},
		{
			name: "problem without its data", status: 409, header: retry,
			body:    strings.Replace(held, `"queue_length":0,`, "", 1),
			failure: `property "queue_length" is missing`,
		},
		{name: "code of another status", status: 409, body: problemText(409, "token_stale", ""), failure: "discriminator"},
		{name: "another status in it", status: 400, body: problemText(404, "invalid_request", ""), failure: "/status"},
		{
			name: "problem as JSON", status: 400, header: "Content-Type: application/json", body: invalid,
			failure: "Content-Type",
		},
		{
			name: "header missing", request: "GET /v1/policies", status: 503,
			body: problemText(503, "unavailable", `,"outcome":"unknown"`), failure: "Retry-After",
		},
	} {
		if e.request == "" {
			e.request, e.requestBody = "POST /v1/locks/job-42/acquire", `{"owner_id":"worker-1"}`
		}
		t.Run(e.name, e.run)
	}
}

func TestOpenAPICheckOfPaths(t *testing.T) {
	t.Parallel()
	refused, noPath := problemText(405, "invalid_request", ""), problemText(404, "not_found", "")
	for _, e := range []fakeExchange{
		{name: "slashes", request: "GET /v1/resources/job/42/fence", body: fakeFence},
		{name: "escaped slashes", request: "GET /v1/resources/job%2F42/fence", body: fakeFence},
		{name: "no path", request: "GET /v1/seasons", body: `{}`, failure: "path is not described"},
		{name: "no path, refused", request: "GET /v1/seasons", status: 404, body: noPath},
		{name: "no method", request: "PATCH /healthz", body: `{"status":"ok"}`,
			failure: "method is not described for /healthz"},
		{
			name: "method of a less specific path", request: "GET /v1/locks/job-42/acquire", body: fakeLease,
			failure: "method is not described for /v1/locks/{lock}/acquire",
		},
		{name: "method refused", request: "POST /v1/policies/job-42", status: 405, header: "Allow: GET, PUT, DELETE",
			body: refused},
		{
			name: "Allow is wrong", request: "POST /v1/policies/job-42", status: 405, header: "Allow: GET, PUT", body: refused,
			failure: "allowed are",
		},
	} {
		t.Run(e.name, e.run)
	}
}

func TestOpenAPICheckOfRecords(t *testing.T) {
	t.Parallel()
	const record, tag = "/v1/resources/job-42/records/draft", "ETag: \"1\"\n"
	const rest = "Fencing-Token: 34.1\nCache-Control: no-cache"
	const browsers = "\nContent-Security-Policy: sandbox; default-src 'none'\nX-Content-Type-Options: nosniff"
	const text = browsers + "\nContent-Type: text/plain"
	noTag, noStatus, noBody := `"ETag" missing`, "status is not described", "none is described"
	for _, e := range []fakeExchange{
		{name: "any type", request: "GET " + record, header: tag + rest + browsers + "\nContent-Type: image/png",
			body: "\x89PNG\x00\xff"},
		{name: "no ETag", request: "GET " + record, header: rest + text, body: "x", failure: noTag},
		{
			name: "malformed token", request: "GET " + record, header: tag + strings.Replace(rest, "34.1", "034", 1) + text,
			body:    "x",
			failure: "Fencing-Token",
		},
		{name: "head", request: "HEAD " + record, header: tag + rest + text, body: "x"},
		{name: "head, no ETag", request: "HEAD " + record, header: rest + browsers, failure: noTag},
		{name: "head, status", request: "HEAD " + record, status: 418, failure: noStatus},
		{name: "not modified", request: "GET " + record, status: 304, header: tag + rest},
		{name: "not modified, no ETag", request: "GET " + record, status: 304, header: rest, failure: noTag},
		{name: "not modified, body", request: "GET " + record, status: 304, header: tag + rest, body: "x", failure: noBody},
		{name: "not modified, status", request: "PUT " + record, status: 304, failure: noStatus},
		{
			name: "put of any type", request: "PUT " + record, requestHeader: "Fencing-Token: 34.1\nContent-Type: image/png",
			requestBody: "\x89PNG", status: 201, header: tag, body: fakeWritten,
		},
		{name: "put of nothing", request: "PUT " + record, requestHeader: "Fencing-Token: 34.1", status: 201, header: tag,
			body: fakeWritten},
		{
			name: "malformed token accepted", request: "PUT " + record, requestHeader: "Fencing-Token: 34.01", status: 201,
			header: tag, body: fakeWritten, failure: `"Fencing-Token" in header`,
		},
		{name: "body after 204", request: "DELETE /v1/policies/job-42", status: 204, body: "x", failure: noBody},
	} {
		t.Run(e.name, e.run)
	}
}

func TestOpenAPICheckOfRequests(t *testing.T) {
	t.Parallel()
	const acquire, misspelt = "POST /v1/locks/job-42/acquire", `{"owner_id":"w","tll_ms":1}`
	noName := `"resource" in path`
	for _, e := range []fakeExchange{
		{name: "field", request: acquire, requestBody: misspelt, body: fakeLease,
			failure: `property "tll_ms" is unsupported`},
		{name: "field, refused", request: acquire, requestBody: misspelt, status: 400,
			body: problemText(400, "invalid_request", "")},
		{name: "limit", request: acquire, requestBody: `{"owner_id":"w","ttl_ms":86400001}`, body: fakeLease,
			failure: "/ttl_ms"},
		{
			name: "null in every optional field", request: acquire, body: fakeLease,
			requestBody: `{"owner_id":"w","ttl_ms":null,` +
				`"mode":null,"scope":null,"wait_ms":null,"session_id":null,"request_id":null,"metadata":null}`,
		},
		{name: "no body", request: acquire, body: fakeLease, failure: "value is required"},
		{
			name: "parameter", request: "GET /v1/policies?limit=1", body: `{"policies":[]}`,
			failure: "parameter limit is not described",
		},
		{name: "parameter's limit", request: "GET /v1/locks?limit=1001", body: `{"locks":[]}`, failure: `"limit" in query`},
		{name: "no name", request: "GET /v1/resources//fence", body: fakeFence, failure: noName},
		{name: "empty segment", request: "GET /v1/resources/a//b/fence", body: fakeFence, failure: noName},
		{name: "line break", request: "GET /v1/resources/a%0Ab/fence", body: fakeFence, failure: noName},
		{name: "policy of every name", request: "GET /v1/policies/", body: fakePolicy},
		{
			name: "null as a value", request: "POST /v1/transactions",
			requestBody: `{"fences":[{"resource":"a","fencing_token":1,` +
				`"sequence":null}],"ops":[{"op":"put","resource":"a","key":"b","value":null}]}`,
			body: `{"results":[{"op":"put","resource":"a","key":"b","version":1}],"replayed":false}`,
		},
	} {
		t.Run(e.name, e.run)
	}
}

// The check lets http.ResponseController reach the connection.
func TestOpenAPICheckReachesTheConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(described(t).Conforming(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Errorf("setting a deadline failed: %v", err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":"ok"}`)
	})))
	defer server.Close()
	got, err := server.Client().Get(server.URL + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	if _ = got.Body.Close(); got.StatusCode != http.StatusOK {
		t.Errorf("answered %d, want 200", got.StatusCode)
	}
}

// describedRouter routes every path of openapi.yaml except one, and refuses other methods.
func describedRouter(t *testing.T, except string) *mux.Router {
	t.Helper()
	router := mux.NewRouter().SkipClean(true)
	for _, path := range described(t).paths {
		if path.template == except {
			continue
		}
		template := strings.ReplaceAll(path.template, "}", ":(?s:.*)}")
		methods := path.methods()
		router.Path(template).Methods(methods...).HandlerFunc(http.NotFound)
		router.Path(template).HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			addLines(w.Header(), "Content-Type: application/problem+json\nAllow: "+strings.Join(methods, ", "))
			w.WriteHeader(http.StatusMethodNotAllowed)
			_, _ = io.WriteString(w, problemText(http.StatusMethodNotAllowed, "invalid_request", ""))
		})
	}
	return router
}

func TestOpenAPICheckOfRoutes(t *testing.T) {
	t.Parallel()
	const locks = "/v1/locks"
	add := func(path string, methods ...string) func(*mux.Router) {
		return func(r *mux.Router) { r.Path(path).Methods(methods...).HandlerFunc(http.NotFound) }
	}
	addAny := func(path string) func(*mux.Router) {
		return func(r *mux.Router) { r.Path(path).HandlerFunc(func(http.ResponseWriter, *http.Request) {}) }
	}
	for _, c := range []struct {
		name, except string
		add          []func(*mux.Router)
		failure      string
	}{
		{"as described", "", nil, ""},
		{"a route missing", locks, nil, "GET " + locks + "\n"},
		{"a route more", "", []func(*mux.Router){add("/v1/seasons/{id:[a-z]{3}}", "GET")}, "GET /v1/seasons/{id}"},
		{"a method more", "", []func(*mux.Router){add(locks, "PUT")}, "PUT " + locks},
		{"a route for any method", "", []func(*mux.Router){addAny("/debug")}, "with any method:\n/debug"},
		{"other methods accepted", locks, []func(*mux.Router){add(locks, "GET"), addAny(locks)}, "PATCH " + locks},
	} {
		t.Run(c.name, func(t *testing.T) {
			recorder := &failures{TB: t}
			router := describedRouter(t, c.except)
			for _, add := range c.add {
				add(router)
			}
			described(t).CheckRoutes(recorder, router)
			recorder.expect(t, c.failure)
		})
	}
}

func TestOpenAPICheckOfEvents(t *testing.T) {
	t.Parallel()
	const watch = "GET /v1/rejections/stream"
	const header = "Content-Type: text/event-stream\nCache-Control: no-store\nX-Accel-Buffering: no"
	const missed = "id: 3\nevent: missed\ndata: {\"since\":\"2026-01-02T09:00:00.000Z\"}\n\n"
	replace := func(old, with string) string { return strings.Replace(missed, old, with, 1) }
	const end = "event: end\ndata: {\"reason\":\"shutdown\"}\n\n"
	for _, e := range []fakeExchange{
		{name: "as described", body: ":\n\n" + missed + ":\n\n" + end},
		{name: "nothing yet", body: ""},
		{name: "cut off", body: missed + "id: 4\nev"},
		{name: "event not described", body: replace("event: missed", "event: mixed"),
			failure: `"mixed" is not described`},
		{name: "event of another stream", body: replace("event: missed", "event: state"),
			failure: `"state" is not described`},
		{name: "field not described", body: replace("since", "until"), failure: "until"},
		{name: "field missing", body: replace(`"since":"2026-01-02T09:00:00.000Z"`, ""), failure: "since"},
		{name: "no id", body: replace("id: 3\n", ""), failure: "belongs to every event"},
		{name: "an id of the end", body: "id: 4\n" + end, failure: "belongs to every event"},
		{name: "more after the end", body: end + missed, failure: "belongs to every event"},
		{name: "data of two lines", body: replace(":\"", ":\ndata: \""), failure: "this is no event"},
		{name: "no JSON", body: replace("{", ""), failure: "event 0"},
	} {
		e.request, e.status, e.header = watch, http.StatusOK, header
		t.Run(e.name, e.run)
	}
	other := strings.Replace(header, "X-Accel", "X-Excel", 1)
	fakeExchange{request: watch, header: other, failure: "X-Excel-Buffering"}.run(t)
}
