//go:build unix

package locks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
)

// Run makes the measurements, and returns what it has when one fails. It returns bench.ErrInvalid for a configuration
// that makes no sense.
func Run(ctx context.Context, config Config) (report Report, err error) {
	if err := config.check(); err != nil {
		return report, err
	}
	report = Report{Participants: bench.NewParticipants(), WakeUps: []WakeUpSample{},
		Cycles: []CycleSample{}, Leases: []CycleSample{}, RedisFsync: config.RedisFsync,
		Transactions: []TransactionSample{}, Crowds: []CrowdSample{}}
	if report.Environment, err = bench.EnvironmentOf(ctx, config.DatabaseURL); err != nil {
		return report, err
	}
	run := fmt.Sprintf("bench/%d", time.Now().UnixNano())
	if slices.Contains(config.Measure, WakeUp) || slices.Contains(config.Measure, Cycles) {
		if err := config.besidePeers(ctx, run, &report); err != nil {
			return report, err
		}
	}
	if slices.Contains(config.Measure, Leases) {
		if err := config.leases(ctx, run, &report); err != nil {
			return report, fmt.Errorf("leases: %w", err)
		}
	}
	if !slices.Contains(config.Measure, Crowd) {
		return report, nil
	}
	if _, err := bench.ProcessStat(os.Getpid()); err != nil {
		report.skip(config, Crowd, "there is no /proc to read memory and CPU time from")
		return report, nil
	}
	err = config.crowds(ctx, run, &report)
	return report, err
}

// besidePeers makes the measurements that others take part in. All services run all the time, and only one of them is
// busy.
func (c Config) besidePeers(ctx context.Context, run string, report *Report) (err error) {
	running, err := c.startGateways(ctx, slices.Max(c.Gateways))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.stop()) }()
	others, stop, err := startPeers(ctx, c, report)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var services []service
	for _, count := range c.Gateways {
		services = append(services, running.service(count))
	}
	services = append(services, others...)

	if slices.Contains(c.Measure, WakeUp) {
		if err := c.wakeUps(ctx, services, run, report); err != nil {
			return err
		}
	}
	if slices.Contains(c.Measure, Cycles) {
		return c.cycles(ctx, services, run, report)
	}
	return nil
}
