package gateway

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/endpoint"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// newFuzzed is a gateway that call reaches without a network.
func newFuzzed(f *testing.F) *harness {
	return newGateway(f, Config{}, postgres.Config{DatabaseURL: pgtest.Migrated(f)})
}

// call sends a JSON body and checks what all answers have in common.
func (h *harness) call(t *testing.T, method, target, body string) answer {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, "/", strings.NewReader(body))
	path, err := url.ParseRequestURI(target)
	if err != nil {
		t.Skip("not a URL")
	}
	request.URL, request.RequestURI = path, target
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	conforming(t, h.gateway).ServeHTTP(recorder, request)
	got := answer{request: method + " " + endpoint.Clip(target), status: recorder.Code, header: recorder.Header(),
		body: recorder.Body.Bytes()}
	if got.status >= http.StatusBadRequest {
		checkProblem(t, got)
	}
	return got
}

// Any text in a path is a name or is refused. The store and the database agree on what is a name.
func FuzzName(f *testing.F) {
	for raw := range goodNames {
		f.Add(raw)
	}
	for _, raw := range slices.Concat(slices.Collect(maps.Values(badNames))...) {
		f.Add(raw)
	}
	h := newFuzzed(f)
	f.Fuzz(func(t *testing.T, raw string) {
		got := h.call(t, http.MethodGet, "/v1/resources/"+raw+"/records/k", "")
		path, err := url.ParseRequestURI("/" + raw)
		if err != nil || strings.ContainsAny(raw, "?#") {
			return
		}
		text := path.Path[1:]
		name, err := endpoint.ParseName("resource", text)
		if err != nil {
			if got.status != http.StatusBadRequest && got.status != http.StatusNotFound {
				t.Errorf("%q is no name (%v), but was answered %d %s", text, err, got.status, got.body)
			}
			return
		}
		if got.status != http.StatusNotFound {
			t.Errorf("the name %q was answered %d %s", text, got.status, got.body)
		}
		if parsed, err := store.ParseName("lock", text); err != nil || parsed != name || string(name) != text {
			t.Errorf("%q is the name %q to the gateway and %q to the store: %v", text, name, parsed, err)
		}
		var isName bool
		if err := h.db.QueryRow(t.Context(), "select $1::text::fence.name is not null", text).Scan(&isName); err != nil {
			t.Errorf("%q is no name to the database: %v", text, err)
		}
	})
}

// A body that is refused takes no lock, and one that is granted a lease gets what it requested.
func FuzzAcquireBody(f *testing.F) {
	for _, body := range []string{
		`{"owner_id":"w"}`, `{"owner_id":"w","ttl_ms":100,"mode":"exclusive","scope":"node","wait_ms":0,"session_id":null,` +
			`"request_id":"r","metadata":{"a":[1e999,"\u0000"]}}`,
		`{"owner_id":"w","mode":"shared","scope":"subtree","wait_ms":600000}`,
		`{"owner_id":"w","wait_ms":-1,"session_id":"` + noSession + `"}`, `{"owner_id":"\u0000"}`, `{"owner_id":7}`,
		`{"owner_id":"w","ttl_ms":1e3}`, `{"owner_id":"w","metadata":{"a":1,"a":2}}`,
		`{"owner_id":"w","metadata":{"\ud83e\udd80":"\uffff"}}`, `{"owner_id":"w","owner_id":"w"}`, `null`, `[]`, ``, `{`,
		"{\"owner_id\":\"\xff\"}", `{"owner_id":"w","ttl_ms":9223372036854775807}`, `{"OWNER_ID":"w"}`,
		`{"owner_id":"w","metadata":` + strings.Repeat(`{"a":`, 600) + `1` + strings.Repeat(`}`, 600) + `}`,
	} {
		f.Add(body)
	}
	h := newFuzzed(f)
	f.Fuzz(func(t *testing.T, body string) {
		got := h.call(t, http.MethodPost, "/v1/locks/job/acquire", body)
		if got.status != http.StatusOK {
			lock := h.call(t, http.MethodGet, "/v1/locks/job", "")
			if lock.status == http.StatusOK && as[api.Lock](t, lock, http.StatusOK).State == "held" {
				t.Errorf("%q was answered %d, but took the lock", body, got.status)
			}
			return
		}
		lease := as[api.Lease](t, got, http.StatusOK)
		var requested api.AcquireRequest
		if err := json.Unmarshal([]byte(body), &requested); err != nil {
			t.Fatalf("a lease was granted to a body that is no request: %v", err)
		}
		otherTTL := requested.TTLMS != nil && *requested.TTLMS != lease.TTLMS
		if lease.OwnerID != requested.OwnerID || otherTTL || lease.FencingToken < 1 {
			t.Errorf("%q was granted %+v", body, lease)
		}
		h.call(t, http.MethodPost, "/v1/locks/job/release", refOf(lease))
		h.exec(t, "update fence.leases set request_id = null") // so that the next request with it gets a new lease
	})
}

