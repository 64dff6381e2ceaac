package gateway

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/mux"
)

// failures is a test that keeps what it is failed with.
type failures struct {
	testing.TB

	texts []string
}

func (f *failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) {
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}

// expect reports whether f was failed with a text that holds wanted; "": was not failed.
func (f *failures) expect(t *testing.T, wanted string) {
	t.Helper()
	got := strings.Join(f.texts, "\n")
	if wanted == "" && got != "" || !strings.Contains(got, wanted) {
		t.Errorf("want a failure with %q, got %q", wanted, got)
	}
}

const (
	fakeLease = `{"lock":"job-42","owner_id":"worker-1","lease_id":"0b2f6a36-5c0e-4f2b-9d8e-5a0b6f5f3c11","fencing_token":34,"mode":"exclusive",` +
		`"scope":"node","ttl_ms":30000,"granted_at":"2026-01-02T09:00:00.000Z","expires_at":"2026-01-02T09:00:30.000Z","waited_ms":0}`
	fakeWritten   = `{"resource":"job-42","key":"draft","version":1,"fencing_token":34,"sequence":1,"replayed":false}`
	fakeFence     = `{"resource":"job/42","granted_token":34,"open":true,"last_token":0,"last_sequence":0,"policy":` + fakePolicy + `}`
	fakePolicy    = `{"prefix":"","rule":"strict","authority":"builtin","require_lease_id":false,"require_live_lease":false}`
	problemFormat = `{"type":"urn:fencegate:problem:%[2]s","title":"t","status":%[1]d,"detail":"d","code":"%[2]s","retryable":false%[3]s}`
)

func problemText(status int, code, more string) string {
	return fmt.Sprintf(problemFormat, status, code, more)
}

// addHeaders reads "Name: value" lines.
func addHeaders(header http.Header, text string) {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		header.Add(name, value)
	}
}

// fakeExchange is a request and the answer that a fake handler gives.
type fakeExchange struct {
	name          string
	request       string // method and target
	requestHeader string
	requestBody   string
	status        int
	header        string
	body          string
	failure       string // what the check must say; "" nothing
}

func (e fakeExchange) run(t *testing.T) {
	recorder := &failures{TB: t}
	handler := conforming(recorder, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		addHeaders(w.Header(), e.header)
		if w.Header().Get("Content-Type") == "" && strings.HasPrefix(e.body, "{") {
			w.Header().Set("Content-Type", "application/json")
			if e.status >= http.StatusBadRequest {
				w.Header().Set("Content-Type", "application/problem+json")
			}
		}
		w.WriteHeader(e.status)
		_, _ = io.WriteString(w, e.body)
	}))
	method, target, _ := strings.Cut(e.request, " ")
	r := httptest.NewRequest(method, target, strings.NewReader(e.requestBody))
	addHeaders(r.Header, e.requestHeader)
	if strings.HasPrefix(e.requestBody, "{") {
		r.Header.Set("Content-Type", "application/json")
	}
	handler.ServeHTTP(httptest.NewRecorder(), r)
	recorder.expect(t, e.failure)
}

