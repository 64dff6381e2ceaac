package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

func invalidTokenHeaders(t *testing.T, h *harness, lease api.Lease) {
	good := token(lease, 2)
	var inputs []invalidInput
	for _, text := range []string{
		"", "0", "-1", "9007199254740992", strings.Repeat("9", 5000), "34.", "34.02", "34.9007199254740992", "३४", "34, 35",
	} {
		inputs = append(inputs,
			invalidInput{headers: []string{"Fencing-Token: " + text}, detail: "Fencing-Token: not a fencing token"},
			invalidInput{headers: []string{"X-Fencing-Token: " + text}, detail: "not a fencing token"})
	}
	for _, headers := range [][]string{{good, good}, {good, "X-" + good}, {good, "X-Fencing-Token: "}} {
		inputs = append(inputs, invalidInput{headers: headers, detail: "one token"})
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		h.expectRefusals(t, changeEach(inputs, func(i *invalidInput) {
			i.method, i.path, i.code = method, recordPath("job", "k"), api.CodeInvalidToken
		}))
	}
}

func invalidWriteHeaders(t *testing.T, h *harness, lease api.Lease) {
	inputs := []invalidInput{
		{headers: []string{"Lease-Id: "}, detail: "Lease-Id is missing or empty"},
		{headers: []string{"Lease-Id: 1234"}, detail: "Lease-Id is not a lease_id"},
		{headers: []string{"Lease-Id: urn:uuid:" + lease.LeaseID}, detail: "Lease-Id is not a lease_id"},
		{headers: []string{"Lease-Id: " + lease.LeaseID, "Lease-Id: " + lease.LeaseID}, detail: "2 headers Lease-Id"},
		{headers: []string{`If-Match: "1"`, "If-None-Match: *"}, detail: "one If-Match or one If-None-Match"},
		{headers: []string{`If-None-Match: "1"`}, detail: "must be *"},
		{headers: []string{`If-None-Match: *`, `If-None-Match: *`}, detail: "one If-None-Match"},
		{headers: []string{"Content-Type: application/x+json"}, detail: "The value is not JSON"},
		{headers: []string{jsonType}, body: "{}{}", detail: "The value is not JSON"},
		{headers: []string{jsonType}, body: "\"\xff\"", detail: "The value is not JSON"},
		{headers: []string{"Content-Type: text plain"}, detail: "the content type"},
		{headers: []string{"Content-Type: text/" + strings.Repeat("x", 251)}, detail: "has 256 bytes, the limit is 255"},
		{headers: []string{"Content-Type: text/plain; x=\"\xff\""}, detail: "not valid UTF-8"},
		{headers: []string{"Content-Type: text/plain; x=\"\u0085\""}, detail: "control character"},
		{headers: []string{"Content-Type: "}, detail: "the content type"},
		{headers: []string{"Content-Type: text/plain", "Content-Type: text/html"}, detail: "2 Content-Type headers"},
	}
	for _, condition := range []string{
		`W/"1"`, `"1", "2"`, "1", "*, *", "",
	} {
		inputs = append(inputs, invalidInput{headers: []string{"If-Match: " + condition}, detail: "one strong ETag"})
	}
	h.expectRefusals(t, changeEach(inputs, func(i *invalidInput) {
		i.method, i.path, i.headers = http.MethodPut, recordPath("job", "k"), append(i.headers, token(lease, 2))
	}))
}

// Every JSON body needs the content type application/json.
func contentTypeOfRequests(t *testing.T, h *harness, lease api.Lease) {
	session := h.createSession(t, "worker", time.Hour)
	var inputs []invalidInput
	for _, headers := range [][]string{
		nil, {"Content-Type: application/x-www-form-urlencoded"}, {"Content-Type: application/json; charset"},
	} {
		for path, body := range map[string]string{
			"/v1/locks/new/acquire": `{"owner_id":"w"}`, "/v1/locks/job/renew": refOf(lease),
			"/v1/locks/job/release": refOf(lease), "/v1/locks/job/break": `{"reason":"r"}`,
			"/v1/transactions": transaction(lease, 2), "/v1/policies/job": "{}",
			"/v1/sessions": `{"owner_id":"w"}`, sessionPath(session) + "/keepalive": "{}",
		} {
			input := invalidInput{path: path, body: body, headers: headers, detail: "Content-Type: application/json"}
			if input.status = http.StatusUnsupportedMediaType; path == "/v1/policies/job" {
				input.method = http.MethodPut
			}
			inputs = append(inputs, input)
		}
	}
	h.expectRefusals(t, inputs)
}

