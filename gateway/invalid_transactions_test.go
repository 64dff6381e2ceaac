package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

func TestBadTransactions(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	fences := fmt.Sprintf(`"fences":[{"resource":"job","fencing_token":%d,"sequence":2}]`, lease.FencingToken)
	const ops = `"ops":[{"op":"put","resource":"job","key":"t","value":1}]`
	fence := func(more string) string { return `{"fences":[{"resource":"job"` + more + `}],` + ops + `}` }
	op := func(text string) string {
		return `{` + fences + `,"ops":[{"op":"put","resource":"job","key":"first","value":1},{` + text + `}]}`
	}
	many := func(n int, text string) string { return "[" + strings.Repeat(text+",", n-1) + text + "]" }
	inputs := []badInput{
		{name: "empty object", body: `{}`, detail: "fences"},
		{name: "no fences", body: `{"fences":[],` + ops + `}`, detail: "there are 0 fences, a transaction has 1 to 64"},
		{name: "no ops", body: `{` + fences + `,"ops":[]}`, detail: "there are 0 ops, a transaction has 1 to 1000"},
		{name: "fences null", body: `{"fences":null,` + ops + `}`, detail: "there are 0 fences"},
		{name: "65 fences", body: `{"fences":` + many(65, `{"resource":"job","fencing_token":1}`) + `,` + ops + `}`, detail: "1 to 64 fences"},
		{name: "1001 ops", body: `{` + fences + `,"ops":` + many(1001, `{"op":"delete","resource":"job","key":"k"}`) + `}`, detail: "1 to 1000 ops"},
		{name: "fences an object", body: `{"fences":{},` + ops + `}`, detail: "fences has the wrong type"},
		{name: "fence a string", body: `{"fences":["job"],` + ops + `}`, detail: "fences[0] has the wrong type"},
		{name: "op a number", body: `{` + fences + `,"ops":[1]}`, detail: "ops[0] has the wrong type"},
		{name: "fence null", body: `{"fences":[null],` + ops + `}`, code: api.CodeInvalidName, detail: "fences[0]: resource"},
		{name: "resource twice", body: `{"fences":` + many(2, `{"resource":"job","fencing_token":1}`) + `,` + ops + `}`, detail: "fences[1]: resource job is there twice"},
		{name: "unknown field", body: fence(`,"token":1`), detail: "no field fences[0].token"},
		{name: "unknown field of op", body: op(`"op":"delete","resource":"job","key":"k","if_match":1`), detail: "no field ops[1].if_match"},
		{name: "token 0", body: fence(`,"fencing_token":0`), code: api.CodeInvalidToken, detail: "fences[0]: fencing_token must be 1 to 2^53-1"},
		{name: "token negative", body: fence(`,"fencing_token":-1`), code: api.CodeInvalidToken, detail: "fences[0]: fencing_token"},
		{name: "token with exponent", body: fence(`,"fencing_token":1e3`), code: api.CodeInvalidToken, detail: "fences[0].fencing_token"},
		{name: "token a fraction", body: fence(`,"fencing_token":34.2`), code: api.CodeInvalidToken, detail: "fences[0].fencing_token"},
		{name: "token 2^53", body: fence(`,"fencing_token":9007199254740992`), code: api.CodeInvalidToken, detail: "fences[0]: fencing_token"},
		{name: "token a string", body: fence(`,"fencing_token":"34"`), code: api.CodeInvalidToken, detail: "fences[0].fencing_token"},
		{name: "sequence negative", body: fence(`,"fencing_token":1,"sequence":-1`), code: api.CodeInvalidToken, detail: "fences[0]: sequence"},
		{name: "sequence 2^53", body: fence(`,"fencing_token":1,"sequence":9007199254740992`), code: api.CodeInvalidToken, detail: "fences[0]: sequence"},
		{name: "sequence a string", body: fence(`,"fencing_token":1,"sequence":"2"`), code: api.CodeInvalidToken, detail: "fences[0].sequence"},
		{name: "lease_id", body: fence(`,"fencing_token":1,"lease_id":"x"`), detail: "fences[0]: lease_id"},
		{name: "lease_id empty", body: fence(`,"fencing_token":1,"lease_id":""`), detail: "fences[0]: lease_id"},
		{name: "resource with NUL", body: `{"fences":[{"resource":"a\u0000b","fencing_token":1}],` + ops + `}`, code: api.CodeInvalidName, detail: "fences[0]: resource"},
		{name: "resource reserved", body: `{"fences":[{"resource":"a/fence","fencing_token":1}],` + ops + `}`, code: api.CodeInvalidName, detail: "fences[0]: resource"},
		{name: "no op", body: op(`"resource":"job","key":"k"`), detail: `ops[1]: op is ""; it must be put or delete`},
		{name: "op unknown", body: op(`"op":"upsert","resource":"job","key":"k"`), detail: `ops[1]: op is "upsert"`},
		{name: "op long", body: op(`"op":"` + strings.Repeat("x", 10_000) + `","resource":"job","key":"k"`), detail: "…"},
		{name: "op in capitals", body: op(`"op":"PUT","resource":"job","key":"k","value":1`), detail: `ops[1]: op is "PUT"`},
		{name: "no resource", body: op(`"op":"put","key":"k","value":1`), code: api.CodeInvalidName, detail: "ops[1]: resource"},
		{name: "no key", body: op(`"op":"put","resource":"job","value":1`), code: api.CodeInvalidName, detail: "ops[1]: key"},
		{name: "key bad", body: op(`"op":"put","resource":"job","key":"a//b","value":1`), code: api.CodeInvalidName, detail: "ops[1]: key"},
		{name: "no value", body: op(`"op":"put","resource":"job","key":"k"`), detail: "ops[1]: a put has either value"},
		{name: "two values", body: op(`"op":"put","resource":"job","key":"k","value":1,"value_base64":""`), detail: "ops[1]: a put has either value"},
		{name: "not base64", body: op(`"op":"put","resource":"job","key":"k","value_base64":"*"`), detail: "ops[1]: value_base64 is not base64"},
		{name: "base64 of URLs", body: op(`"op":"put","resource":"job","key":"k","value_base64":"_-8="`), detail: "ops[1]: value_base64 is not base64"},
		{name: "base64 without padding", body: op(`"op":"put","resource":"job","key":"k","value_base64":"AA"`), detail: "ops[1]: value_base64 is not base64"},
		{name: "not JSON", body: op(`"op":"put","resource":"job","key":"k","value_base64":"ew==","content_type":"application/json"`), detail: "ops[1]: value_base64 is not JSON"},
		{name: "type of JSON", body: op(`"op":"put","resource":"job","key":"k","value":1,"content_type":"text/plain"`), detail: "ops[1]: content_type goes with value_base64"},
		{name: "type garbage", body: op(`"op":"put","resource":"job","key":"k","value_base64":"","content_type":"garbage;;"`), detail: "ops[1]: the content type"},
		{name: "type with NUL", body: op(`"op":"put","resource":"job","key":"k","value_base64":"","content_type":"text/plain; x=\"\u0000\""`), detail: "ops[1]: the content type"},
		{name: "delete with value", body: op(`"op":"delete","resource":"job","key":"k","value":null`), detail: "ops[1]: a delete has no value"},
		{name: "delete with type", body: op(`"op":"delete","resource":"job","key":"k","content_type":"text/plain"`), detail: "ops[1]: a delete has no value"},
		{name: "if_version negative", body: op(`"op":"delete","resource":"job","key":"k","if_version":-1`), detail: "ops[1]: if_version is -1"},
		{name: "if_version 2^63", body: op(`"op":"delete","resource":"job","key":"k","if_version":9223372036854775808`), detail: "ops[1].if_version has the wrong type or is out of range"},
		{name: "if_version a string", body: op(`"op":"delete","resource":"job","key":"k","if_version":"1"`), detail: "ops[1].if_version has the wrong type"},
		{name: "record twice", body: op(`"op":"delete","resource":"job","key":"first"`), detail: "ops[1]: record first of job is changed twice"},
		{name: "field of value twice", body: op(`"op":"put","resource":"job","key":"k","value":{"a":1,"a":2}`), detail: "ops[1].value.a"},
	}
	for i := range inputs {
		inputs[i].path, inputs[i].header = "/v1/transactions", []string{jsonType}
	}
	h.refusedAll(t, inputs)
}

