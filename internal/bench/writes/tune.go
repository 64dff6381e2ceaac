package writes

import (
	"context"
	"slices"

	"github.com/fencegate/fencegate/internal/bench"
)

// Tuning is how a target came by its number of connections.
type Tuning struct {
	Target     string `json:"target"`
	Clients    int    `json:"clients"`
	Resources  int    `json:"resources"`
	ValueBytes int    `json:"value_bytes"`
	// PerSecond are the writes per second with each number of connections that was tried.
	PerSecond map[int]float64 `json:"per_second"`
	Chosen    int             `json:"chosen"`
}

// candidates are the numbers of connections to try: those that the target names below the number of clients, and one a
// client, if the database lets it.
func (t target) candidates(clients, limit int) []int {
	var all []int
	for _, connections := range t.tuned {
		if connections < clients && connections <= limit {
			all = append(all, connections)
		}
	}
	return append(all, min(clients, limit))
}

// tuneShare of the duration of a measurement is what each number of connections gets, twice: once upwards, once
// downwards, so that what drifts on the machine favours none.
const tuneShare = 4

// tuned is the setting with the number of connections with which the target writes most, where it has a choice.
func (r *rig) tuned(ctx context.Context, t target, s setting) (setting, error) {
	if t.tuned == nil {
		return s, nil
	}
	tuning := Tuning{
		Target: t.name, Clients: s.clients, Resources: len(s.layout.resources), ValueBytes: s.valueBytes,
		PerSecond: map[int]float64{},
	}
	for _, known := range r.report.Tunings {
		if known.Target == tuning.Target && known.Clients == tuning.Clients && known.Resources == tuning.Resources &&
			known.ValueBytes == tuning.ValueBytes {
			s.connections = known.Chosen
			return s, nil
		}
	}
	candidates := t.candidates(s.clients, r.connectionsMax)
	rates := map[int][]float64{}
	for range 2 {
		for _, connections := range candidates {
			s.connections = connections
			if len(candidates) == 1 {
				return s, nil
			}
			share := r.config.Duration / tuneShare
			sample, err := measurement{target: t, setting: s, warmUp: share / 2, duration: share}.run(ctx, r.control)
			if err != nil {
				return s, err
			}
			rates[connections] = append(rates[connections], sample.PerSecond)
		}
		slices.Reverse(candidates)
	}
	for _, connections := range candidates {
		tuning.PerSecond[connections] = bench.SpreadOf(rates[connections]).Median
		if tuning.PerSecond[connections] > tuning.PerSecond[tuning.Chosen] {
			tuning.Chosen = connections
		}
	}
	r.config.progress("%d clients, %d resources, %d bytes: %s does best with %d connections of %v",
		s.clients, tuning.Resources, s.valueBytes, t.name, tuning.Chosen, candidates)
	r.report.Tunings = append(r.report.Tunings, tuning)
	s.connections = tuning.Chosen
	return s, nil
}
