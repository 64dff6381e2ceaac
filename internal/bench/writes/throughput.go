package writes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// throughput measures all targets, with every number of clients, on many resources and on few.
func (r *rig) throughput(ctx context.Context, c Case) error {
	for _, l := range r.layouts {
		if err := r.prime(ctx, l); err != nil {
			return err
		}
		for _, clients := range r.config.Clients {
			if err := r.compare(ctx, c, r.targets, r.setting(l, clients)); err != nil {
				return err
			}
		}
	}
	return nil
}

// setting is for so many clients that write values of the configured size.
func (r *rig) setting(l layout, clients int) setting {
	return setting{layout: l, clients: clients, valueBytes: r.config.ValueBytes}
}

func (r *rig) measurement(t target, s setting) measurement {
	return measurement{target: t, setting: s, warmUp: r.config.WarmUp, duration: r.config.Duration}
}

// primeClients make the records, before anything is measured.
const primeClients = 16

// prime has each target write once to every resource, so that all that is measured replaces a record. It does so once.
func (r *rig) prime(ctx context.Context, l layout) error {
	if slices.Contains(r.primed, l.prefix) {
		return nil
	}
	r.primed = append(r.primed, l.prefix)
	for _, t := range r.targets {
		clients := min(primeClients, len(l.resources))
		s := r.setting(l, clients)
		s.connections = clients
		opened, err := t.open(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		writers := l.writers(clients, r.config.ValueBytes)
		var running errgroup.Group
		for client, w := range writers {
			running.Go(func() error {
				for w.turn < len(w.resources) {
					if err := opened.write(ctx, client, w); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := errors.Join(running.Wait(), opened.close()); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

// compare measures targets in one setting, each tuned to it, in turn: what drifts on the machine drifts for all of
// them. A measurement that fails is noted, and not made again; the others go on.
func (r *rig) compare(ctx context.Context, c Case, targets []target, s setting) error {
	var measurements []measurement
	for _, t := range targets {
		tuned, err := r.tuned(ctx, t, s)
		if err != nil {
			return err
		}
		measurements = append(measurements, r.measurement(t, tuned))
	}
	failed := map[int]bool{}
	for round := range r.config.Rounds {
		for i, t := range measurements {
			if failed[i] {
				continue
			}
			sample, err := t.run(ctx, r.control)
			switch {
			case ctx.Err() != nil:
				return err
			case err != nil:
				failed[i] = true
				failure := fmt.Sprintf("%s, %d clients, %d resources: %v", c.Measure, s.clients, len(s.layout.resources), err)
				r.report.Failed = append(r.report.Failed, failure)
				r.config.progress("failed: %s", failure)
			default:
				r.note(c, round+1, sample)
			}
		}
	}
	return nil
}

// sample makes one measurement, and puts its sample into the report.
func (r *rig) sample(ctx context.Context, m measurement, c Case, round int) (Sample, error) {
	sample, err := m.run(ctx, r.control)
	if err == nil {
		r.note(c, round, sample)
	}
	return sample, err
}

// note puts a sample into the report.
func (r *rig) note(c Case, round int, sample Sample) {
	sample.Round, sample.Measure, sample.Load = round, c.Measure, c.Load
	sample.FlushDelayMS = r.config.flushDelayMS()
	r.report.Samples = append(r.report.Samples, sample)
	r.config.progress("%s, round %d: %d clients, %d resources, %d bytes%s: %-14s %8.0f writes/s, p50 %.2f ms, p99 %.2f ms",
		sample.Measure, round, sample.Clients, sample.Resources, sample.ValueBytes, prefixed(", ", sample.Load),
		sample.Target, sample.PerSecond, sample.P50MS, sample.P99MS)
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