func TestBadPolicies(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	inputs := []badInput{
		{name: "rule unknown", body: `{"rule":"lax"}`, detail: "rule must be strict or same_token"},
		{name: "rule long", body: `{"rule":"` + strings.Repeat("x", 10_000) + `"}`, detail: "rule must be"},
		{name: "rule in capitals", body: `{"rule":"Strict"}`, detail: "rule must be strict or same_token"},
		{name: "rule a number", body: `{"rule":1}`, detail: "rule has the wrong type"},
		{name: "authority unknown", body: `{"authority":"etcd"}`, detail: "authority must be builtin or external"},
		{name: "bool a string", body: `{"require_lease_id":"true"}`, detail: "it must be true or false"},
		{name: "bool a number", body: `{"require_live_lease":1}`, detail: "it must be true or false"},
		{name: "lease_id of external", body: `{"authority":"external","require_lease_id":true}`, detail: "external"},
		{name: "live lease of external", body: `{"authority":"external","require_live_lease":true}`, detail: "external"},
		{name: "prefix in the body", body: `{"prefix":"job"}`, detail: "There is no field prefix"},
		{name: "empty", body: ``, detail: "The body is empty"},
	}
	for i := range inputs {
		inputs[i].method, inputs[i].path, inputs[i].header = http.MethodPut, "/v1/policies/job", []string{jsonType}
	}
	h.refusedAll(t, inputs)
}
