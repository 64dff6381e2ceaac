package tables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
)

// transactions measures targets with every number of clients.
func (r *rig) transactions(ctx context.Context, measure string, targets []target) error {
	for _, clients := range r.config.Clients {
		if err := r.compare(ctx, measure, targets, clients); err != nil {
			return err
		}
	}
	return nil
}

// compare measures targets in turn, over the same connections.
func (r *rig) compare(ctx context.Context, measure string, targets []target, count int) (err error) {
	clients, err := r.connect(ctx, count)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disconnect(ctx, clients)) }()
	return r.inTurn(len(targets), func(round, i int) error {
		sample, err := r.sample(ctx, targets[i], clients)
		if err != nil {
			return fmt.Errorf("%s, %d clients: %w", targets[i].name, count, err)
		}
		sample.Case, sample.Round = Case{Measure: measure, Clients: count}, round
		r.note(sample)
		return nil
	})
}

// sample measures one target once.
func (r *rig) sample(ctx context.Context, t target, clients []*client) (Sample, error) {
	do := func(ctx context.Context, client, _ int) error { return t.write(ctx, clients[client]) }
	if r.config.WarmUp > 0 {
		if _, err := bench.Repeat(ctx, len(clients), r.config.WarmUp, do); err != nil {
			return Sample{}, err
		}
	}
	before, err := bench.PostgresCPU(ctx, r.control)
	if err != nil {
		return Sample{}, err
	}
	load, err := bench.Repeat(ctx, len(clients), r.config.Duration, do)
	if err != nil {
		return Sample{}, err
	}
	after, err := bench.PostgresCPU(ctx, r.control)
	if err != nil {
		return Sample{}, err
	}
	transactions := float64(len(load.Latencies))
	return Sample{
		Target: t.name, PerSecond: load.PerSecond(), Milliseconds: milliseconds(load.Took) / transactions,
		P50MS: bench.Percentile(load.Latencies, 0.50), P99MS: bench.Percentile(load.Latencies, 0.99),
		CPUMicroseconds: after.Since(before) * 1e6 / transactions,
	}, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// note puts a sample into the report.
func (r *rig) note(s Sample) {
	r.report.Samples = append(r.report.Samples, s)
	r.config.progress("%s, round %d: %-30s %10.1f/s, %.3f ms, %.0f µs of PostgreSQL's CPU", s.Case, s.Round, s.Target,
		s.PerSecond, s.Milliseconds, s.CPUMicroseconds)
}