// A header that changes the meaning of a request is honoured or refused, but never ignored.
func headersThatChangeTheMeaning(t *testing.T, h *harness, lease api.Lease) {
	record, fenced := recordPath("job", "k"), token(lease, 2)
	const since, gzip = "If-Unmodified-Since: Sat, 29 Oct 1994 19:43:31 GMT", "Content-Encoding: gzip"
	const part, unsupported = "Content-Range: bytes 0-0/5", http.StatusUnsupportedMediaType
	change := transaction(lease, 2)
	h.expectRefusals(t, []invalidInput{
		{method: "PUT", path: record, headers: []string{fenced, part}, detail: "Content-Range"},
		{method: "DELETE", path: record, headers: []string{fenced, part}, detail: "Content-Range"},
		{method: "PUT", path: record, headers: []string{fenced, gzip}, status: unsupported, detail: "Content-Encoding gzip"},
		{
			method: "PUT", path: record, headers: []string{fenced, "Content-Encoding: identity", "Content-Encoding: br"},
			status: unsupported, detail: "br",
		},
		{
			path: lockPath("l", "/acquire"), body: `{"owner_id":"w"}`, headers: []string{jsonType, gzip},
			status: unsupported, detail: "Content-Encoding",
		},
		{path: "/v1/writes", body: "[]", headers: []string{jsonType, gzip}, status: unsupported, detail: "Content-Encoding"},
		{method: "PUT", path: record, headers: []string{fenced, since}, detail: "If-Match"},
		{method: "DELETE", path: record, headers: []string{fenced, since}, detail: "If-Match"},
		{method: "GET", path: record, headers: []string{since}, detail: "If-Match"},
		{path: "/v1/transactions", body: change, headers: []string{jsonType, since}, detail: "If-Match"},
		{path: "/v1/transactions", body: change, headers: []string{jsonType, `If-Match: "1"`}, detail: "if_version"},
		{method: "PUT", path: "/v1/policies/p", body: `{}`, headers: []string{jsonType, "If-None-Match: *"},
			detail: "If-None-Match"},
	})
	got := h.putWith(t, "job", fenced, gzip)
	if expectProblem(t, got, api.CodeInvalidRequest); got.header.Get("Accept-Encoding") != "identity" {
		t.Errorf("the accepted codings are %q, want identity", got.header.Get("Accept-Encoding"))
	}
	as[api.WriteResult](t, h.putWith(t, "job", fenced, "Content-Encoding: identity", `If-Match: "1"`, since),
		http.StatusOK)
}

// allowedMethods are the methods of every kind of path.
var allowedMethods = map[string][]string{
	"/v1/locks/job/acquire": {"POST"}, "/v1/locks/job/renew": {"POST"}, "/v1/locks/job/release": {"POST"},
	"/v1/locks/job/break": {"POST"}, "/v1/locks/job": {"GET"}, "/v1/locks": {"GET"},
	"/v1/resources/job/records/k": {"GET", "HEAD", "PUT", "DELETE"}, "/v1/resources/job/records": {"GET"},
	"/v1/resources/job/fence": {"GET", "PUT"}, "/v1/transactions": {"POST"}, "/v1/policies/job": {"GET", "PUT", "DELETE"},
	"/v1/policies": {"GET"}, "/v1/rejections": {"GET"}, "/healthz": {"GET"}, "/readyz": {"GET"}, "/metrics": {"GET"},
	"/openapi.yaml": {"GET"},
}

