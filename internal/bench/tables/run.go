package tables

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
	report = Report{Participants: bench.NewParticipants(), Samples: []Sample{}, Scans: []Scans{}}
	r, err := open(ctx, config, &report)
	defer func() { err = errors.Join(err, r.close(ctx)) }()
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
	case Writes:
		return r.transactions(ctx, Writes, r.wanted())
	case Five:
		return r.transactions(ctx, Five, fiveTargets)
	case Bulk:
		return r.bulk(ctx)
	case Plans:
		return r.plans(ctx)
	case Pgbench:
		return r.pgbench(ctx)
	}
	return fmt.Errorf("%w: --measure %s", bench.ErrInvalid, measure)
}

// wanted are the targets of the configuration.
func (r *rig) wanted() (targets []target) {
	for _, t := range writeTargets {
		if r.config.wants(t.name) {
			targets = append(targets, t)
		}
	}
	return targets
}

// inTurn calls a function for every round and each of count targets. Every other round goes backwards, so that what
// drifts on the machine favours none.
func (r *rig) inTurn(count int, do func(round, i int) error) error {
	for round := 1; round <= r.config.Rounds; round++ {
		for i := range count {
			if round%2 == 0 {
				i = count - 1 - i
			}
			if err := do(round, i); err != nil {
				return err
			}
		}
	}
	return nil
}
