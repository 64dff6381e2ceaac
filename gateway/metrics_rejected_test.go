package gateway

import (
	"net/http"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// Every rejected write counts with how late it was and how old its token, as far as its lease is known; not before it is recorded.
func TestMetricsOfRejectedWrites(t *testing.T) {
	const late, age = "fencegate_rejected_write_lateness_seconds", "fencegate_rejected_token_age_seconds"
	h := newHarness(t, Config{})
	expect := func(when string, want map[string][2]float64) {
		t.Helper()
		metrics, _ := h.scrape(t)
		for code, counts := range want {
			if got := [2]float64{metrics.value(late, "code", code), metrics.value(age, "code", code)}; got != counts {
				t.Errorf("%s, of %s are late and have an age: %v, want %v", when, code, got, counts)
			}
		}
	}
	none := map[string][2]float64{"token_stale": {}, "lease_mismatch": {}, "lease_expired": {}, "version_mismatch": {}, "token_unknown": {-1, -1}}
	expect("before all", none)

	zombie, current := h.zombie(t, "job")
	for sequence := range int64(5) {
		expectProblem(t, h.put(t, zombie, sequence+1, "late"), api.CodeTokenStale)
	}
	path := recordPath("job", "k")
	expectProblem(t, h.send(t, http.MethodPut, path, "x", token(current, 2), `If-Match: "7"`), api.CodeVersionMismatch)
	expectProblem(t, h.send(t, http.MethodPut, path, "x", "Fencing-Token: 9007199254740991"), api.CodeTokenUnknown)
	expect("before the record", none)
	h.record(t)
	expect("after it", map[string][2]float64{"token_stale": {5, 5}, "lease_mismatch": {}, "version_mismatch": {0, 1}, "token_unknown": {-1, -1}})

	metrics, _ := h.scrape(t)
	for _, metric := range metrics[late].GetMetric() {
		histogram := metric.GetHistogram()
		if metric.GetLabel()[0].GetValue() != "token_stale" {
			continue
		}
		// An hour, and a little more.
		if sum := histogram.GetSampleSum(); sum < 5*3600 || sum > 5*7200 {
			t.Errorf("together they were late by %v s", sum)
		}
		for _, bucket := range histogram.GetBucket() {
			if counted := bucket.GetCumulativeCount(); bucket.GetUpperBound() < 3600 && counted != 0 || bucket.GetUpperBound() > 7200 && counted != 5 {
				t.Errorf("up to %v s are %d", bucket.GetUpperBound(), counted)
			}
		}
	}
}
