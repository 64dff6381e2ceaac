package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
)

// invalidInput is a request that must be refused, and its refusal.
type invalidInput struct {
	method  string // "": POST
	path    string
	body    string
	headers []string
	code    api.Code // "": invalid_request
	status  int      // 0: 400
	detail  string   // a part of the detail
}

// expectRefusals sends invalid input and checks the refusals, and that they did not change the database.
func (h *harness) expectRefusals(t *testing.T, inputs []invalidInput) {
	t.Helper()
	h.unchanged(t, func() {
		for _, input := range inputs {
			method, status := cmp.Or(input.method, http.MethodPost), cmp.Or(input.status, http.StatusBadRequest)
			got := h.send(t, method, input.path, input.body, input.headers...)
			problem := expectProblem(t, got, cmp.Or(input.code, api.CodeInvalidRequest))
			if problem.Status != status || problem.Retryable || !strings.Contains(problem.Detail, input.detail) {
				t.Errorf("%s %s %q %q: want status %d, not retryable, and %q in the detail, got %+v", method, endpoint.Clip(input.path),
					endpoint.Clip(input.body), input.headers, status, input.detail, problem)
			}
		}
	})
}

// changeEach changes every input and returns them.
func changeEach(inputs []invalidInput, change func(*invalidInput)) []invalidInput {
	for i := range inputs {
		change(&inputs[i])
	}
	return inputs
}

// jsonInputs are bodies for one path. Each line is a body and a part of the detail, with an arrow between them.
func jsonInputs(path string, lines ...string) (inputs []invalidInput) {
	for _, line := range lines {
		body, detail, _ := strings.Cut(line, " → ")
		inputs = append(inputs, invalidInput{path: path, body: body, headers: []string{jsonType}, detail: detail})
	}
	return inputs
}

// TestInvalidRequests checks that a request with anything invalid is refused for what is wrong with it, and that it
// changes nothing.
func TestInvalidRequests(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	for name, refuse := range map[string]func(*testing.T, *harness, api.Lease){
		"invalid JSON":             invalidJSON,
		"invalid fields":           invalidFields,
		"invalid sessions":         invalidSessions,
		"invalid transactions":     invalidTransactions,
		"invalid token headers":    invalidTokenHeaders,
		"invalid write headers":    invalidWriteHeaders,
		"content type of requests": contentTypeOfRequests,
		"methods":                  methods,
		"queries of reads":         queriesOfReads,
		"queries of writes":        queriesOfWrites,
		"invalid event IDs":        invalidEventIDs,
	} {
		t.Run(name, func(t *testing.T) { refuse(t, h, lease) })
	}
	headersThatChangeTheMeaning(t, h, lease)
}

func invalidJSON(t *testing.T, h *harness, _ api.Lease) {
	inputs := jsonInputs("/v1/locks/new/acquire",
		`owner_id=w → not JSON`,
		`{"owner_id":"w"}{"owner_id":"w"} → not JSON`,
		"\ufeff"+`{"owner_id":"w"} → not JSON`,
		"{\"owner_id\":\"w\xff\"} → owner_id",
		`{"owner_id":"\ud800"} → owner_id`,
		`{"owner_id":"w","owner_id":"w"} → The field owner_id is there twice`,
		`{"owner_id":"w","owner\u005fid":"w"} → The field owner_id is there twice`,
		`{"owner_id":"w","metadata":{"a":1,"a":2}} → The field metadata.a is there twice`,
		`[{"owner_id":"w"}] → must be a JSON object`,
		`{"owner_ID":"w"} → There is no field owner_ID`,
		strings.Repeat(`{"metadata":`, 20_000)+" → not JSON",
		`{"owner_id":"w","metadata":`+strings.Repeat("[", 20_000)+" → metadata")
	inputs = append(inputs, changeEach(jsonInputs("", "", " \n\t"), func(i *invalidInput) {
		i.path, i.detail = "/v1/locks/new/acquire", "empty"
	})...)
	// A null body is not one whose fields are all absent.
	for _, path := range []string{
		"/v1/locks/job/acquire", "/v1/locks/job/renew", "/v1/locks/job/release", "/v1/locks/job/break", "/v1/sessions",
		"/v1/sessions/" + noSession + "/keepalive", "/v1/transactions",
	} {
		inputs = append(inputs, jsonInputs(path, "null → must be a JSON object")...)
	}
	policy := jsonInputs("/v1/policies/job", "null → must be a JSON object", "{} extra → not JSON")
	h.expectRefusals(t, append(inputs, changeEach(policy, func(i *invalidInput) { i.method = http.MethodPut })...))
}

