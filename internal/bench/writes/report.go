package writes

import (
	"maps"

	"github.com/fencegate/fencegate/internal/bench"
)

// Report is a run: what was measured where, and every sample.
type Report struct {
	bench.Environment

	// Resources and Hot are how many are written to: many, and few.
	Resources int `json:"resources"`
	Hot       int `json:"hot"`
	// ValueBytes is the size of the values, where a sample does not say otherwise.
	ValueBytes int `json:"value_bytes"`
	// FlushDelayMS is by how much flushes were slowed where that was measured.
	FlushDelayMS float64 `json:"flush_delay_ms"`
	// Connections to the database, of the store and of the gateway; ConnectionsMax is what direct and handmade could have
	// had.
	Connections    int `json:"connections"`
	ConnectionsMax int `json:"connections_max"`

	bench.Participants
	// Failed are the measurements in which a write failed. They are missing from the samples.
	Failed []string `json:"failed"`

	Tunings []Tuning `json:"tunings"`
	Samples []Sample `json:"samples"`
}

// Line is a target in one case, over the rounds; Ratio is its rate to that of direct within each round, except among
// the refusals: there a zombie's is to the empty handler's, and that of honest writers to what they had alone.
type Line struct {
	Case

	Target                         string
	PerSecond, P50MS, P99MS, Ratio bench.Spread
	WALBytesPerWrite               bench.Spread
	CPUMicroseconds                map[string]bench.Spread
}

type lineKey struct {
	Case

	target string
}

// base is what the rate is compared with.
func (k lineKey) base() lineKey {
	switch {
	case k.Measure != Refusals && k.Measure != Dashboards:
		k.target = nameDirect
	case k.target == nameHTTP:
		k.Load = loadAlone
	default:
		k.target = nameFloor
	}
	return k
}

func (r Report) groups() bench.Groups[lineKey, Sample] {
	return bench.GroupBy(r.Samples, func(s Sample) lineKey { return lineKey{s.Case, s.Target} })
}

func perSecond(s Sample) float64 { return s.PerSecond }
func p50(s Sample) float64       { return s.P50MS }
func p99(s Sample) float64       { return s.P99MS }

// Lines summarizes the samples, in the order in which they were first made.
func (r Report) Lines() []Line {
	groups := r.groups()
	lines := make([]Line, len(groups.Keys))
	for i, k := range groups.Keys {
		rates := groups.Values(k, perSecond)
		lines[i] = Line{
			Case: k.Case, Target: k.target, PerSecond: bench.SpreadOf(rates),
			P50MS: bench.SpreadOf(groups.Values(k, p50)), P99MS: bench.SpreadOf(groups.Values(k, p99)),
			Ratio:            bench.SpreadOf(bench.Ratios(rates, groups.Values(k.base(), perSecond))),
			WALBytesPerWrite: bench.SpreadOf(groups.Values(k, func(s Sample) float64 { return s.WALBytesPerWrite })),
			CPUMicroseconds:  map[string]bench.Spread{},
		}
		for _, role := range []string{roleLoad, rolePostgres, roleGateway, rolePeer, nameFloor} {
			lines[i].CPUMicroseconds[role] = bench.SpreadOf(groups.Values(k,
				func(s Sample) float64 { return s.CPUMicroseconds[role] }))
		}
	}
	return lines
}

// Add puts another run's samples to those of this one: it was made with another database.
func (r *Report) Add(other Report) {
	r.Samples = append(r.Samples, other.Samples...)
	r.Tunings = append(r.Tunings, other.Tunings...)
	r.FlushDelayMS = max(r.FlushDelayMS, other.FlushDelayMS)
	r.Failed = append(r.Failed, other.Failed...)
	maps.Copy(r.Skipped, other.Skipped)
}
