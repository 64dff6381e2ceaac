package writes

import (
	"context"
	"slices"
)

// What the clients of the measurement of latencies do.
const (
	loadFull       = "as fast as they can"
	loadHalf       = "at half of that"
	loadHalfDirect = "at half of direct's rate"
)

// latency measures what a write takes when the load is a given one and not what the clients can: half of what the
// target can, which is found first, and half of what direct can, for all alike. See bench.RepeatAtRate for what is
// counted.
func (r *rig) latency(ctx context.Context) error {
	targets := r.only(nameDirect, nameHandmade, nameStore, nameHTTP)
	l := r.layouts[0]
	if err := r.prime(ctx, l); err != nil {
		return err
	}
	for round := range r.config.Rounds {
		direct := 0.0
		for _, t := range targets {
			s, err := r.tuned(ctx, t, r.setting(l, r.someClients()))
			if err != nil {
				return err
			}
			full := r.measurement(t, s)
			sample, err := r.sample(ctx, full, Case{Measure: Latency, Load: loadFull}, round+1)
			if err != nil {
				return err
			}
			if t.name == nameDirect {
				direct = sample.PerSecond
			}
			for _, at := range []struct {
				load string
				rate float64
			}{{loadHalf, sample.PerSecond / 2}, {loadHalfDirect, direct / 2}} {
				if at.rate == 0 {
					continue // direct takes no part
				}
				open := full
				open.rate = at.rate
				if _, err := r.sample(ctx, open, Case{Measure: Latency, Load: at.load}, round+1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// someClientsMax write where the number of clients is not what is measured.
const someClientsMax = 64

func (r *rig) someClients() int { return min(someClientsMax, slices.Max(r.config.Clients)) }

// only are those of the targets that take part.
func (r *rig) only(names ...string) []target {
	var targets []target
	for _, name := range names {
		if i := slices.IndexFunc(r.targets, func(t target) bool { return t.name == name }); i >= 0 {
			targets = append(targets, r.targets[i])
		}
	}
	return targets
}
