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
func (r *rig) latency(ctx context.Context, report *Report) error {
	targets := r.only(nameDirect, nameHandmade, nameStore, nameHTTP)
	l := r.layouts[0]
	if err := r.prime(ctx, l); err != nil {
		return err
	}
	for round := range r.config.Rounds {
		direct := 0.0
		for _, t := range targets {
			s, err := r.tuned(ctx, t, setting{layout: l, clients: r.someClients(), valueBytes: r.config.ValueBytes}, report)
			if err != nil {
				return err
			}
			full := measurement{target: t, setting: s, warmUp: r.config.WarmUp, duration: r.config.Duration}
			sample, err := full.run(ctx, r.control)
			if err != nil {
				return err
			}
			r.note(Case{Measure: Latency, Load: loadFull}, round+1, sample, report)
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
				sample, err := open.run(ctx, r.control)
				if err != nil {
					return err
				}
				r.note(Case{Measure: Latency, Load: at.load}, round+1, sample, report)
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
		for _, t := range r.targets {
			if t.name == name {
				targets = append(targets, t)
			}
		}
	}
	return targets
}
