package gateway

import (
	"bytes"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/store"
)

// hostileWords are words that a client may send for anything; each round has others of the same kinds.
func hostileWords(round string) []string {
	return []string{
		"ZANZIBAR" + round, "zanzibar-" + round, "zanzibar\n" + round, `zanzibar"}` + round, "zanzibar\u202e" + round,
		"zanzibar\x00" + round,
		strings.Repeat("zanzibar", 100) + round, "<img src=zanzibar onerror=alert(1)>" + round,
	}
}

// Whatever clients send, the number of series stays the same, and labels have the values that docs/metrics.md lists.
func TestMetricLabelsAreBounded(t *testing.T) {
	h := newHarness(t, Config{})
	for _, word := range hostileWords("A") {
		h.beHostile(t, word)
	}
	h.scrape(t) // its own
	before, _ := h.scrape(t)
	for _, word := range hostileWords("B") {
		h.beHostile(t, word)
	}
	after, text := h.scrape(t)
	if before, after := before.series(), after.series(); after != before {
		t.Errorf("there were %d series and are %d", before, after)
	}
	if bytes.Contains(bytes.ToLower(text), []byte("zanzibar")) {
		t.Error("something that a client sent has become a label")
	}
	declared := map[string]*metrics.Family{}
	for _, f := range metrics.Families() {
		declared[f.Name] = f
	}
	for name, shown := range after {
		if strings.HasPrefix(name, "fencegate_") {
			expectDeclared(t, declared[name], shown)
		}
	}
}

// expectDeclared holds a family that is shown against its declaration.
func expectDeclared(t *testing.T, declared *metrics.Family, shown *dto.MetricFamily) {
	t.Helper()
	if declared == nil {
		t.Errorf("%s is not declared", shown.GetName())
		return
	}
	kind := strings.ToLower(shown.GetType().String())
	if kind != string(declared.Kind) || shown.GetHelp() != declared.Help {
		t.Errorf("%s is a %s, %q, want a %s, %q", declared.Name, kind, shown.GetHelp(), declared.Kind, declared.Help)
	}
	for _, metric := range shown.GetMetric() {
		if len(metric.GetLabel()) != len(declared.Labels) {
			t.Errorf("%s has the labels %v", declared.Name, metric.GetLabel())
		}
		for _, label := range declared.Labels {
			for _, pair := range metric.GetLabel() {
				if pair.GetName() == label.Name && label.Open == "" && !slices.Contains(label.Values, pair.GetValue()) {
					t.Errorf("%s{%s=%q} is not declared", declared.Name, label.Name, pair.GetValue())
				}
			}
		}
	}
}

func (s scraped) series() (total int) {
	for _, family := range s {
		if strings.HasPrefix(family.GetName(), "fencegate_") {
			total += len(family.GetMetric())
		}
	}
	return total
}

// beHostile sends the word wherever one can be sent.
func (h *harness) beHostile(t *testing.T, word string) {
	t.Helper()
	method := word
	if strings.ContainsFunc(word, func(c rune) bool { return c < 'A' || c > 'z' }) {
		method = http.MethodPatch // the word can't be a method
	}
	escaped, query := url.PathEscape(word), url.QueryEscape(word)
	for _, path := range []string{
		"/" + escaped, lockPath(word, ""), lockPath(word, "/"+escaped), recordPath(word, word), "/v1/sessions/" + escaped,
		"/v1/elections/" + escaped, "/v1/policies/" + escaped, "/v1/rejections?code=" + query, "/v1/locks?state=" + query,
	} {
		h.send(t, method, path, "")
		h.get(t, path)
	}
	for _, body := range []api.AcquireRequest{{OwnerID: word}, {OwnerID: "w", Mode: word}, {OwnerID: "w", Scope: word}} {
		h.post(t, lockPath(word, "/acquire"), encode(body))
	}
	lease := api.Lease{Lock: word, OwnerID: word, LeaseID: word, FencingToken: 1}
	for _, action := range []string{"/renew", "/release", "/break"} {
		h.post(t, lockPath(word, action), refOf(lease))
	}
	h.put(t, lease, 1, word)
	h.putWith(t, "r", "Fencing-Token: 1", "Content-Type: "+strings.Map(inHeader, word))
	h.bulk(t, encode(api.BulkWrite{Op: word, Resource: word, Key: word})+"\n")
	rejected := &store.RejectedError{Verdict: store.VerdictTokenStale, Resource: store.Name(word), Token: 1}
	h.recorder.Record(rejected, metrics.SourceHTTP, "test", "")
}

// inHeader drops what a header can't have.
func inHeader(c rune) rune {
	if c < ' ' || c > '~' {
		return -1
	}
	return c
}

// Each source counts and records its own writes.
func TestMetricsOfSources(t *testing.T) {
	h := newHarness(t, Config{})
	zombie, current := h.zombie(t, "job")
	as[api.WriteResult](t, h.put(t, current, 1, "x"), http.StatusCreated)
	expectProblem(t, h.put(t, zombie, 1, "x"), api.CodeTokenStale)
	tokenless := `{"op":"put","resource":"job","key":"k","value":1}` + "\n"
	h.bulk(t, putLine(current, 2, "k", "1")+putLine(zombie, 2, "k", "1")+putLine(current, 3, "k", "1")+"no JSON\n"+
		tokenless)
	as[api.TransactionResult](t, h.post(t, "/v1/transactions", transaction(current, 4)), http.StatusOK)
	expectProblem(t, h.post(t, "/v1/transactions", transaction(zombie, 3)), api.CodeTokenStale)
	const writes = "fencegate_writes_total"
	metrics, _ := h.scrape(t)
	metrics.want(t, []wanted{
		{1, writes, "source http result accepted"},
		{1, writes, "source http result token_stale"},
		{2, writes, "source bulk result accepted"},
		{1, writes, "source bulk result token_stale"},
		{1, writes, "source bulk result token_required"},
		{1, writes, "source transaction result accepted"},
		{1, writes, "source transaction result token_stale"},
		{0, writes, "source transaction result unavailable"},
		{-1, writes, "source bulk result invalid_request"}, // what is no write is not counted
	})
	recorded := map[string]int64{}
	for _, rejection := range h.rejections(t, "").Rejections {
		recorded[rejection.Source] += rejection.Count
	}
	if want := map[string]int64{"http": 1, "bulk": 2, "transaction": 1}; !maps.Equal(recorded, want) {
		t.Errorf("the recorded rejections by source are %v, want %v", recorded, want)
	}
}
