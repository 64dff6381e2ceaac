package gateway

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

func TestBadTokens(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	good := token(lease, 2)
	var inputs []badInput
	for _, text := range []string{
		"", "0", "-1", "+1", "1e3", "1.0?", "9007199254740992", "9223372036854775808", strings.Repeat("9", 5000), "34.", "34.-1", "34.2.1", "034", "34.02", ".2",
		"34.9007199254740992", "34,2", "0x22", "३४", "34;", `"34"`, "null", "34 2", "34, 35",
	} {
		inputs = append(inputs, badInput{name: clip(text), header: []string{"Fencing-Token: " + text}, detail: "Fencing-Token: not a fencing token"},
			badInput{name: "X-" + clip(text), header: []string{"X-Fencing-Token: " + text}, detail: "not a fencing token"})
	}
	inputs = append(inputs,
		badInput{name: "two headers", header: []string{good, good}, detail: "one token"},
		badInput{name: "both headers", header: []string{good, "X-" + good}, detail: "one token"},
		badInput{name: "both headers, one empty", header: []string{good, "X-Fencing-Token: "}, detail: "one token"},
	)
	for i := range inputs {
		inputs[i].method, inputs[i].path, inputs[i].body, inputs[i].code = http.MethodPut, recordPath("job", "k"), "x", api.CodeInvalidToken
		deletion := inputs[i]
		deletion.name, deletion.method, deletion.body = "delete "+deletion.name, http.MethodDelete, ""
		inputs = append(inputs, deletion)
	}
	h.refusedAll(t, inputs)
}

// The greatest token is a token, and who presents it is told more than that it is malformed; spaces around it are HTTP's.
func TestGreatestToken(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	refused(t, h.send(t, http.MethodPut, recordPath("job", "k"), "x", "Fencing-Token: 9007199254740991"), api.CodeTokenUnknown)
	refused(t, h.send(t, http.MethodPut, recordPath("job", "k"), "x", "Fencing-Token: 9007199254740991.0"), api.CodeTokenUnknown)
	as[api.WriteResult](t, h.put(t, lease, 1<<53-1, "x"), http.StatusOK)
	next := h.acquire(t, "other", "worker")
	as[api.WriteResult](t, h.send(t, http.MethodPut, recordPath("other", "k"), "x", "Fencing-Token:   "+strings.TrimPrefix(token(next, 1), "Fencing-Token: ")+"  "), http.StatusCreated)
}

func TestBadWriteHeaders(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	inputs := []badInput{
		{name: "lease_id empty", header: []string{"Lease-Id: "}, detail: "Lease-Id is missing or empty"},
		{name: "lease_id garbage", header: []string{"Lease-Id: 1234"}, detail: "Lease-Id is not a lease_id"},
		{name: "lease_id as URN", header: []string{"Lease-Id: urn:uuid:" + lease.LeaseID}, detail: "Lease-Id is not a lease_id"},
		{name: "lease_id twice", header: []string{"Lease-Id: " + lease.LeaseID, "Lease-Id: " + lease.LeaseID}, detail: "2 headers Lease-Id"},
		{name: "both conditions", header: []string{`If-Match: "1"`, "If-None-Match: *"}, detail: "one If-Match or one If-None-Match"},
		{name: "If-Match twice", header: []string{`If-Match: "1"`, `If-Match: "1"`}, detail: "one If-Match"},
		{name: "If-None-Match a version", header: []string{`If-None-Match: "1"`}, detail: "must be *"},
		{name: "If-None-Match empty", header: []string{`If-None-Match: `}, detail: "must be *"},
		{name: "If-None-Match twice", header: []string{`If-None-Match: *`, `If-None-Match: *`}, detail: "one If-None-Match"},
		{name: "JSON that is none", header: []string{jsonType}, body: "{", detail: "The value is not JSON"},
		{name: "JSON by its suffix", header: []string{"Content-Type: application/x+json"}, body: "", detail: "The value is not JSON"},
		{name: "JSON twice", header: []string{jsonType}, body: "{}{}", detail: "The value is not JSON"},
		{name: "JSON that is not UTF-8", header: []string{jsonType}, body: "\"\xff\"", detail: "The value is not JSON"},
		{name: "type garbage", header: []string{"Content-Type: garbage;;"}, detail: "the content type"},
		{name: "type with a word too many", header: []string{"Content-Type: text plain"}, detail: "the content type"},
		{name: "type without subtype", header: []string{"Content-Type: text/"}, detail: "the content type"},
		{name: "type long", header: []string{"Content-Type: text/" + strings.Repeat("x", 251)}, detail: "has 256 bytes, the limit is 255"},
		{name: "type not UTF-8", header: []string{"Content-Type: text/plain; x=\"\xff\""}, detail: "not valid UTF-8"},
		{name: "type with control", header: []string{"Content-Type: text/plain; x=\"\u0085\""}, detail: "control character"},
		{name: "type empty", header: []string{"Content-Type: "}, detail: "the content type"},
		{name: "two types", header: []string{"Content-Type: text/plain", "Content-Type: text/html"}, detail: "2 headers Content-Type"},
	}
	for _, condition := range []string{`W/"1"`, `"1", "2"`, `"1"`[:2], "1", `""`, `"0"`, `"-1"`, `"01"`, `"+1"`, `"1" x`, `"9223372036854775808"`, `"*"`, "*, *", "", "garbage", `'1'`} {
		inputs = append(inputs, badInput{name: "If-Match " + condition, header: []string{"If-Match: " + condition}, detail: "one strong ETag"})
	}
	for i := range inputs {
		inputs[i].method, inputs[i].path = http.MethodPut, recordPath("job", "k")
		inputs[i].header = append(inputs[i].header, token(lease, 2))
	}
	h.refusedAll(t, inputs)
}