func TestOpenAPICheckOfAnswers(t *testing.T) {
	const acquire, owner = "POST /v1/locks/job-42/acquire", `{"owner_id":"worker-1"}`
	held := `,"holder":{"owner_id":"w","expires_at":"2026-01-02T09:00:00.000Z"},"queue_length":0,"recommended_retry_ms":1}`
	heldText := strings.Replace(problemText(409, "lock_held", held), `"retryable":false`, `"retryable":true`, 1)
	heldText = strings.TrimSuffix(heldText, "}")
	for _, e := range []fakeExchange{
		{name: "as described", request: acquire, requestBody: owner, status: 200, body: fakeLease},
		{name: "field not described", request: acquire, requestBody: owner, status: 200, body: strings.Replace(fakeLease, "{", `{"term":1,`, 1), failure: `property "term" is unsupported`},
		{name: "field missing", request: acquire, requestBody: owner, status: 200, body: strings.Replace(fakeLease, `"fencing_token":34,`, "", 1), failure: `property "fencing_token" is missing`},
		{name: "field of another type", request: acquire, requestBody: owner, status: 200, body: strings.Replace(fakeLease, "34", `"34"`, 1), failure: "/fencing_token"},
		{name: "time without milliseconds", request: acquire, requestBody: owner, status: 200, body: strings.Replace(fakeLease, "09:00:00.000Z", "09:00:00Z", 1), failure: "/granted_at"},
		{name: "status not described", request: acquire, requestBody: owner, status: 202, body: fakeLease, failure: "status is not described for acquire"},
		{name: "no body", request: acquire, requestBody: owner, status: 200, header: "Content-Type: application/json", failure: "failed to decode"},
		{name: "another content type", request: acquire, requestBody: owner, status: 200, header: "Content-Type: text/plain", body: fakeLease, failure: "Content-Type"},
		{name: "header not described", request: acquire, requestBody: owner, status: 200, header: "Etag: \"1\"", body: fakeLease, failure: "header Etag of the answer is not described"},

		{name: "problem", request: acquire, requestBody: owner, status: 409, header: "Retry-After: 1", body: heldText},
		{name: "problem without its data", request: acquire, requestBody: owner, status: 409, header: "Retry-After: 1", body: strings.Replace(heldText, `"queue_length":0,`, "", 1), failure: `property "queue_length" is missing`},
		{name: "problem with a code of another status", request: acquire, requestBody: owner, status: 409, body: problemText(409, "token_stale", ""), failure: "discriminator"},
		{name: "problem with another status in it", request: acquire, requestBody: owner, status: 400, body: problemText(404, "invalid_request", ""), failure: "/status"},
		{name: "problem as plain JSON", request: acquire, requestBody: owner, status: 400, header: "Content-Type: application/json", body: problemText(400, "invalid_request", ""), failure: "Content-Type"},
		{name: "header missing", request: "GET /v1/policies", status: 503, body: problemText(503, "unavailable", `,"outcome":"unknown"`), failure: "Retry-After"},
	} {
		t.Run(e.name, e.run)
	}
}

func TestOpenAPICheckOfPaths(t *testing.T) {
	for _, e := range []fakeExchange{
		{name: "slashes in names", request: "GET /v1/resources/job/42/fence", status: 200, body: fakeFence},
		{name: "slashes escaped", request: "GET /v1/resources/job%2F42/fence", status: 200, body: fakeFence},
		{name: "path not described", request: "GET /v1/seasons", status: 200, body: `{}`, failure: "path is not described"},
		{name: "path not described, refused", request: "GET /v1/seasons", status: 404, body: problemText(404, "not_found", "")},
		{name: "path not described, refused as text", request: "GET /v1/seasons", status: 404, header: "Content-Type: text/plain", body: "404 page not found", failure: "Content-Type"},
		{name: "method not described", request: "PATCH /healthz", status: 200, body: `{"status":"ok"}`, failure: "method is not described for /healthz"},
		{name: "method of a less specific path", request: "GET /v1/locks/job-42/acquire", status: 200, body: fakeLease, failure: "method is not described for /v1/locks/{lock}/acquire"},
		{name: "method refused", request: "POST /v1/policies/job-42", status: 405, header: "Allow: GET, PUT, DELETE", body: problemText(405, "invalid_request", "")},
		{name: "method refused, a wrong one allowed", request: "POST /v1/policies/job-42", status: 405, header: "Allow: GET, PUT", body: problemText(405, "invalid_request", ""), failure: "allowed are"},
	} {
		t.Run(e.name, e.run)
	}
}

