package tables

import (
	"fmt"
	"io"

	"github.com/fencegate/fencegate/internal/bench"
)

// Goals compares what was measured with them. Each figure is a ratio within one round; the median over the rounds
// counts.
func (r Report) Goals() []bench.Goal {
	groups := r.groups()
	limits := []struct {
		clients int
		limit   float64
	}{{1, 0.68}, {8, 0.55}, {64, 0.62}}
	if !r.freeFlush() {
		limits = limits[2:]
		limits[0].limit = 0.85
	}
	var goals []bench.Goal
	for _, measure := range []string{Writes, Pgbench} {
		for _, l := range limits {
			k := lineKey{Case{Measure: measure, Clients: l.clients}, nameProtected}
			goals = append(goals, bench.Goal{Name: fmt.Sprintf("%s, %d clients: protected / bare", measure, l.clients),
				Limit: l.limit, Figure: ratioOf(groups, k, perSecond)})
		}
	}
	for _, k := range groups.Keys {
		goal := bench.Goal{Name: fmt.Sprintf("%s: %s / %s", k.Case, k.target, k.base().target)}
		switch {
		case k == k.base():
			continue
		case k.Measure == Five:
			goal.Limit, goal.Figure = 0.85, ratioOf(groups, k, perSecond)
		case k.target == bulkTable(protectedTable):
			goal.Limit, goal.AtMost, goal.Figure = 1.3, true, ratioOf(groups, k, took)
			if k.Resources == 1 {
				goal.Limit = 1.1
			}
		default:
			continue
		}
		goals = append(goals, goal)
	}
	return append(goals, r.scansGoal())
}

// scansGoal is that no statement reads all of a table.
func (r Report) scansGoal() bench.Goal {
	var all []float64
	if len(r.Scans) > 0 {
		all = []float64{0}
	}
	for _, s := range r.Scans {
		all[0] += float64(s.Sequential)
	}
	return bench.Goal{Name: "plans: sequential scans of the fences or of a protected table", AtMost: true,
		Figure: bench.SpreadOf(all)}
}

// WriteGoals writes the goals as measured.
func (r Report) WriteGoals(out io.Writer) error { return bench.WriteGoals(out, r.Goals()) }
