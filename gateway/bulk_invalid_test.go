package gateway

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// The verdict on an invalid line names the field. The next line is taken. TestInvalidTransactions has the values that
// operations and tokens must not have.
func TestBulkInvalidLines(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	line := func(more string) string {
		return fmt.Sprintf(`{"op":"put","resource":"job","key":"k","fencing_token":%d%s}`, lease.FencingToken, more)
	}
	good := line(`,"value":1`)
	replaced := func(old, with string) string { return strings.Replace(good, old, with, 1) }
	inputs := []struct {
		text, detail string
		code         api.Code
	}{
		{`{`, "not JSON", ""},
		{`x`, "must be a JSON object", ""},
		{`null`, "must be a JSON object", ""},
		{`[` + good + `]`, "must be a JSON object", ""},
		{good + good, "not JSON", ""},
		{`{}`, "resource", api.CodeInvalidName},
		{line(`,"value":1,"if_match":1`), "no field if_match", ""},
		{line(`,"value":1,"key":"l"`), "key is there twice", ""},
		{line(`,"value":{"a":1,"a":2}`), "value.a is there twice", ""},
		{line(`,"value":"` + "\xff" + `"`), "value", ""},
		{line(``), "a put has either value", ""},
		{line(`,"value":1,"sequence":"2"`), "sequence", api.CodeInvalidToken},
		{replaced(`"op":"put"`, `"op":"upsert"`), `op is "upsert"`, ""},
		{replaced(`"resource":"job"`, `"resource":"a/fence"`), "resource", api.CodeInvalidName},
		{replaced(`"key":"k"`, `"key":"a//b"`), "key", api.CodeInvalidName},
		{replaced(`"fencing_token":`, `"fencing_token":-`), "fencing_token", api.CodeInvalidToken},
	}
	var body strings.Builder
	for i, input := range inputs {
		body.WriteString(input.text + "\n" + putLine(lease, int64(i)+1, "k", "1"))
	}
	verdicts, _ := h.bulk(t, body.String())
	if len(verdicts) != 2*len(inputs) {
		t.Fatalf("received %d verdicts on %d lines", len(verdicts), 2*len(inputs))
	}
	for i, input := range inputs {
		got, code := verdicts[2*i], cmp.Or(input.code, api.CodeInvalidRequest)
		if got.Status != 400 || got.Code != code || !strings.Contains(got.Detail, input.detail) || got.Retryable {
			t.Errorf("%s: the verdict is %s, want %s with %q", input.text, got.text, code, input.detail)
		}
		if next := verdicts[2*i+1]; next.Code != "" {
			t.Errorf("the verdict on the line after %s is %s, want it admitted", input.text, next.text)
		}
	}
}

// A line over the limit is skipped, in however many parts it arrives. The next line is taken.
func TestBulkLongLines(t *testing.T) {
	const limit = 2048
	h := newHarness(t, Config{BodyBytesMax: limit})
	lease := h.acquire(t, "job", "worker")
	fits := strings.Repeat("x", limit-2)
	for i, body := range []string{
		putLine(lease, 1, "k", `"`+fits+`x"`),
		strings.Repeat("x", 200_000) + "\n",
		strings.Repeat(" ", 200_000) + putLine(lease, 1, "k", "1"),
		strings.Repeat("x", 200_000), // without an end
	} {
		rest := putLine(lease, int64(i)+2, "k", `"`+fits+`"`)
		if !strings.HasSuffix(body, "\n") {
			rest = ""
		}
		verdicts, end := h.bulk(t, body+rest)
		if got := verdicts[0]; got.Line != 1 || got.Status != 413 || got.Code != api.CodeTooLarge ||
			!strings.Contains(got.Detail, "2048 bytes (--body-bytes-max)") {
			t.Errorf("body %d: the verdict is %s, want too_large", i, got.text)
		}
		if rest != "" && (len(verdicts) != 2 || verdicts[1].Code != "" || verdicts[1].Line != 2) ||
			end.End != api.BulkComplete {
			t.Errorf("body %d: then came %v %s, want the next line admitted", i, verdicts[1:], end.text)
		}
	}
	over := fmt.Sprintf(`{"op":"put","resource":"job","key":"k","fencing_token":%d,"sequence":9,"value_base64":"%sAA=="}`,
		lease.FencingToken, strings.Repeat("AAAA", (limit+2)/3))
	if verdicts, _ := h.bulk(t, over); verdicts[0].Code != api.CodeTooLarge {
		t.Errorf("the verdict on base64 of more than the limit is %s, want too_large", verdicts[0].text)
	}
}
