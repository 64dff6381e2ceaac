package gateway

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

func TestInvalidTokenHeaders(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	good := token(lease, 2)
	var inputs []invalidInput
	for _, text := range []string{
		"", "0", "-1", "+1", "1e3", "1.0?", "9007199254740992", "9223372036854775808", strings.Repeat("9", 5000), "34.",
		"34.-1", "34.2.1", "034", "34.02", ".2", "34.9007199254740992", "34,2", "0x22", "३४", "34;", `"34"`, "null", "34 2",
		"34, 35",
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

func TestInvalidWriteHeaders(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	inputs := []invalidInput{
		{headers: []string{"Lease-Id: "}, detail: "Lease-Id is missing or empty"},
		{headers: []string{"Lease-Id: 1234"}, detail: "Lease-Id is not a lease_id"},
		{headers: []string{"Lease-Id: urn:uuid:" + lease.LeaseID}, detail: "Lease-Id is not a lease_id"},
		{headers: []string{"Lease-Id: " + lease.LeaseID, "Lease-Id: " + lease.LeaseID}, detail: "2 headers Lease-Id"},
		{headers: []string{`If-Match: "1"`, "If-None-Match: *"}, detail: "one If-Match or one If-None-Match"},
		{headers: []string{`If-Match: "1"`, `If-Match: "1"`}, detail: "one If-Match"},
		{headers: []string{`If-None-Match: "1"`}, detail: "must be *"},
		{headers: []string{`If-None-Match: `}, detail: "must be *"},
		{headers: []string{`If-None-Match: *`, `If-None-Match: *`}, detail: "one If-None-Match"},
		{headers: []string{jsonType}, body: "{", detail: "The value is not JSON"},
		{headers: []string{"Content-Type: application/x+json"}, detail: "The value is not JSON"},
		{headers: []string{jsonType}, body: "{}{}", detail: "The value is not JSON"},
		{headers: []string{jsonType}, body: "\"\xff\"", detail: "The value is not JSON"},
		{headers: []string{"Content-Type: garbage;;"}, detail: "the content type"},
		{headers: []string{"Content-Type: text plain"}, detail: "the content type"},
		{headers: []string{"Content-Type: text/"}, detail: "the content type"},
		{headers: []string{"Content-Type: text/" + strings.Repeat("x", 251)}, detail: "has 256 bytes, the limit is 255"},
		{headers: []string{"Content-Type: text/plain; x=\"\xff\""}, detail: "not valid UTF-8"},
		{headers: []string{"Content-Type: text/plain; x=\"\u0085\""}, detail: "control character"},
		{headers: []string{"Content-Type: "}, detail: "the content type"},
		{headers: []string{"Content-Type: text/plain", "Content-Type: text/html"}, detail: "2 Content-Type headers"},
	}
	for _, condition := range []string{
		`W/"1"`, `"1", "2"`, `"1`, "1", `""`, `"0"`, `"-1"`, `"01"`, `"+1"`, `"1" x`, `"9223372036854775808"`, `"*"`,
		"*, *", "", "garbage", `'1'`,
	} {
		inputs = append(inputs, invalidInput{headers: []string{"If-Match: " + condition}, detail: "one strong ETag"})
	}
	h.expectRefusals(t, changeEach(inputs, func(i *invalidInput) {
		i.method, i.path, i.headers = http.MethodPut, recordPath("job", "k"), append(i.headers, token(lease, 2))
	}))
}

// Every JSON body needs the content type application/json.
func TestContentTypeOfRequests(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	session := h.createSession(t, "worker", time.Hour)
	var inputs []invalidInput
	for _, headers := range [][]string{
		nil, {"Content-Type: "}, {"Content-Type: text/plain"}, {"Content-Type: application/x-www-form-urlencoded"},
		{"Content-Type: text/json"}, {"Content-Type: application/jsonx"}, {"Content-Type: application/json; charset"},
		{"Content-Type: application/json, application/json"},
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
func TestHeadersThatChangeTheMeaning(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	record, fenced := recordPath("job", "k"), token(lease, 2)
	const since, gzip = "If-Unmodified-Since: Sat, 29 Oct 1994 19:43:31 GMT", "Content-Encoding: gzip"
	const part, unsupported = "Content-Range: bytes 0-0/5", http.StatusUnsupportedMediaType
	bulkType := "Content-Type: " + api.BulkContentType
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
		{path: "/v1/writes", body: "{}", headers: []string{bulkType, gzip}, status: unsupported, detail: "Content-Encoding"},
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

func TestMethods(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
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
		"/v1", "/v1/", "/v2/locks", "/v1/lock/job", "/v1/locks%00", "/index.html", "/healthz/", "/metrics/x",
		"/v1/transactions/", "/v1/resources/", "/%2e%2e/etc/passwd", "/v1/resources/job",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			inputs = append(inputs, invalidInput{
				method: method, path: path, code: api.CodeNotFound, status: http.StatusNotFound, detail: "nothing at this path",
			})
		}
	}
	h.expectRefusals(t, inputs)
}