func methods(t *testing.T, h *harness, _ api.Lease) {
	var inputs []invalidInput
	for path, methods := range allowedMethods {
		allowed := strings.Join(methods, ", ")
		for _, method := range []string{"GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "BREW"} {
			if slices.Contains(methods, method) {
				continue
			}
			inputs = append(inputs, invalidInput{
				method: method, path: path, status: http.StatusMethodNotAllowed, detail: "This path takes " + allowed,
			})
			if got := h.send(t, method, path, "").header.Get("Allow"); got != allowed {
				t.Errorf("%s %s: Allow is %q, want %q", method, path, got, allowed)
			}
		}
	}
	for _, path := range []string{
		"/v1/", "/v2/locks", "/v1/locks%00", "/healthz/", "/%2e%2e/etc/passwd", "/v1/resources/job",
	} {
		inputs = append(inputs, invalidInput{path: path, code: api.CodeNotFound, status: http.StatusNotFound, detail: "nothing at this path"})
	}
	h.expectRefusals(t, inputs)
}

// invalidQueries has queries that one path refuses, and a part of the detail. The paths are prefixed with /v1.
var invalidQueries = map[string][]string{
	"/locks": {
		"prefix=%FF → prefix must be", strings.Repeat("x", 10_000) + " → …", "prefix=" + strings.Repeat("x", 513) + " → at most 512 bytes",
		"state=open → free, held, expired or active", "sort=NAME → sort must be name, expires_at, granted_at, fencing_token or queue",
		"order=DESC → order must be asc or desc", "count=1 → count must be false or true",
		"queue_max=1001 → queue_max is 1001, it must be 0 to 1000", "queue_max=all → queue_max must be an integer from 0 to 1000",
		"contains=%00 → contains has a control character", "owner_id=%FF → owner_id is not valid UTF-8",
		"contains=" + strings.Repeat("x", store.NameBytesMax+1) + " → contains has 513 bytes, the limit is 512",
		"sort=queue&cursor=cXVldWUgMSA → cursor must be", "sort=queue&sort=name → sort is there 2 times",
	},
	"/resources/job/records": {"prefix=%ff → prefix must be", `state=held → no parameter "state"`},
	"/rejections": {
		"code=stale → code must be", "since=2026-01-02 → since must be", "until=tomorrow → until must be", "cursor=MS43 → cursor must be",
		"sort=last_seen&cursor=LTEuNw → cursor must be", "sort=count → sort must be", `format=csv → no parameter "format"`,
		"reason=%00 → reason has a control", "source=%FF → source is not valid",
	},
	"/rejections/summary": {`limit=1 → no parameter "limit"`, "prefix=%00 → prefix has a control"},
	"/rejections/stream": {
		`since=2026-01-02T09:00:00Z → no parameter "since"`, "code=stale → code must be",
		"last_event_id=1&last_event_id=1 → is there 2 times", "owner_id=%00 → owner_id has a control",
	},
	"/overview": {
		"range_ms=59999 → 60000 to 3600000", "range_ms=3600001 → 60000 to 3600000", "range_ms=5m → 60000 to 3600000",
	},
	"/leases": {
		"state=free → state must be running or ended", "owner_id=%00 → control character", "cursor=LTEgYQ → cursor must be",
		`prefix=a → no parameter "prefix"`,
	},
	"/sessions": {
		"state=held → state must be live, ended or expired", `session_id=x → no parameter "session_id"`,
		"cursor=MSB4eA → the sort key of a session is hexadecimal",
	},
	"/tables":                  {"prefix=%00 → without NUL", "cursor=eA → cursor must be"},
	"/overview/stream":         {`range_ms=60000 → no parameter "range_ms"`, "last_event_id=x → last_event_id must be"},
	"/locks/job":               {`x=1 → no parameter "x"`},
	"/resources/job/fence":     {`x=1 → no parameter "x"`},
	"/resources/job/records/k": {`version=1 → no parameter "version"`},
	"/policies":                {`x=1 → no parameter "x"`},
	"/policies/job":            {`x=1 → no parameter "x"`},
	"/locks/job/watch":         {`after=1 → no parameter "after"`, `last_event_id=1 → no parameter "last_event_id"`},
	"/sessions/" + noSession:   {`x=1 → no parameter "x"`},
}

