package locks

import (
	"fmt"
	"io"

	"github.com/fencegate/fencegate/internal/bench"
)

// Goals compares what was measured with them. A ratio is taken within one round; the median over the rounds counts.
func (r Report) Goals() []bench.Goal {
	unmeasured := bench.SpreadOf(nil)
	lines := r.CycleLines()
	cycles := func(locks string, clients int) CycleLine {
		for _, line := range lines {
			if line.Service == nameFencegate && line.Locks == locks && line.Clients == clients {
				return line
			}
		}
		return CycleLine{PerSecond: unmeasured, Ratio: unmeasured}
	}
	var goals []bench.Goal
	for _, own := range []struct {
		clients int
		limit   float64
	}{{1, 1}, {8, 1}, {64, 1.7}} {
		goals = append(goals, bench.Goal{Name: fmt.Sprintf("a lock each, %d clients: fencegate / etcd", own.clients),
			Limit: own.limit, Figure: cycles(OwnLocks, own.clients).Ratio})
	}
	goals = append(goals, bench.Goal{Name: "one lock, 64 clients: cycles/s", Limit: 3000,
		Figure: cycles(OneLock, 64).PerSecond})
	drained := bench.Goal{Name: "waiters of one lock: grants/s while they drain", Limit: 4000, Figure: unmeasured}
	for _, line := range r.CrowdLines() {
		if line.Figure == grantsPerSecond {
			drained.Figure = line.Spread
		}
	}
	return append(goals, drained)
}

// WriteGoals writes the goals as measured.
func (r Report) WriteGoals(out io.Writer) error { return bench.WriteGoals(out, r.Goals()) }
