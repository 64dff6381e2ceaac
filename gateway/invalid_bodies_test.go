package gateway

import (
	"cmp"
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// badInput is a request that must be refused, and what its refusal must say.
type badInput struct {
	name   string
	method string // "": POST
	path   string
	body   string
	header []string
	code   api.Code // "": invalid_request
	status int      // 0: 400
	detail string   // must be in the detail
}

// refusedAll holds bad input against its refusals, and the database against what it was: nothing is half done.
func (h *harness) refusedAll(t *testing.T, inputs []badInput) {
	t.Helper()
	for _, input := range inputs {
		t.Run(input.name, func(t *testing.T) {
			method, status := cmp.Or(input.method, http.MethodPost), cmp.Or(input.status, http.StatusBadRequest)
			h.unchanged(t, func() {
				problem := refused(t, h.send(t, method, input.path, input.body, input.header...), cmp.Or(input.code, api.CodeInvalidRequest))
				if problem.Status != status || problem.Retryable || !strings.Contains(problem.Detail, input.detail) {
					t.Errorf("status %d, retryable %v, want %d: the detail %q should say %q", problem.Status, problem.Retryable, status, problem.Detail, input.detail)
				}
				t.Log(problem.Detail) // for whoever reads how it feels
			})
		})
	}
}

// newBusyHarness is a harness with a lease on "job" that has written the record "k".
func newBusyHarness(t *testing.T, config Config) (*harness, api.Lease) {
	t.Helper()
	h := newHarness(t, config)
	lease := h.acquire(t, "job", "worker")
	as[api.WriteResult](t, h.put(t, lease, 1, "value"), http.StatusCreated)
	return h, lease
}

func TestBadJSON(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	inputs := []badInput{
		{name: "malformed", body: `{"owner_id":`, detail: "not JSON"},
		{name: "no JSON at all", body: `owner_id=w`, detail: "not JSON"},
		{name: "empty", body: ``, detail: "empty"},
		{name: "blank", body: " \n\t", detail: "empty"},
		{name: "trailing data", body: `{"owner_id":"w"}{"owner_id":"w"}`, detail: "not JSON"},
		{name: "trailing comma", body: `{"owner_id":"w",}`, detail: "not JSON"},
		{name: "comment", body: `{"owner_id":"w"} // yes`, detail: "not JSON"},
		{name: "single quotes", body: `{'owner_id':'w'}`, detail: "not JSON"},
		{name: "byte order mark", body: "\ufeff" + `{"owner_id":"w"}`, detail: "not JSON"},
		{name: "UTF-16", body: "{\x00}\x00", detail: "not JSON"},
		{name: "invalid UTF-8", body: "{\"owner_id\":\"w\xff\"}", detail: "owner_id"},
		{name: "lone surrogate", body: `{"owner_id":"\ud800"}`, detail: "owner_id"},
		{name: "field twice", body: `{"owner_id":"w","owner_id":"w"}`, detail: "The field owner_id is there twice"},
		{name: "field twice, escaped", body: `{"owner_id":"w","owner\u005fid":"w"}`, detail: "The field owner_id is there twice"},
		{name: "null", body: `null`, detail: "must be a JSON object"},
		{name: "array", body: `[{"owner_id":"w"}]`, detail: "must be a JSON object"},
		{name: "string", body: `"owner_id"`, detail: "must be a JSON object"},
		{name: "number", body: `1`, detail: "must be a JSON object"},
		{name: "unknown field", body: `{"owner_id":"w","ttl":30}`, detail: "There is no field ttl"},
		{name: "unknown field first", body: `{"x y":1,"owner_id":"w"}`, detail: "There is no field x y"},
		{name: "upper case", body: `{"owner_ID":"w"}`, detail: "There is no field owner_ID"},
		{name: "camel case", body: `{"ownerId":"w"}`, detail: "There is no field ownerId"},
		{name: "deep", body: strings.Repeat(`{"metadata":`, 20_000), detail: "not JSON"},
		{name: "deep metadata", body: `{"owner_id":"w","metadata":` + strings.Repeat("[", 20_000), detail: "metadata"},
	}
	for i := range inputs {
		inputs[i].path, inputs[i].header = "/v1/locks/new/acquire", []string{jsonType}
	}
	h.refusedAll(t, inputs)
}

// A body that is null must not pass for one whose fields are all absent.
func TestNullBodies(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	var inputs []badInput
	for _, path := range []string{
		"/v1/locks/job/acquire", "/v1/locks/job/renew", "/v1/locks/job/release", "/v1/locks/job/break", "/v1/sessions", "/v1/sessions/" + noSession + "/keepalive",
		"/v1/elections/job/campaign", "/v1/elections/job/resign",
	} {
		inputs = append(inputs, badInput{name: path, path: path})
	}
	inputs = append(inputs, badInput{name: "transaction", path: "/v1/transactions"},
		badInput{name: "policy", method: http.MethodPut, path: "/v1/policies/job"})
	for i := range inputs {
		inputs[i].body, inputs[i].header, inputs[i].detail = "null", []string{jsonType}, "must be a JSON object"
	}
	h.refusedAll(t, inputs)
}

func TestBadAcquires(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	long := strings.Repeat("x", 257)
	inputs := []badInput{
		{name: "no owner", body: `{}`, detail: "owner_id is required"},
		{name: "owner null", body: `{"owner_id":null}`, detail: "owner_id is required"},
		{name: "owner empty", body: `{"owner_id":""}`, detail: "owner_id is required"},
		{name: "owner a number", body: `{"owner_id":7}`, detail: "owner_id has the wrong type"},
		{name: "owner long", body: `{"owner_id":"` + long + `"}`, detail: "owner_id has 257 bytes, the limit is 256"},
		{name: "owner with newline", body: `{"owner_id":"a\nb"}`, detail: "owner_id has a control character"},
		{name: "owner with NUL", body: `{"owner_id":"\u0000"}`, detail: "owner_id has a control character"},
		{name: "ttl a string", body: `{"owner_id":"w","ttl_ms":"30s"}`, detail: "ttl_ms has the wrong type"},
		{name: "ttl a fraction", body: `{"owner_id":"w","ttl_ms":1000.5}`, detail: "ttl_ms"},
		{name: "ttl with exponent", body: `{"owner_id":"w","ttl_ms":1e4}`, detail: "ttl_ms"},
		{name: "ttl huge", body: `{"owner_id":"w","ttl_ms":1` + strings.Repeat("0", 400) + `}`, detail: "ttl_ms"},
		{name: "ttl beyond int64", body: `{"owner_id":"w","ttl_ms":9223372036854775808}`, detail: "ttl_ms"},
		{name: "ttl overflows nanoseconds", body: `{"owner_id":"w","ttl_ms":9223372036854775807}`, detail: "ttl_ms is 9223372036854775807, it must be 100 to 86400000"},
		{name: "ttl 0", body: `{"owner_id":"w","ttl_ms":0}`, detail: "it must be 100 to 86400000"},
		{name: "ttl negative", body: `{"owner_id":"w","ttl_ms":-1}`, detail: "it must be 100 to 86400000"},
		{name: "ttl short", body: `{"owner_id":"w","ttl_ms":99}`, detail: "it must be 100 to 86400000"},
		{name: "ttl long", body: `{"owner_id":"w","ttl_ms":86400001}`, detail: "it must be 100 to 86400000"},
		{name: "mode in capitals", body: `{"owner_id":"w","mode":"Exclusive"}`, detail: `mode is "Exclusive", it must be exclusive or shared`},
		{name: "mode long", body: `{"owner_id":"w","mode":"` + strings.Repeat("é", 10_000) + `"}`, detail: "…"},
		{name: "scope long", body: `{"owner_id":"w","scope":"` + strings.Repeat("x", 10_000) + `"}`, detail: "…"},
		{name: "scope in capitals", body: `{"owner_id":"w","scope":"Subtree"}`, detail: `scope is "Subtree", it must be node or subtree`},
		{name: "wait negative", body: `{"owner_id":"w","wait_ms":-1}`, detail: "wait_ms is -1, it must be 0 (a try) to 600000"},
		{name: "wait long", body: `{"owner_id":"w","wait_ms":600001}`, detail: "wait_ms is 600001, it must be 0 (a try) to 600000"},
		{name: "wait overflows nanoseconds", body: `{"owner_id":"w","wait_ms":9223372036854775807}`, detail: "it must be 0 (a try) to 600000"},
		{name: "wait a fraction", body: `{"owner_id":"w","wait_ms":0.5}`, detail: "wait_ms has the wrong type"},
		{name: "wait a bool", body: `{"owner_id":"w","wait_ms":true}`, detail: "wait_ms has the wrong type"},
		{name: "session no UUID", body: `{"owner_id":"w","session_id":"s"}`, detail: "session_id is not one"},
		{name: "session empty", body: `{"owner_id":"w","session_id":""}`, detail: "session_id is not one"},
		{name: "session of zeros", body: `{"owner_id":"w","session_id":"00000000-0000-0000-0000-000000000000"}`, detail: "session_id is not one"},
		{name: "session in braces", body: `{"owner_id":"w","session_id":"{` + noSession + `}"}`, detail: "session_id is not one"},
		{name: "session a number", body: `{"owner_id":"w","session_id":7}`, detail: "session_id has the wrong type"},
		{name: "session and ttl", body: `{"owner_id":"w","ttl_ms":1000,"session_id":"` + noSession + `"}`, detail: "ttl_ms is set beside session_id"},
		{name: "session unknown", path: "/v1/locks/job/acquire", body: `{"owner_id":"w","session_id":"` + noSession + `"}`, code: api.CodeNotFound, status: http.StatusNotFound, detail: "session"},
		{name: "request empty", body: `{"owner_id":"w","request_id":""}`, detail: "request_id is empty"},
		{name: "request long", body: `{"owner_id":"w","request_id":"` + long + `"}`, detail: "request_id has 257 bytes, the limit is 256"},
		{name: "request with control", body: `{"owner_id":"w","request_id":"\u009f"}`, detail: "request_id has a control character"},
		{name: "metadata an array", body: `{"owner_id":"w","metadata":[]}`, detail: "metadata must be a JSON object"},
		{name: "metadata a string", body: `{"owner_id":"w","metadata":"{}"}`, detail: "metadata must be a JSON object"},
		{name: "metadata large", body: `{"owner_id":"w","metadata":{"a":"` + strings.Repeat("x", 4096-7) + `"}}`, detail: "metadata has 4097 bytes, the limit is 4096"},
		{name: "metadata field twice", body: `{"owner_id":"w","metadata":{"a":1,"a":2}}`, detail: "The field metadata.a is there twice"},
	}
	for i := range inputs {
		inputs[i].path, inputs[i].header = cmp.Or(inputs[i].path, "/v1/locks/new/acquire"), []string{jsonType}
	}
	h.refusedAll(t, inputs)
}

func TestBadLeaseRefs(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	id := `"lease_id":"` + lease.LeaseID + `"`
	var inputs []badInput
	for _, action := range []string{"renew", "release"} {
		of := []badInput{
			{name: "no owner", body: `{` + id + `,"fencing_token":1}`, detail: "owner_id is required"},
			{name: "owner with NUL", body: `{"owner_id":"\u0000",` + id + `,"fencing_token":1}`, detail: "owner_id has a control character"},
			{name: "owner long", body: `{"owner_id":"` + strings.Repeat("x", 257) + `",` + id + `,"fencing_token":1}`, detail: "owner_id has 257 bytes, the limit is 256"},
			{name: "no lease_id", body: `{"owner_id":"w","fencing_token":1}`, detail: "lease_id is missing or empty"},
			{name: "lease_id short", body: `{"owner_id":"w","lease_id":"1234","fencing_token":1}`, detail: "lease_id"},
			{name: "lease_id in braces", body: `{"owner_id":"w","lease_id":"{` + lease.LeaseID + `}","fencing_token":1}`, detail: "lease_id"},
			{name: "no token", body: `{"owner_id":"w",` + id + `}`, code: api.CodeInvalidToken, detail: "fencing_token"},
			{name: "token null", body: `{"owner_id":"w",` + id + `,"fencing_token":null}`, code: api.CodeInvalidToken, detail: "fencing_token"},
			{name: "token 0", body: `{"owner_id":"w",` + id + `,"fencing_token":0}`, code: api.CodeInvalidToken, detail: "fencing_token is missing or 0, it must be 1 to 2^53-1"},
			{name: "token negative", body: `{"owner_id":"w",` + id + `,"fencing_token":-1}`, code: api.CodeInvalidToken, detail: "1 to 2^53-1"},
			{name: "token 2^53", body: `{"owner_id":"w",` + id + `,"fencing_token":9007199254740992}`, code: api.CodeInvalidToken, detail: "1 to 2^53-1"},
			{name: "token 2^64", body: `{"owner_id":"w",` + id + `,"fencing_token":18446744073709551616}`, code: api.CodeInvalidToken, detail: "1 to 2^53-1"},
			{name: "token a string", body: `{"owner_id":"w",` + id + `,"fencing_token":"1"}`, code: api.CodeInvalidToken, detail: "a JSON integer"},
			{name: "token with exponent", body: `{"owner_id":"w",` + id + `,"fencing_token":1e0}`, code: api.CodeInvalidToken, detail: "a JSON integer"},
			{name: "unknown field", body: `{"owner_id":"w",` + id + `,"token":1}`, detail: "There is no field token"},
		}
		for i := range of {
			of[i].name, of[i].path, of[i].header = action+", "+of[i].name, "/v1/locks/job/"+action, []string{jsonType}
		}
		inputs = append(inputs, of...)
	}
	ref := strings.TrimSuffix(refOf(lease), "}")
	inputs = append(inputs,
		badInput{name: "ttl of a renewal", path: "/v1/locks/job/renew", body: ref + `,"ttl_ms":99}`, header: []string{jsonType}, detail: "ttl_ms is 99"},
		badInput{name: "ttl of a release", path: "/v1/locks/job/release", body: ref + `,"ttl_ms":100}`, header: []string{jsonType}, detail: "no field ttl_ms"},
		badInput{name: "no reason", path: "/v1/locks/job/break", body: `{}`, header: []string{jsonType}, detail: "reason is required"},
		badInput{name: "reason long", path: "/v1/locks/job/break", body: `{"reason":"` + strings.Repeat("x", 1025) + `"}`, header: []string{jsonType}, detail: "reason has 1025 bytes, the limit is 1024"},
	)
	h.refusedAll(t, inputs)
}