// invalidText has the values that a required text of at most limit bytes must not have.
func invalidText(field string, limit int) []string {
	return []string{
		" → " + field + " is required", "null → " + field + " is required", `"" → ` + field + " is required",
		"7 → " + field + " has the wrong type",
		fmt.Sprintf("%q → %s has %d bytes, the limit is %d", strings.Repeat("x", limit+1), field, limit+1, limit),
		`"\u0085" → ` + field + " has a control character",
	}
}

// invalidToken has the values that a fencing token must not have.
func invalidTokenValues(field string) []string {
	return []string{
		" → " + field + " is missing or 0, it must be 1 to 2^53-1", "null → " + field, "0 → " + field + " is missing or 0",
		"-1 → " + field + " is -1, it must be 1 to 2^53-1", "9007199254740992 → 1 to 2^53-1",
		"18446744073709551616 → 1 to 2^53-1", `"1" → a JSON integer`, "1e0 → a JSON integer",
	}
}

// invalidValues has the values that each field must not have, as JSON, and a part of the detail. No value before the
// arrow means that the field is absent.
var invalidValues = map[string][]string{
	"owner_id": invalidText("owner_id", 256),
	"reason":   invalidText("reason", 1024),
	"ttl_ms": {
		`"30s" → ttl_ms has the wrong type`, "1e4 → ttl_ms", "9223372036854775808 → ttl_ms", "99 → ttl_ms is 99",
		"9223372036854775807 → ttl_ms is 9223372036854775807, it must be 100 to 86400000",
	},
	"mode": {
		`"Exclusive" → mode is "Exclusive", it must be exclusive or shared`, `"` + strings.Repeat("é", 10_000) + `" → …`,
	},
	"scope": {
		`"Subtree" → scope is "Subtree", it must be node or subtree`, `"` + strings.Repeat("x", 10_000) + `" → …`,
	},
	"wait_ms": {
		"-1 → wait_ms is -1, it must be 0 (a try) to 600000", "600001 → wait_ms is 600001, it must be 0 (a try) to 600000",
		"true → wait_ms has the wrong type",
	},
	"session_id": {
		`"" → session_id is not one`, `"00000000-0000-0000-0000-000000000000" → session_id is not one`,
		`"` + noSession + `","ttl_ms":1000 → ttl_ms is set beside session_id`,
	},
	"request_id": {
		`"" → request_id is empty`, `"\u009f" → request_id has a control character`,
		`"` + strings.Repeat("x", 257) + `" → request_id has 257 bytes, the limit is 256`,
	},
	"metadata": append(unreadableJSON("metadata"),
		"[] → metadata must be a JSON object", `"{}" → metadata must be a JSON object`,
		`{"a":"`+strings.Repeat("x", 4096-7)+`"} → metadata has 4097 bytes, the limit is 4096`),
	"lease_id":      {" → lease_id is missing", `"1234" → lease_id`, `"{` + noSession + `}" → lease_id`},
	"fencing_token": invalidTokenValues("fencing_token"),
	"last_token": {
		" → last_token is missing or null", "null → last_token is missing or null", "-1 → last_token is -1, it must be 0",
		"9007199254740992 → it must be 0 to 2^53-1", `"1" → last_token has the wrong type`,
	},
	"last_sequence": {"-1 → last_sequence is -1, it must be 0", "9007199254740992 → it must be 0 to 2^53-1"},
	"rule": {
		`"Strict" → rule must be strict or same_token`, `"` + strings.Repeat("x", 10_000) + `" → rule must be`,
	},
	"authority": {
		`"etcd" → authority must be builtin or external`, `"external","require_lease_id":true → external`,
		`"external","require_live_lease":true → external`, `"external","max_hold_ms":1000 → external`,
	},
	"require_lease_id":   {`"true" → it must be true or false`},
	"require_live_lease": {"1 → it must be true or false"},
	"max_hold_ms":        {"99 → max_hold_ms", "0 → max_hold_ms", "31536000001 → max_hold_ms"},
}

// unreadableJSON has JSON that PostgreSQL stores and then fails to read: an escaped NUL, or half a surrogate pair.
func unreadableJSON(field string) (values []string) {
	for _, text := range []string{`a\u0000b`, `a\ud800b`} {
		values = append(values, `{"a":[1,{"b":"`+text+`"}]} → `+field, `{"`+text+`":1} → `+field)
	}
	return values
}

