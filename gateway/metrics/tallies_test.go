package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencegate/fencegate/store"
)

// Many writes are added at once, to each bucket whose bound they do not exceed.
func TestTalliesCountManyWritesAtOnce(t *testing.T) {
	family := &Family{
		Name: "x", Help: "h", Labels: []Label{{Name: "code", Values: []string{"token_stale"}}}, Buckets: []float64{.5, 1, 2},
	}
	tallies := newTallies(family)
	second, minute := time.Second, time.Minute
	tallies.add(store.VerdictTokenStale, &second, 3) // on a bound
	tallies.add(store.VerdictTokenStale, &minute, 2) // above all bounds
	tallies.add(store.VerdictTokenStale, nil, 7)
	tallies.add(store.VerdictTokenUnknown, &second, 7)
	r := registry{prometheus.NewRegistry()}
	r.onScrape(tallies.show, family)
	shown, err := r.Gather()
	if err != nil || len(shown) != 1 || len(shown[0].GetMetric()) != 1 {
		t.Fatalf("gathered %v, %v; want one series", shown, err)
	}
	got := shown[0].GetMetric()[0].GetHistogram()
	if got.GetSampleCount() != 5 || got.GetSampleSum() != 3*1+2*60 {
		t.Errorf("counted %d writes of %v s, want 5 of together 123 s", got.GetSampleCount(), got.GetSampleSum())
	}
	for i, want := range []uint64{0, 3, 3} {
		if bucket := got.GetBucket()[i]; bucket.GetCumulativeCount() != want {
			t.Errorf("up to %v s are %d writes, want %d", bucket.GetUpperBound(), bucket.GetCumulativeCount(), want)
		}
	}
}