func TestOpenAPICheckOfRecords(t *testing.T) {
	const record = "/v1/resources/job-42/records/draft"
	const caching = "ETag: \"1\"\nFencing-Token: 34.1\nCache-Control: no-cache"
	const browsers = "\nContent-Security-Policy: sandbox; default-src 'none'\nX-Content-Type-Options: nosniff"
	for _, e := range []fakeExchange{
		{name: "any bytes of any type", request: "GET " + record, status: 200, header: caching + browsers + "\nContent-Type: image/png", body: "\x89PNG\x00\xff"},
		{name: "no ETag", request: "GET " + record, status: 200, header: strings.Replace(caching, "ETag: \"1\"\n", "", 1) + browsers + "\nContent-Type: text/plain", body: "x", failure: `"ETag" missing`},
		{name: "malformed token", request: "GET " + record, status: 200, header: strings.Replace(caching, "34.1", "034", 1) + browsers + "\nContent-Type: text/plain", body: "x", failure: "Fencing-Token"},
		{name: "head", request: "HEAD " + record, status: 200, header: caching + browsers + "\nContent-Type: text/plain", body: "x"},
		{name: "head, no ETag", request: "HEAD " + record, status: 200, header: strings.Replace(caching, "ETag: \"1\"\n", "", 1) + browsers, failure: `"ETag" missing`},
		{name: "head, status not described", request: "HEAD " + record, status: 418, failure: "status is not described"},
		{name: "not modified", request: "GET " + record, status: 304, header: caching},
		{name: "not modified, no ETag", request: "GET " + record, status: 304, header: strings.Replace(caching, "ETag: \"1\"\n", "", 1), failure: `"ETag" missing`},
		{name: "not modified, with a body", request: "GET " + record, status: 304, header: caching, body: "x", failure: "none is described"},
		{name: "not modified, not described", request: "PUT " + record, status: 304, failure: "status is not described"},
		{name: "put of any type", request: "PUT " + record, requestHeader: "Fencing-Token: 34.1\nContent-Type: image/png", requestBody: "\x89PNG", status: 201, header: "ETag: \"1\"", body: fakeWritten},
		{name: "put of nothing", request: "PUT " + record, requestHeader: "Fencing-Token: 34.1", status: 201, header: "ETag: \"1\"", body: fakeWritten},
		{name: "malformed token accepted", request: "PUT " + record, requestHeader: "Fencing-Token: 34.01", status: 201, header: "ETag: \"1\"", body: fakeWritten, failure: `"Fencing-Token" in header`},
		{name: "weak tag accepted", request: "PUT " + record, requestHeader: "If-Match: W/\"1\"", status: 200, header: "ETag: \"1\"", body: fakeWritten, failure: `"If-Match" in header`},
		{name: "body after 204", request: "DELETE /v1/policies/job-42", status: 204, body: "x", failure: "none is described"},
	} {
		t.Run(e.name, e.run)
	}
}

func TestOpenAPICheckOfRequests(t *testing.T) {
	for _, e := range []fakeExchange{
		{name: "field not described", request: "POST /v1/locks/job-42/acquire", requestBody: `{"owner_id":"w","tll_ms":1}`, status: 200, body: fakeLease, failure: `property "tll_ms" is unsupported`},
		{name: "field not described, refused", request: "POST /v1/locks/job-42/acquire", requestBody: `{"owner_id":"w","tll_ms":1}`, status: 400, body: problemText(400, "invalid_request", "")},
		{name: "over the limit", request: "POST /v1/locks/job-42/acquire", requestBody: `{"owner_id":"w","ttl_ms":86400001}`, status: 200, body: fakeLease, failure: "/ttl_ms"},
		{name: "null in every optional field", request: "POST /v1/locks/job-42/acquire", status: 200, body: fakeLease,
			requestBody: `{"owner_id":"w","ttl_ms":null,"mode":null,"scope":null,"wait_ms":null,"session_id":null,"request_id":null,"metadata":null}`},
		{name: "no body", request: "POST /v1/locks/job-42/acquire", status: 200, body: fakeLease, failure: "value is required"},
		{name: "parameter not described", request: "GET /v1/policies?limit=1", status: 200, body: `{"policies":[]}`, failure: "parameter limit is not described"},
		{name: "parameter over the limit", request: "GET /v1/locks?limit=1001", status: 200, body: `{"locks":[]}`, failure: `"limit" in query`},
		{name: "no name", request: "GET /v1/resources//fence", status: 200, body: fakeFence, failure: `"resource" in path`},
		{name: "empty segment", request: "GET /v1/resources/a//b/fence", status: 200, body: fakeFence, failure: `"resource" in path`},
		{name: "line break in a name", request: "GET /v1/resources/a%0Ab/fence", status: 200, body: fakeFence, failure: `"resource" in path`},
		{name: "line break in a name, refused", request: "GET /v1/resources/a%0Ab/fence", status: 400, body: problemText(400, "invalid_name", "")},
		{name: "policy of every name", request: "GET /v1/policies/", status: 200, body: fakePolicy},
		{name: "null as a value", request: "POST /v1/transactions", status: 200, body: `{"results":[{"op":"put","resource":"a","key":"b","version":1}],"replayed":false}`,
			requestBody: `{"fences":[{"resource":"a","fencing_token":1,"sequence":null}],"ops":[{"op":"put","resource":"a","key":"b","value":null}]}`},
		{name: "no fences", request: "POST /v1/transactions", status: 200, body: `{"results":[{"op":"delete","resource":"a","key":"b","version":1}],"replayed":false}`,
			requestBody: `{"fences":[],"ops":[{"op":"delete","resource":"a","key":"b"}]}`, failure: "/fences"},
	} {
		t.Run(e.name, e.run)
	}
}

