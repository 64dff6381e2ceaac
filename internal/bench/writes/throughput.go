package writes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// throughput measures all targets, with every number of clients, on many resources and on few.
func (r *rig) throughput(ctx context.Context, c Case, report *Report) error {
	for _, l := range r.layouts {
		if err := r.prime(ctx, l); err != nil {
			return err
		}
		for _, clients := range r.config.Clients {
			var measurements []measurement
			for _, t := range r.targets {
				s, err := r.tuned(ctx, t, setting{layout: l, clients: clients, valueBytes: r.config.ValueBytes}, report)
				if err != nil {
					return err
				}
				measurements = append(measurements, measurement{target: t, setting: s, warmUp: r.config.WarmUp,
					duration: r.config.Duration})
			}
			if err := r.rounds(ctx, c, measurements, report); err != nil {
				return err
			}
		}
	}
	return nil
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
		opened, err := t.open(ctx, setting{layout: l, clients: clients, connections: clients,
			valueBytes: r.config.ValueBytes})
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

// rounds makes the measurements in turn, so that what drifts on the machine drifts for all of them. One that fails is
// noted, and not made again; the others go on.
func (r *rig) rounds(ctx context.Context, c Case, measurements []measurement, report *Report) error {
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
				report.Failed = append(report.Failed, fmt.Sprintf("%s, %d clients, %d resources: %v", c.Measure,
					t.setting.clients, len(t.setting.layout.resources), err))
				r.config.progress("failed: %s", report.Failed[len(report.Failed)-1])
			default:
				r.note(c, round+1, sample, report)
			}
		}
	}
	return nil
}

// note puts a sample into the report.
func (r *rig) note(c Case, round int, sample Sample, report *Report) {
	sample.Round, sample.Measure, sample.Load = round, c.Measure, c.Load
	sample.FlushDelayMS = r.config.flushDelayMS()
	report.Samples = append(report.Samples, sample)
	r.config.progress("%s, round %d: %d clients, %d resources, %d bytes%s: %-14s %8.0f writes/s, p50 %.2f ms, p99 %.2f ms",
		sample.Measure, round, sample.Clients, sample.Resources, sample.ValueBytes, prefixed(", ", sample.Load),
		sample.Target,
		sample.PerSecond, sample.P50MS, sample.P99MS)
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
