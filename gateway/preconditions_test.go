package gateway

import (
	"net/http"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// A header that changes what a request means is honoured or refused, and never ignored.
func TestHeadersThatChangeTheMeaning(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	record, fenced := recordPath("job", "k"), token(lease, 2)
	const since = "If-Unmodified-Since: Sat, 29 Oct 1994 19:43:31 GMT"
	acquire := `{"owner_id":"w"}`
	h.refusedAll(t, []badInput{
		{name: "range of a put", method: "PUT", path: record, body: "x", header: []string{fenced, "Content-Range: bytes 0-0/5"}, detail: "Content-Range"},
		{name: "range of a delete", method: "DELETE", path: record, header: []string{fenced, "Content-Range: bytes 0-0/5"}, detail: "Content-Range"},
		{name: "gzip put", method: "PUT", path: record, body: "x", header: []string{fenced, "Content-Encoding: gzip"}, status: 415, detail: "Content-Encoding gzip"},
		{name: "two codings", method: "PUT", path: record, body: "x", header: []string{fenced, "Content-Encoding: identity", "Content-Encoding: br"}, status: 415, detail: "br"},
		{name: "gzip acquire", path: lockPath("l", "/acquire"), body: acquire, header: []string{jsonType, "Content-Encoding: gzip"}, status: 415, detail: "Content-Encoding"},
		{name: "gzip bulk", path: "/v1/writes", body: "{}", header: []string{"Content-Type: " + api.BulkContentType, "Content-Encoding: gzip"}, status: 415, detail: "Content-Encoding"},
		{name: "put since", method: "PUT", path: record, body: "x", header: []string{fenced, since}, detail: "If-Match"},
		{name: "delete since", method: "DELETE", path: record, header: []string{fenced, since}, detail: "If-Match"},
		{name: "get since", method: "GET", path: record, header: []string{since}, detail: "If-Match"},
		{name: "transaction since", path: "/v1/transactions", body: transaction(lease, 2), header: []string{jsonType, since}, detail: "If-Match"},
		{name: "transaction with a version", path: "/v1/transactions", body: transaction(lease, 2), header: []string{jsonType, `If-Match: "1"`}, detail: "if_version"},
		{name: "policy that must not exist", method: "PUT", path: "/v1/policies/p", body: `{}`, header: []string{jsonType, "If-None-Match: *"}, detail: "If-None-Match"},
	})
	got := h.send(t, "PUT", record, "x", fenced, "Content-Encoding: gzip")
	if refused(t, got, api.CodeInvalidRequest); got.header.Get("Accept-Encoding") != "identity" {
		t.Errorf("the codings that are accepted are %q", got.header.Get("Accept-Encoding"))
	}
	as[api.WriteResult](t, h.send(t, "PUT", record, "x", fenced, "Content-Encoding: identity", `If-Match: "1"`, since), http.StatusOK)
}

// A read of another version than the one that If-Match names is refused.
func TestReadsWithIfMatch(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	record := recordPath("job", "k")
	for _, match := range []string{`"1"`, "*", `"9", "1"`} {
		if got := h.get(t, record, "If-Match: "+match); got.status != http.StatusOK || string(got.body) != "value" {
			t.Errorf("If-Match: %s: %d %s", match, got.status, got.body)
		}
	}
	for _, match := range []string{`"2"`, `W/"1"`, "1", ""} {
		if problem := refused(t, h.get(t, record, "If-Match: "+match), api.CodeVersionMismatch); problem.Version == nil || *problem.Version != 1 {
			t.Errorf("If-Match: %s: %+v", match, problem)
		}
	}
	refused(t, h.get(t, recordPath("job", "none"), "If-Match: *"), api.CodeNotFound)
}
