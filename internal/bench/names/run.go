package names

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
)

// statementTimeout lets what reads all names take its time, so that it can be measured.
const statementTimeout = 5 * time.Minute

// Run makes the measurements, and returns what it has when one fails. It returns bench.ErrInvalid for a configuration
// that makes no sense.
func Run(ctx context.Context, config Config) (report Report, err error) {
	if err := config.check(); err != nil {
		return Report{}, err
	}
	report = Report{Names: config.Names, Samples: []Sample{}}
	if report.Environment, err = bench.EnvironmentOf(ctx, config.DatabaseURL); err != nil {
		return report, err
	}
	var databases []*database
	defer func() {
		for _, d := range databases {
			err = errors.Join(err, d.close(ctx))
		}
	}()
	for _, names := range config.Names {
		d, err := open(ctx, config, names)
		databases = append(databases, d)
		if err != nil {
			return report, fmt.Errorf("%d names: %w", names, err)
		}
	}
	for round := 1; round <= config.Rounds; round++ {
		if err := report.add(ctx, round, databases, timed); err != nil {
			return report, err
		}
		config.Progress(fmt.Sprintf("round %d of %d", round, config.Rounds))
	}
	// Last, and once: this changes a twentieth of the rows.
	err = report.add(ctx, 1, databases, once)
	return report, err
}

// add measures each with one database after the other: what drifts on the machine drifts for all of them.
func (r *Report) add(ctx context.Context, round int, databases []*database, measurements []measurement) error {
	for _, m := range measurements {
		for _, d := range databases {
			figures, err := m(ctx, d)
			if err != nil {
				return fmt.Errorf("%d names: %w", d.names, err)
			}
			for _, f := range figures {
				r.Samples = append(r.Samples, Sample{What: f.what, Unit: f.unit, Names: d.names, Round: round, Value: f.value})
			}
		}
	}
	return nil
}

// figure is what a measurement came to.
type figure struct {
	what, unit string
	value      float64
}

const (
	milliseconds = "ms"
	bytesOfDisk  = "bytes"
)

// median is that of latencies, which it sorts.
func median(what string, took []time.Duration) figure {
	slices.Sort(took)
	return figure{what, milliseconds, bench.Percentile(took, 0.5)}
}