// TestOpenAPICheckReachesTheConnection shows that deadlines can be set through it.
func TestOpenAPICheckReachesTheConnection(t *testing.T) {
	server := httptest.NewServer(conforming(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":"ok"}`)
	})))
	defer server.Close()
	response, err := http.Get(server.URL + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Error(response.Status)
	}
}

// describedRouter routes every path of openapi.yaml but without, and refuses other methods.
func describedRouter(t *testing.T, without string) *mux.Router {
	described, err := described()
	if err != nil {
		t.Fatal(err)
	}
	router := mux.NewRouter().SkipClean(true)
	for _, path := range described.paths {
		if path.template == without {
			continue
		}
		template := strings.ReplaceAll(path.template, "}", ":(?s:.*)}")
		methods := slices.Sorted(maps.Keys(path.item.Operations()))
		router.Path(template).Methods(methods...).HandlerFunc(http.NotFound)
		router.Path(template).HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			addHeaders(w.Header(), "Content-Type: application/problem+json\nAllow: "+strings.Join(methods, ", "))
			w.WriteHeader(http.StatusMethodNotAllowed)
			_, _ = io.WriteString(w, problemText(http.StatusMethodNotAllowed, "invalid_request", ""))
		})
	}
	return router
}

func TestOpenAPICheckOfRoutes(t *testing.T) {
	const locks = "/v1/locks"
	for _, c := range []struct {
		name    string
		router  *mux.Router
		add     func(*mux.Router)
		failure string
	}{
		{name: "as described", router: describedRouter(t, "")},
		{name: "a route missing", router: describedRouter(t, locks), failure: "GET " + locks + "\n"},
		{name: "a route more", router: describedRouter(t, ""), failure: "GET /v1/seasons/{id}", add: func(r *mux.Router) {
			r.Path("/v1/seasons/{id:[a-z]{3}}").Methods("GET").HandlerFunc(http.NotFound)
		}},
		{name: "a method more", router: describedRouter(t, ""), failure: "PUT " + locks, add: func(r *mux.Router) {
			r.Path(locks).Methods("PUT").HandlerFunc(http.NotFound)
		}},
		{name: "a route for any method", router: describedRouter(t, ""), failure: "with any method:\n/debug", add: func(r *mux.Router) {
			r.Path("/debug").HandlerFunc(http.NotFound)
		}},
		{name: "other methods not refused", router: describedRouter(t, locks), failure: "PATCH " + locks, add: func(r *mux.Router) {
			r.Path(locks).Methods("GET").HandlerFunc(http.NotFound)
			r.Path(locks).HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			recorder := &failures{TB: t}
			if c.add != nil {
				c.add(c.router)
			}
			checkRoutes(recorder, c.router)
			recorder.expect(t, c.failure)
		})
	}
}
