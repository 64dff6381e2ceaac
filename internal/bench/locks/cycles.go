package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
)

// CycleSample is one round of one service: clients that acquire and release as fast as they can.
type CycleSample struct {
	Service   string  `json:"service"`
	Locks     string  `json:"locks"` // OwnLocks or OneLock
	Clients   int     `json:"clients"`
	Round     int     `json:"round"`
	Cycles    int     `json:"cycles"`
	PerSecond float64 `json:"per_second"`
	// Of one cycle, with the wait for the lock.
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
}

// Whether every client has a lock of its own, or all have one.
const (
	OwnLocks = "own"
	OneLock  = "one"
)

// cycles measures the services in turn, with each number of clients.
func (c Config) cycles(ctx context.Context, services []service, run string, report *Report) error {
	for _, which := range []string{OwnLocks, OneLock} {
		for _, clients := range c.Clients {
			if which == OneLock && clients == 1 {
				continue // is the same as one client with a lock of its own
			}
			if err := c.cyclesOf(ctx, services, run, which, clients, report); err != nil {
				return err
			}
		}
	}
	return nil
}

// cyclesOf measures all rounds of one number of clients. The clients of a service stay connected until its last round.
func (c Config) cyclesOf(
	ctx context.Context, services []service, run, which string, clients int, report *Report,
) (err error) {
	var fitting []service
	var closers []func() error
	defer func() {
		for _, closeAll := range closers {
			err = errors.Join(err, closeAll())
		}
	}()
	lockers := map[string][]locker{}
	for _, s := range services {
		if clients < s.gateways {
			continue
		}
		connected, closeAll, err := s.connectAll(ctx, clients)
		if err != nil {
			return err
		}
		closers = append(closers, closeAll)
		fitting = append(fitting, s)
		lockers[s.name] = connected
	}
	for round := range c.Rounds + 1 {
		for _, s := range fitting {
			duration := c.Duration
			if round == 0 {
				duration = c.WarmUp
			}
			load, err := cycle(ctx, lockers[s.name], func(client int) string { return lockName(run, which, client) }, duration)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if round == 0 {
				continue
			}
			sample := CycleSample{
				Service: s.name, Locks: which, Clients: clients, Round: round, Cycles: len(load.Latencies),
				PerSecond: load.PerSecond(),
				P50MS:     bench.Percentile(load.Latencies, 0.50), P99MS: bench.Percentile(load.Latencies, 0.99),
			}
			report.Cycles = append(report.Cycles, sample)
			c.progress("round %d: %3d clients, %s locks, %-12s %8.0f cycles/s", round, clients, which, s.name, sample.PerSecond)
		}
	}
	return nil
}

func lockName(run, which string, client int) string {
	if which == OneLock {
		return run + "/one"
	}
	return fmt.Sprintf("%s/own/%d", run, client)
}

func cycle(
	ctx context.Context, lockers []locker, lock func(client int) string, duration time.Duration,
) (bench.Load, error) {
	return bench.Repeat(ctx, len(lockers), duration, func(ctx context.Context, client, _ int) error {
		release, err := lockers[client].acquire(ctx, lock(client))
		if err != nil {
			return err
		}
		return release(ctx)
	})
}