func TestContentTypeOfRequests(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	var inputs []badInput
	for _, kind := range []string{"", "Content-Type: ", "Content-Type: text/plain", "Content-Type: application/x-www-form-urlencoded", "Content-Type: text/json",
		"Content-Type: application/jsonx", "Content-Type: application/json; charset", "Content-Type: application/json, application/json"} {
		for path, body := range map[string]string{
			"/v1/locks/new/acquire": `{"owner_id":"w"}`, "/v1/locks/job/renew": refOf(lease), "/v1/locks/job/release": refOf(lease),
			"/v1/locks/job/break": `{"reason":"r"}`, "/v1/transactions": transaction(lease, 2), "/v1/policies/job": "{}",
		} {
			input := badInput{name: path + " " + kind, path: path, body: body, status: http.StatusUnsupportedMediaType, detail: "Content-Type: application/json"}
			if path == "/v1/policies/job" {
				input.method = http.MethodPut
			}
			if kind != "" {
				input.header = []string{kind}
			}
			inputs = append(inputs, input)
		}
	}
	h.refusedAll(t, inputs)
}

func TestMethods(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	allowed := map[string][]string{
		"/v1/locks/job/acquire": {"POST"}, "/v1/locks/job/renew": {"POST"}, "/v1/locks/job/release": {"POST"}, "/v1/locks/job/break": {"POST"},
		"/v1/locks/job": {"GET"}, "/v1/locks": {"GET"}, "/v1/resources/job/records/k": {"GET", "HEAD", "PUT", "DELETE"},
		"/v1/resources/job/records": {"GET"}, "/v1/resources/job/fence": {"GET"}, "/v1/transactions": {"POST"},
		"/v1/policies/job": {"GET", "PUT", "DELETE"}, "/v1/policies": {"GET"}, "/v1/rejections": {"GET"},
		"/healthz": {"GET"}, "/readyz": {"GET"}, "/metrics": {"GET"}, "/openapi.yaml": {"GET"},
	}
	var inputs []badInput
	for path, methods := range allowed {
		for _, method := range []string{"GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "BREW"} {
			if slices.Contains(methods, method) {
				continue
			}
			inputs = append(inputs, badInput{name: method + " " + path, method: method, path: path, status: http.StatusMethodNotAllowed, detail: "This path takes " + strings.Join(methods, ", ")})
			if got := h.send(t, method, path, ""); got.header.Get("Allow") != strings.Join(methods, ", ") {
				t.Errorf("%s %s: Allow is %q, want %q", method, path, got.header.Get("Allow"), methods)
			}
		}
	}
	h.refusedAll(t, inputs)
}

func TestPathUnknown(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	var inputs []badInput
	for _, path := range []string{"/v1", "/v1/", "/v2/locks", "/v1/lock/job", "/v1/locks%00", "/index.html", "/healthz/", "/metrics/x", "/v1/transactions/", "/v1/rejections/1", "/v1/resources/", "/%2e%2e/etc/passwd", "/v1/resources/job"} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			inputs = append(inputs, badInput{name: method + " " + path, method: method, path: path, code: api.CodeNotFound, status: http.StatusNotFound, detail: "nothing at this path"})
		}
	}
	h.refusedAll(t, inputs)
}
