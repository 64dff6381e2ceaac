package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// What is wrong with a line is said of that line, naming the field, and the next one is taken.
func TestBulkBadLines(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	line := func(more string) string {
		return fmt.Sprintf(`{"op":"put","resource":"job","key":"k","fencing_token":%d%s}`, lease.FencingToken, more)
	}
	inputs := []struct {
		text, detail string
		code         api.Code
	}{
		{`{`, "not JSON", ""},
		{`x`, "must be a JSON object", ""},
		{`null`, "must be a JSON object", ""},
		{`[` + line(`,"value":1`) + `]`, "must be a JSON object", ""},
		{line(`,"value":1`) + line(`,"value":1`), "not JSON", ""},
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
		{strings.Replace(line(`,"value":1`), `"op":"put"`, `"op":"upsert"`, 1), `op is "upsert"`, ""},
		{strings.Replace(line(`,"value":1`), `"op":"put"`, `"op":"delete"`, 1), "a delete has no value", ""},
		{strings.Replace(line(`,"value":1`), `"resource":"job"`, `"resource":"a/fence"`, 1), "resource", api.CodeInvalidName},
		{strings.Replace(line(`,"value":1`), `"key":"k"`, `"key":"a//b"`, 1), "key", api.CodeInvalidName},
		{strings.Replace(line(`,"value":1`), `"fencing_token":`, `"fencing_token":-`, 1), "fencing_token", api.CodeInvalidToken},
	}
	var body strings.Builder
	for i, input := range inputs {
		body.WriteString(input.text + "\n" + putLine(lease, int64(i)+1, "k", "1"))
	}
	verdicts, _ := h.bulk(t, body.String())
	if len(verdicts) != 2*len(inputs) {
		t.Fatalf("%d verdicts on %d lines", len(verdicts), 2*len(inputs))
	}
	for i, input := range inputs {
		got := verdicts[2*i]
		if input.code == "" {
			input.code = api.CodeInvalidRequest
		}
		if got.Status != 400 || got.Code != input.code || !strings.Contains(got.Detail, input.detail) || got.Retryable {
			t.Errorf("%s: %s, want %s with %q", input.text, got.text, input.code, input.detail)
		}
		if got := verdicts[2*i+1]; got.Code != "" {
			t.Errorf("after %s: %s", input.text, got.text)
		}
	}
}

// A line without a token is judged by the rule, and recorded, like any write that the rule rejects.
func TestBulkRejectionsAreRecorded(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	h.release(t, lease)
	verdicts, _ := h.bulk(t, `{"op":"put","resource":"job","key":"k","value":1}`+"\n"+putLine(lease, 1, "k", "1")+putLine(lease, 2, "k", "1"))
	if verdicts[0].Code != api.CodeTokenRequired || verdicts[0].Status != 428 || verdicts[1].Reason != "released" || verdicts[2].Reason != "released" {
		t.Errorf("the verdicts are %v", verdicts)
	}
	counts := map[api.Code]int64{}
	for _, rejection := range h.rejections(t, "").Rejections {
		counts[rejection.Code] += rejection.Count
	}
	if counts[api.CodeTokenRequired] != 1 || counts[api.CodeTokenStale] != 2 {
		t.Errorf("recorded are %v", counts)
	}
	metrics, _ := h.scrape(t)
	for result, want := range map[string]float64{"token_required": 1, "token_stale": 2} {
		if got := metrics.value("fencegate_writes_total", "source", "bulk", "result", result); got != want {
			t.Errorf("counted are %v writes that were %s, want %v", got, result, want)
		}
	}
}

// A line over the limit is skipped, wherever its parts come, and the next one is taken.
func TestBulkLongLines(t *testing.T) {
	const limit = 2048
	h := newHarness(t, Config{BodyBytesMax: limit})
	lease := h.acquire(t, "job", "worker")
	fits := strings.Repeat("x", limit-2)
	for i, body := range []string{
		putLine(lease, 1, "k", `"`+fits+`x"`),
		strings.Repeat("x", 200_000) + "\n",
		strings.Repeat(" ", 200_000) + putLine(lease, 1, "k", "1"),
		strings.Repeat("x", 200_000), // and no end
	} {
		rest := putLine(lease, int64(i)+2, "k", `"`+fits+`"`)
		if !strings.HasSuffix(body, "\n") {
			rest = ""
		}
		verdicts, end := h.bulk(t, body+rest)
		if got := verdicts[0]; got.Line != 1 || got.Status != 413 || got.Code != api.CodeTooLarge || !strings.Contains(got.Detail, "2048 bytes (--body-bytes-max)") {
			t.Errorf("body %d: %s", i, got.text)
		}
		if rest != "" && (len(verdicts) != 2 || verdicts[1].Code != "" || verdicts[1].Line != 2) || end.End != api.BulkComplete {
			t.Errorf("body %d: after it %v %s", i, verdicts[1:], end.text)
		}
	}
	over := fmt.Sprintf(`{"op":"put","resource":"job","key":"k","fencing_token":%d,"sequence":9,"value_base64":"%sAA=="}`, lease.FencingToken, strings.Repeat("AAAA", (limit+2)/3))
	if verdicts, _ := h.bulk(t, over); verdicts[0].Code != api.CodeTooLarge {
		t.Errorf("a value over the limit, in base64: %s", verdicts[0].text)
	}
}