func queriesOfReads(t *testing.T, h *harness, _ api.Lease) {
	var inputs []invalidInput
	add := func(path string, lines ...string) {
		for _, line := range lines {
			query, detail, _ := strings.Cut(line, " → ")
			inputs = append(inputs, invalidInput{method: http.MethodGet, path: path + "?" + query, detail: detail})
		}
	}
	for path, lines := range invalidQueries {
		add("/v1"+path, lines...)
	}
	for _, path := range []string{
		"/v1/locks", "/v1/resources/job/records", "/v1/rejections", "/v1/leases", "/v1/sessions", "/v1/tables",
	} {
		add(path, `Limit=1 → no parameter "Limit"`, "limit=1&limit=1 → limit is there 2 times", "limit=0 → 1 to 1000",
			"limit=1001 → 1 to 1000", "limit=ten → 1 to 1000", "cursor=* → cursor must be", "cursor=AA → cursor must be", "a;b → malformed")
	}
	add("/v1/waits", "lock=a&owner_id=w → can't be combined", "owner_id=%00 → owner_id")
	names := map[string]string{"/v1/rejections?resource=a//b": "resource", "/v1/leases?lock=a//b": "lock",
		"/v1/waits?lock=%2F": "lock"}
	for path, detail := range names {
		inputs = append(inputs, invalidInput{method: http.MethodGet, path: path, code: api.CodeInvalidName, detail: detail})
	}
	h.expectRefusals(t, inputs)
}

// A request that writes refuses every query parameter.
func queriesOfWrites(t *testing.T, h *harness, lease api.Lease) {
	fenced := token(lease, 2)
	h.expectRefusals(t, changeEach([]invalidInput{
		{method: http.MethodPut, path: "/v1/resources/job/records/k?if_version=1", headers: []string{fenced}},
		{method: http.MethodDelete, path: "/v1/resources/job/records/k?token=1", headers: []string{fenced}},
		{path: "/v1/locks/new/acquire?ttl_ms=1000", body: `{"owner_id":"w"}`},
		{path: "/v1/locks/job/renew?ttl_ms=1000", body: refOf(lease)},
		{path: "/v1/locks/job/release?force=1", body: refOf(lease)},
		{path: "/v1/locks/job/break?reason=r", body: `{"reason":"r"}`},
		{path: "/v1/transactions?dry_run=1", body: transaction(lease, 2)},
		{path: "/v1/sessions?ttl_ms=1000", body: `{"owner_id":"w"}`},
		{path: "/v1/sessions/" + noSession + "/keepalive?ttl_ms=1000", body: "{}"},
		{method: http.MethodDelete, path: "/v1/sessions/" + noSession + "?force=1"},
		{method: http.MethodPut, path: "/v1/policies/job?rule=strict", body: `{}`},
		{method: http.MethodDelete, path: "/v1/policies/job?x"},
	}, func(i *invalidInput) {
		_, query, _ := strings.Cut(i.path, "?")
		name, _, _ := strings.Cut(query, "=")
		if i.detail = `no parameter "` + name + `"`; i.headers == nil {
			i.headers = []string{jsonType}
		}
	}))
}

// A stream of events refuses an event ID that no stream can have sent.
func invalidEventIDs(t *testing.T, h *harness, _ api.Lease) {
	var inputs []invalidInput
	for _, path := range []string{streamPath, overviewStream} {
		for _, id := range []string{
			"", "-1", "01", "9223372036854775808", "１",
		} {
			query := path + "?last_event_id=" + url.QueryEscape(id)
			inputs = append(inputs, invalidInput{path: path, headers: []string{"Last-Event-ID: " + id},
				detail: "Last-Event-ID must be"},
				invalidInput{path: query, detail: "last_event_id must be the id"})
		}
		inputs = append(inputs,
			invalidInput{path: path, headers: []string{"Last-Event-ID: 1", "Last-Event-ID: 1"},
				detail: "Last-Event-ID must be the id"},
			invalidInput{path: path + "?last_event_id=x", headers: []string{"Last-Event-ID: 1"},
				detail: "last_event_id must be the id"})
	}
	h.expectRefusals(t, changeEach(inputs, func(i *invalidInput) { i.method = http.MethodGet }))
}
