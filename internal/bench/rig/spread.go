package rig

import (
	"math"
	"slices"
	"time"
)

// Spread is what the rounds of one measurement come to. Without any round all three are NaN.
type Spread struct {
	Median, Low, High float64
}

// SpreadOf summarizes one value a round.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return Spread{Median: median, Low: sorted[0], High: sorted[len(sorted)-1]}
}

// Percentile is the smallest of the sorted latencies that at least the share p of them (0 to 1) does not exceed, in
// milliseconds; 0 where there are none.
func Percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return float64(sorted[min(max(rank, 1), len(sorted))-1].Microseconds()) / 1000
}
