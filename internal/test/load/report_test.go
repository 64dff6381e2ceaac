package load

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestPercentilesAreWithinThreePercent(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var l latencies
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(random.ExpFloat64() * float64(20*time.Millisecond)).Truncate(time.Microsecond)
		l.add(d)
		all = append(all, d)
	}
	slices.Sort(all)
	for _, p := range []float64{0.01, 0.5, 0.99, 1} {
		exact := float64(all[max(1, int(p*float64(len(all))))-1].Microseconds()) / 1000
		if got := l.percentile(p); got < exact || got > exact*1.04+0.001 {
			t.Errorf("the %g percentile is %g ms, want %g", 100*p, got, exact)
		}
	}
	if got := (&latencies{}).percentile(0.5); got != 0 {
		t.Errorf("of nothing the median is %g", got)
	}
}
