//go:build unix

package writes

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencegate/fencegate/internal/bench"
)

// Run makes the measurements, and returns what it has when one fails. It returns bench.ErrInvalid for a configuration
// that makes no sense.
func Run(ctx context.Context, config Config) (report Report, err error) {
	if err := config.check(); err != nil {
		return Report{}, err
	}
	report = Report{
		Resources: config.Resources, Hot: config.Hot, ValueBytes: config.ValueBytes, FlushDelayMS: config.flushDelayMS(),
		Connections:  config.Connections,
		Participants: bench.NewParticipants(), Failed: []string{}, Tunings: []Tuning{}, Samples: []Sample{},
	}
	r, err := open(ctx, config, &report)
	defer func() { err = errors.Join(err, r.close()) }()
	if err != nil {
		return report, err
	}
	for _, measure := range config.Measure {
		if err := r.measure(ctx, measure); err != nil {
			return report, fmt.Errorf("%s: %w", measure, err)
		}
	}
	return report, nil
}

func (r *rig) measure(ctx context.Context, measure string) error {
	switch measure {
	case Throughput, Flush:
		return r.throughput(ctx, Case{Measure: measure})
	case Latency:
		return r.latency(ctx)
	case Sizes:
		return r.sizes(ctx)
	case Fences:
		return r.fences(ctx)
	case Refusals:
		return r.refusals(ctx)
	case Dashboards:
		return r.dashboards(ctx)
	}
	return fmt.Errorf("%w: --measure %s", bench.ErrInvalid, measure)
}