// Every field of every JSON body refuses the same values, wherever the field occurs. Unknown fields are refused.
func invalidFields(t *testing.T, h *harness, lease api.Lease) {
	ref := map[string]string{"owner_id": `"w"`, "lease_id": `"` + lease.LeaseID + `"`, "fencing_token": "1"}
	var inputs []invalidInput
	for path, c := range map[string]struct {
		fields  map[string]string // of a valid request
		more    string            // further fields
		unknown string
	}{
		"/v1/locks/new/acquire": {
			map[string]string{"owner_id": `"w"`}, "ttl_ms mode scope wait_ms session_id request_id metadata", "ttl",
		},
		"/v1/locks/job/renew":   {ref, "ttl_ms", "token"},
		"/v1/locks/job/release": {ref, "", "ttl_ms"},
		"/v1/locks/job/break":   {map[string]string{"reason": `"r"`}, "", "force"},
		"/v1/sessions":          {map[string]string{"owner_id": `"w"`}, "ttl_ms metadata", "session_id"},
		"/v1/policies/job": {
			map[string]string{}, "rule authority require_lease_id require_live_lease max_hold_ms", "prefix",
		},
		"/v1/resources/job/fence": {
			map[string]string{"reason": `"r"`, "last_token": "1"}, "last_sequence", "granted_token",
		},
	} {
		body := func(field, value string) string {
			fields := maps.Clone(c.fields)
			fields[field] = value
			var texts []string
			for _, name := range slices.Sorted(maps.Keys(fields)) {
				if fields[name] != "" {
					texts = append(texts, fmt.Sprintf("%q:%s", name, fields[name]))
				}
			}
			return "{" + strings.Join(texts, ",") + "}"
		}
		var of []invalidInput
		for _, field := range append(slices.Sorted(maps.Keys(c.fields)), strings.Fields(c.more)...) {
			for _, line := range invalidValues[field] {
				value, detail, _ := strings.Cut(line, " → ")
				input := invalidInput{body: body(field, strings.TrimSpace(value)), detail: strings.TrimPrefix(detail, "→ ")}
				if field == "fencing_token" {
					input.code = api.CodeInvalidToken
				}
				of = append(of, input)
			}
		}
		of = append(of, invalidInput{body: body(c.unknown, "1"), detail: "There is no field " + c.unknown})
		inputs = append(inputs, changeEach(of, func(i *invalidInput) {
			i.path, i.headers = path, []string{jsonType}
			if strings.HasPrefix(path, "/v1/policies/") || strings.HasSuffix(path, "/fence") {
				i.method = http.MethodPut
			}
		})...)
	}
	h.expectRefusals(t, inputs)
	metadata := `{"v":"\\u0000 \ud83e\udd80"}` // an escaped backslash, and a whole surrogate pair
	h.acquireAs(t, "e", api.AcquireRequest{OwnerID: "w", Metadata: []byte(metadata)})
}

// Requests with a session are refused if there is none.
func invalidSessions(t *testing.T, h *harness, _ api.Lease) {
	session := "/v1/sessions/" + h.createSession(t, "worker", time.Hour).SessionID
	inputs := jsonInputs(session+"/keepalive",
		`{"ttl_ms":1000} → There is no field ttl_ms`, `[] → must be a JSON object`, `  → empty`)
	missing := invalidInput{code: api.CodeNotFound, status: http.StatusNotFound}
	for id, refusal := range map[string]invalidInput{
		noSession: missing, "x": {}, "%00": {}, "a/b": {}, "%7B" + noSession + "%7D": {}, noSession + "0": {},
		strings.ReplaceAll(noSession, "-", ""): {}, "00000000-0000-0000-0000-000000000000": {}, "urn:uuid:" + noSession: {},
	} {
		refusal.detail = "session"
		for method, action := range map[string]string{http.MethodPost: "/keepalive", http.MethodGet: "",
			http.MethodDelete: ""} {
			refusal.method, refusal.path = method, "/v1/sessions/"+id+action
			inputs = append(inputs, refusal)
		}
	}
	ofMissing := jsonInputs("/v1/locks/job/acquire", `{"owner_id":"w","session_id":"`+noSession+`"} → session`)
	inputs = append(inputs, changeEach(ofMissing,
		func(i *invalidInput) { i.code, i.status = missing.code, missing.status })...)
	h.expectRefusals(t, inputs)
}

