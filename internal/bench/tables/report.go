package tables

import (
	"fmt"

	"github.com/fencegate/fencegate/internal/bench"
)

// Report is a run: what was measured where, and every sample.
type Report struct {
	bench.Environment
	bench.Participants

	Samples []Sample `json:"samples"`
	Scans   []Scans  `json:"scans"`
}

// Case is the circumstances of a measurement; targets are compared within one.
type Case struct {
	Measure string `json:"measure"`
	Clients int    `json:"clients"`
	// Rows and Resources are what one statement updates, in bulk.
	Rows      int `json:"rows,omitempty"`
	Resources int `json:"resources,omitempty"`
}

func (c Case) String() string {
	if c.Measure == Bulk {
		return fmt.Sprintf("%s: %d rows of %d resources", c.Measure, c.Rows, c.Resources)
	}
	return fmt.Sprintf("%s, %d clients", c.Measure, c.Clients)
}

// Sample is one measurement of one target.
type Sample struct {
	Case

	Target    string  `json:"target"`
	Round     int     `json:"round"`
	PerSecond float64 `json:"per_second"`
	// Milliseconds are the time of a statement in bulk, and else the time of all by the number of transactions.
	Milliseconds float64 `json:"ms"`
	P50MS        float64 `json:"p50_ms,omitempty"`
	P99MS        float64 `json:"p99_ms,omitempty"`
	// CPUMicroseconds are PostgreSQL's for a transaction; 0 where they are not known.
	CPUMicroseconds float64 `json:"cpu_us,omitempty"`
}

// Line is a target in one case, over the rounds. Ratio is its rate, TimeRatio its time and CPURatio its CPU time to
// that of its base within each round.
type Line struct {
	Case

	Target                              string
	PerSecond, Milliseconds, P99MS, CPU bench.Spread
	Ratio, TimeRatio, CPURatio          bench.Spread
}

type lineKey struct {
	Case

	target string
}

// base is what the target is compared with.
func (k lineKey) base() lineKey {
	switch {
	case k.Measure == Writes || k.Measure == Pgbench:
		k.target = nameBare
	case k.target == nameFiveProtected:
		k.target = nameFive
	case k.target == nameFiveStepsProtected:
		k.target = nameFiveSteps
	case k.target == bulkTable(partitionedProtectedTable) || k.target == guardsOf(partitionedProtectedTable):
		k.target = bulkTable(partitionedTable)
	case k.Measure == Bulk && k.target != bulkTable(partitionedTable):
		k.target = bulkTable(plainTable)
	}
	return k
}

func (r Report) groups() bench.Groups[lineKey, Sample] {
	return bench.GroupBy(r.Samples, func(s Sample) lineKey { return lineKey{s.Case, s.Target} })
}

func perSecond(s Sample) float64 { return s.PerSecond }
func took(s Sample) float64      { return s.Milliseconds }
func cpu(s Sample) float64       { return s.CPUMicroseconds }
func p99(s Sample) float64       { return s.P99MS }

// Lines summarizes the samples, in the order in which they were first made.
func (r Report) Lines() []Line {
	groups := r.groups()
	lines := make([]Line, len(groups.Keys))
	for i, k := range groups.Keys {
		of := func(value func(Sample) float64) bench.Spread { return bench.SpreadOf(groups.Values(k, value)) }
		ratio := func(value func(Sample) float64) bench.Spread { return ratioOf(groups, k, value) }
		lines[i] = Line{
			Case: k.Case, Target: k.target,
			PerSecond: of(perSecond), Milliseconds: of(took), P99MS: of(p99), CPU: of(cpu),
			Ratio: ratio(perSecond), TimeRatio: ratio(took), CPURatio: ratio(cpu),
		}
	}
	return lines
}

// ratioOf compares a target with its base, round by round.
func ratioOf(groups bench.Groups[lineKey, Sample], k lineKey, value func(Sample) float64) bench.Spread {
	return bench.SpreadOf(bench.Ratios(groups.Values(k, value), groups.Values(k.base(), value)))
}
