package gateway

import (
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// Every recorded rejection counts with its lateness and the age of its token, as far as its lease is known.
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
	none := map[string][2]float64{
		"token_stale": {}, "lease_mismatch": {}, "lease_expired": {}, "version_mismatch": {}, "token_unknown": {-1, -1},
	}
	expect("before all", none)

	zombie, current := h.zombie(t, "job")
	for sequence := range int64(5) {
		expectProblem(t, h.put(t, zombie, sequence+1, "late"), api.CodeTokenStale)
	}
	expectProblem(t, h.putWith(t, "job", token(current, 2), `If-Match: "7"`), api.CodeVersionMismatch)
	expectProblem(t, h.putWith(t, "job", "Fencing-Token: 9007199254740991"), api.CodeTokenUnknown)
	expect("before the record", none)
	h.record(t)
	expect("after it", map[string][2]float64{
		"token_stale": {5, 5}, "lease_mismatch": {}, "version_mismatch": {0, 1}, "token_unknown": {-1, -1},
	})

	metrics, _ := h.scrape(t)
	histogram := metrics.metric(late, "code", "token_stale").GetHistogram()
	if sum := histogram.GetSampleSum(); sum < 5*3600 || sum > 5*7200 {
		t.Errorf("together they were late by %v s, want 5 times an hour and a little", sum)
	}
	for _, bucket := range histogram.GetBucket() {
		count, bound := bucket.GetCumulativeCount(), bucket.GetUpperBound()
		if bound < 3600 && count != 0 || bound > 7200 && count != 5 {
			t.Errorf("%d writes were late by up to %v s, want none up to 3600 s and 5 up to 7200 s", count, bound)
		}
	}
}