// beginAnew makes leases with the tokens 1 on "a" and 2 on "b" and a record of "a". It returns the dump.
func (h *harness) beginAnew(t testing.TB) (dump string) {
	t.Helper()
	h.exec(t, `delete from fence.leases; delete from fence.fences; delete from fence.records;
		select setval('fence.tokens', 1, false);
		select fence.acquire_lease(fence.lease_request('a', 'w', 'exclusive', 'node', 86400000, null, null, null), 0, null, true);
		select fence.acquire_lease(fence.lease_request('b', 'w', 'exclusive', 'node', 86400000, null, null, null), 0, null, true);
		select fence.write_one('a', 1, 1, null, null, 'put', 'there', 'x', 'text/plain', null, null)`)
	return h.dump(t)
}

// A refused transaction changes nothing. An admitted one returns a result for each of its operations.
func FuzzTransactionBody(f *testing.F) {
	const good = `{"fences":[{"resource":"a","fencing_token":1,"sequence":2},{"resource":"b","fencing_token":2}],"ops":[`
	for _, body := range []string{
		good + `{"op":"put","resource":"a","key":"k","value":{"x":[null,1e999]}},` +
			`{"op":"put","resource":"b","key":"l/m","value_base64":"AP8=","content_type":"text/x"}]}`,
		good + `{"op":"delete","resource":"a","key":"there","if_version":1}]}`,
		good + `{"op":"put","resource":"a","key":"there","value":0,"if_version":9223372036854775807}]}`,
		good + `{"op":"put","resource":"c","key":"k","value":1}]}`,
		good + `{"op":"put","resource":"a","key":"k","value_base64":"","content_type":"x/y; z=\"\u0000\""}]}`,
		good + `null]}`, good + `]}`,
		good + `{"op":"put","resource":"a","key":"k","value":1},{"op":"put","resource":"a","key":"k","value":1}]}`,
		`{"fences":[{"resource":"a","fencing_token":1,"sequence":9007199254740991,"lease_id":"` + noSession + `"}],` +
			`"ops":[{"op":"delete","resource":"a","key":"\u0085"}]}`,
		`{"fences":[{"resource":"a","fencing_token":9007199254740991}],` +
			`"ops":[{"op":"put","resource":"a","key":"k","value":"\ud800"}]}`,
		`{"fences":[{}],"ops":[{}]}`, `null`, `{}`, ``,
	} {
		f.Add(body)
	}
	h := newFuzzed(f)
	before := h.beginAnew(f)
	f.Fuzz(func(t *testing.T, body string) {
		got := h.call(t, http.MethodPost, "/v1/transactions", body)
		if got.status != http.StatusOK {
			if after := h.dump(t); after != before {
				t.Errorf("%q was answered %d, but changed\n%s\nto\n%s", body, got.status, before, after)
			}
			return
		}
		before = h.beginAnew(t)
		result := as[api.TransactionResult](t, got, http.StatusOK)
		var requested api.TransactionRequest
		if err := json.Unmarshal([]byte(body), &requested); err != nil {
			t.Fatalf("a body that is no request was admitted: %v", err)
		}
		kinds := func(op api.Op) string { return op.Op + " " + op.Resource + " " + op.Key }
		results := func(op api.OpResult) string { return op.Op + " " + op.Resource + " " + op.Key }
		same := func(op api.Op, r api.OpResult) bool { return kinds(op) == results(r) && r.Version > 0 }
		if !slices.EqualFunc(requested.Ops, result.Results, same) {
			t.Errorf("%q was answered %s, want a result for each operation", body, got.body)
		}
	})
}
