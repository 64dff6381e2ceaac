package gateway

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// The verdict on an invalid line names the field. The next line is taken.
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
		{line(`,"value":1,"value_base64":""`), "a put has either value", ""},
		{line(`,"value":1,"content_type":"text/plain"`), "content_type goes with value_base64", ""},
		{line(`,"value_base64":"*"`), "value_base64 is not base64", ""},
		{line(`,"value_base64":"ew==","content_type":"application/json"`), "value_base64 is not JSON", ""},
		{line(`,"value_base64":"","content_type":"/"`), "content type", ""},
		{line(`,"value":1,"if_version":-1`), "if_version is -1", ""},
		{line(`,"value":1,"sequence":-1`), "sequence", api.CodeInvalidToken},
		{line(`,"value":1,"sequence":"2"`), "sequence", api.CodeInvalidToken},
		{line(`,"value":1,"lease_id":"x"`), "lease_id", ""},
		{replaced(`"op":"put"`, `"op":"upsert"`), `op is "upsert"`, ""},
		{replaced(`"op":"put"`, `"op":"delete"`), "a delete has no value", ""},
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

// Lines that the rule rejects are recorded and counted, also those without a token.
func TestBulkRejectionsAreRecorded(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	h.release(t, lease)
	tokenless := `{"op":"put","resource":"job","key":"k","value":1}` + "\n"
	verdicts, _ := h.bulk(t, tokenless+putLine(lease, 1, "k", "1")+putLine(lease, 2, "k", "1"))
	if verdicts[0].Code != api.CodeTokenRequired || verdicts[0].Status != 428 ||
		verdicts[1].Reason != "released" || verdicts[2].Reason != "released" {
		t.Errorf("the verdicts are %v, want token_required and twice released", verdicts)
	}
	counts := map[api.Code]int64{}
	for _, rejection := range h.rejections(t, "").Rejections {
		counts[rejection.Code] += rejection.Count
	}
	if counts[api.CodeTokenRequired] != 1 || counts[api.CodeTokenStale] != 2 {
		t.Errorf("the recorded rejections are %v, want 1 token_required and 2 token_stale", counts)
	}
	metrics, _ := h.scrape(t)
	metrics.want(t, []wanted{
		{1, "fencegate_writes_total", "source bulk result token_required"},
		{2, "fencegate_writes_total", "source bulk result token_stale"},
	})
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
