package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// invalidOps has the fields of an operation that must not be, and a part of the detail.
var invalidOps = []string{
	`"op":"delete","resource":"job","key":"k","if_match":1 → no field ops[1].if_match`,
	`"resource":"job","key":"k" → ops[1]: op is ""; it must be put or delete`,
	`"op":"upsert","resource":"job","key":"k" → ops[1]: op is "upsert"`,
	`"op":"` + strings.Repeat("x", 10_000) + `","resource":"job","key":"k" → …`,
	`"op":"PUT","resource":"job","key":"k","value":1 → ops[1]: op is "PUT"`,
	`"op":"put","resource":"job","key":"k" → ops[1]: a put has either value`,
	`"op":"put","resource":"job","key":"k","value":1,"value_base64":"" → ops[1]: a put has either value`,
	`"op":"put","resource":"job","key":"k","value_base64":"*" → ops[1]: value_base64 is not base64`,
	`"op":"put","resource":"job","key":"k","value_base64":"_-8=" → ops[1]: value_base64 is not base64`,
	`"op":"put","resource":"job","key":"k","value_base64":"AA" → ops[1]: value_base64 is not base64`,
	`"op":"put","resource":"job","key":"k","value_base64":"ew==","content_type":"application/json"` +
		` → ops[1]: value_base64 is not JSON`,
	`"op":"put","resource":"job","key":"k","value":1,"content_type":"text/plain"` +
		` → ops[1]: content_type goes with value_base64`,
	`"op":"put","resource":"job","key":"k","value_base64":"","content_type":"garbage;;" → ops[1]: the content type`,
	`"op":"put","resource":"job","key":"k","value_base64":"","content_type":"text/plain; x=\"\u0000\""` +
		` → ops[1]: the content type`,
	`"op":"delete","resource":"job","key":"k","value":null → ops[1]: a delete has no value`,
	`"op":"delete","resource":"job","key":"k","content_type":"text/plain" → ops[1]: a delete has no value`,
	`"op":"delete","resource":"job","key":"k","if_version":-1 → ops[1]: if_version is -1`,
	`"op":"delete","resource":"job","key":"k","if_version":9223372036854775808` +
		` → ops[1].if_version has the wrong type or is out of range`,
	`"op":"delete","resource":"job","key":"k","if_version":"1" → ops[1].if_version has the wrong type`,
	`"op":"delete","resource":"job","key":"first" → ops[1]: record first of job is changed twice`,
	`"op":"put","resource":"job","key":"k","value":{"a":1,"a":2} → ops[1].value.a`,
	`"op":"put","key":"k","value":1 → ops[1]: resource`,
	`"op":"put","resource":"job","value":1 → ops[1]: key`,
	`"op":"put","resource":"job","key":"a//b","value":1 → ops[1]: key`,
}

func TestInvalidTransactions(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
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
		`{"fences":{},` + ops + `} → fences has the wrong type`,
		`{"fences":["job"],` + ops + `} → fences[0] has the wrong type`,
		`{` + fences + `,"ops":[1]} → ops[0] has the wrong type`,
		`{"fences":[null],` + ops + `} → fences[0]: resource`,
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
		`"resource":"job","fencing_token":-1 → fences[0]: fencing_token`,
		`"resource":"job","fencing_token":1e3 → fences[0].fencing_token`,
		`"resource":"job","fencing_token":34.2 → fences[0].fencing_token`,
		`"resource":"job","fencing_token":9007199254740992 → fences[0]: fencing_token`,
		`"resource":"job","fencing_token":"34" → fences[0].fencing_token`,
		`"resource":"job","fencing_token":1,"sequence":-1 → fences[0]: sequence`,
		`"resource":"job","fencing_token":1,"sequence":9007199254740992 → fences[0]: sequence`,
		`"resource":"job","fencing_token":1,"sequence":"2" → fences[0].sequence`,
		`"resource":"job","fencing_token":1,"lease_id":"x" → fences[0]: lease_id`,
		`"resource":"job","fencing_token":1,"lease_id":"" → fences[0]: lease_id`,
		`"resource":"a\u0000b","fencing_token":1 → fences[0]: resource`,
		`"resource":"a/fence","fencing_token":1 → fences[0]: resource`,
	} {
		fence, detail, _ := strings.Cut(line, " → ")
		lines = append(lines, `{"fences":[{`+fence+`}],`+ops+`} → `+detail)
	}
	h.expectRefusals(t, changeEach(jsonInputs("/v1/transactions", lines...), func(i *invalidInput) {
		_, subject, _ := strings.Cut(i.detail, "]")
		switch {
		case strings.Contains(i.detail, "twice"):
		case strings.HasPrefix(subject, ": resource"), strings.HasPrefix(subject, ": key"):
			i.code = api.CodeInvalidName
		case strings.Contains(subject, "fencing_token"), strings.Contains(subject, "sequence"):
			i.code = api.CodeInvalidToken
		}
	}))
}
