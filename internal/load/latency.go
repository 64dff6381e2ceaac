package load

import (
	"math"
	"math/bits"
	"time"
)

// stepBits gives every power of two this many bits of steps: a latency is accurate within 1/32, 3%.
const stepBits = 5

// latencies counts durations in steps of microseconds. Its size does not depend on how many there are.
type latencies struct {
	steps [(64 - stepBits) << stepBits]int64
	count int64
}

func (l *latencies) add(d time.Duration) {
	l.steps[stepOf(d)]++
	l.count++
}

// percentile is the end of the step that the share p (0 to 1) does not exceed, in milliseconds; 0 where there are none.
func (l *latencies) percentile(p float64) float64 {
	rank := max(1, int64(math.Ceil(p*float64(l.count))))
	seen := int64(0)
	for step, count := range l.steps {
		seen += count
		if seen >= rank {
			return float64(stepEnd(step)) / 1000
		}
	}
	return 0
}

// stepOf numbers the steps: below 2^stepBits each microsecond is one, from then on a step doubles with every power of
// two.
func stepOf(d time.Duration) int {
	us := uint64(max(0, d.Microseconds()))
	shift := max(0, bits.Len64(us)-stepBits-1)
	return shift<<stepBits + int(us>>shift)
}

// stepEnd is the greatest number of microseconds in a step.
func stepEnd(step int) int64 {
	shift := max(0, step>>stepBits-1)
	return int64(step-shift<<stepBits+1)<<shift - 1
}