// invalidOps has the fields of an operation that must not be, and a part of the detail.
var invalidOps = []string{
	`"op":"delete","resource":"job","key":"k","if_match":1 → no field ops[1].if_match`,
	`"resource":"job","key":"k" → ops[1]: op is ""; it must be put or delete`,
	`"op":"` + strings.Repeat("x", 10_000) + `","resource":"job","key":"k" → …`,
	`"op":"put","resource":"job","key":"k" → ops[1]: a put has either value`,
	`"op":"put","resource":"job","key":"k","value":1,"value_base64":"" → ops[1]: a put has either value`,
	`"op":"put","resource":"job","key":"k","value_base64":"*" → ops[1]: value_base64 is not base64`,
	`"op":"put","resource":"job","key":"k","value_base64":"ew==","content_type":"application/json"` +
		` → ops[1]: value_base64 is not JSON`,
	`"op":"put","resource":"job","key":"k","value":1,"content_type":"text/plain"` +
		` → ops[1]: content_type goes with value_base64`,
	`"op":"put","resource":"job","key":"k","value_base64":"","content_type":"text/plain; x=\"\u0000\""` +
		` → ops[1]: the content type`,
	`"op":"delete","resource":"job","key":"k","value":null → ops[1]: a delete has no value`,
	`"op":"delete","resource":"job","key":"k","if_version":-1 → ops[1]: if_version is -1`,
	`"op":"delete","resource":"job","key":"k","if_version":"1" → ops[1].if_version has the wrong type`,
	`"op":"delete","resource":"job","key":"first" → ops[1]: record first of job is changed twice`,
	`"op":"put","resource":"job","key":"k","value":{"a":1,"a":2} → ops[1].value.a`,
	`"op":"put","key":"k","value":1 → ops[1]: the name of the resource`,
	`"op":"put","resource":"job","value":1 → ops[1]: the name of the key`,
	`"op":"put","resource":"job","key":"a//b","value":1 → ops[1]: the name of the key`,
}

func invalidTransactions(t *testing.T, h *harness, lease api.Lease) {
	fences := fmt.Sprintf(`"fences":[{"resource":"job","fencing_token":%d,"sequence":2}]`, lease.FencingToken)
	const ops = `"ops":[{"op":"put","resource":"job","key":"t","value":1}]`
	many := func(n int, text string) string { return "[" + strings.Repeat(text+",", n-1) + text + "]" }
	lines := []string{
		`{} → fences`,
		`{"fences":[],` + ops + `} → there are 0 fences, a transaction has 1 to 64`,
		`{` + fences + `,"ops":[]} → there are 0 ops, a transaction has 1 to 1000`,
		`{"fences":null,` + ops + `} → there are 0 fences`,
		`{"fences":` + many(65, `{"resource":"job","fencing_token":1}`) + `,` + ops + `} → 1 to 64 fences`,
		`{` + fences + `,"ops":` + many(1001, `{"op":"delete","resource":"job","key":"k"}`) + `} → 1 to 1000 ops`,
		`{` + fences + `,"ops":[1]} → ops[0] has the wrong type`,
		`{"fences":[null],` + ops + `} → fences[0]: the name of the resource`,
		`{"fences":` + many(2,
			`{"resource":"job","fencing_token":1}`) + `,` + ops + `} → fences[1]: resource job is there twice`,
	}
	for _, line := range invalidOps {
		op, detail, _ := strings.Cut(line, " → ")
		first := `{"op":"put","resource":"job","key":"first","value":1}`
		lines = append(lines, `{`+fences+`,"ops":[`+first+`,{`+op+`}]} → `+detail)
	}
	for _, line := range []string{
		`"resource":"job","token":1 → no field fences[0].token`,
		`"resource":"job","fencing_token":0 → fences[0]: fencing_token must be 1 to 2^53-1`,
		`"resource":"job","fencing_token":9007199254740992 → fences[0]: fencing_token`,
		`"resource":"job","fencing_token":"34" → fences[0].fencing_token`,
		`"resource":"job","fencing_token":1,"sequence":-1 → fences[0]: sequence`,
		`"resource":"job","fencing_token":1,"sequence":"2" → fences[0].sequence`,
		`"resource":"job","fencing_token":1,"lease_id":"x" → fences[0]: lease_id`,
		`"resource":"a\u0000b","fencing_token":1 → fences[0]: the name of the resource`,
		`"resource":"a/fence","fencing_token":1 → fences[0]: the name of the resource`,
	} {
		fence, detail, _ := strings.Cut(line, " → ")
		lines = append(lines, `{"fences":[{`+fence+`}],`+ops+`} → `+detail)
	}
	h.expectRefusals(t, changeEach(jsonInputs("/v1/transactions", lines...), func(i *invalidInput) {
		_, subject, _ := strings.Cut(i.detail, "]")
		switch {
		case strings.Contains(i.detail, "twice"):
		case strings.HasPrefix(subject, ": the name of the "):
			i.code = api.CodeInvalidName
		case strings.Contains(subject, "fencing_token"), strings.Contains(subject, "sequence"):
			i.code = api.CodeInvalidToken
		}
	}))
}
