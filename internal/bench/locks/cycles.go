package locks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
)

// CycleSample is one round of one service: clients that do something over and over, as fast as they can.
type CycleSample struct {
	Service string `json:"service"`
	Locks   string `json:"locks"` // OwnLocks or OneLock
	// Operation is what clients did: Cycle, or Heartbeat.
	Operation string  `json:"operation"`
	Clients   int     `json:"clients"`
	Round     int     `json:"round"`
	Cycles    int     `json:"cycles"`
	PerSecond float64 `json:"per_second"`
	// Of one time that it is done; of a cycle with the wait for the lock.
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
}

// Whether every client has a lock of its own, or all have one.
const (
	OwnLocks = "own"
	OneLock  = "one"
)

// What clients do: acquire and release, or renew a lease that they hold.
const (
	Cycle     = "cycle"
	Heartbeat = "heartbeat"
)

// cycles measures the services in turn, with each number of clients.
func (c Config) cycles(ctx context.Context, services []service, run string, report *Report) error {
	for _, which := range []string{OwnLocks, OneLock} {
		for _, clients := range c.Clients {
			if which == OneLock && clients == 1 {
				continue // is the same as one client with a lock of its own
			}
			if err := c.roundsOf(ctx, services, load{run, which, clients, []string{Cycle}}, &report.Cycles); err != nil {
				return err
			}
		}
	}
	return nil
}

// load is what clients do to locks whose names begin with run.
type load struct {
	run, locks string
	clients    int
	operations []string
}

// roundsOf measures all rounds of one number of clients. The clients of a service stay connected until its last round.
func (c Config) roundsOf(ctx context.Context, services []service, l load, samples *[]CycleSample) (err error) {
	var fitting []service
	var closers []func() error
	defer func() {
		for _, closeAll := range closers {
			err = errors.Join(err, closeAll())
		}
	}()
	lockers := map[string][]locker{}
	for _, s := range services {
		if l.clients < s.gateways {
			continue
		}
		connected, closeAll, err := s.connectAll(ctx, l.clients)
		if err != nil {
			return err
		}
		closers = append(closers, closeAll)
		fitting = append(fitting, s)
		lockers[s.name] = connected
	}
	for round := range c.Rounds + 1 {
		for _, operation := range l.operations {
			for _, s := range fitting {
				sample, err := c.sample(ctx, s, lockers[s.name], l, operation, round)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				if round > 0 {
					*samples = append(*samples, sample)
				}
			}
		}
	}
	return nil
}

// sample measures one service in one round. Round 0 warms up.
func (c Config) sample(
	ctx context.Context, s service, lockers []locker, l load, operation string, round int,
) (CycleSample, error) {
	duration := c.Duration
	if round == 0 {
		duration = c.WarmUp
	}
	lock := func(client int) string { return lockName(l.run, s.name, l.locks, client) }
	repeat := cycle
	if operation == Heartbeat {
		repeat = heartbeat
	}
	done, err := repeat(ctx, lockers, lock, duration)
	if err != nil {
		return CycleSample{}, err
	}
	sample := CycleSample{
		Service: s.name, Locks: l.locks, Operation: operation, Clients: l.clients, Round: round,
		Cycles: len(done.Latencies), PerSecond: done.PerSecond(),
		P50MS: bench.Percentile(done.Latencies, 0.50), P99MS: bench.Percentile(done.Latencies, 0.99),
	}
	if round > 0 {
		c.progress("round %d: %3d clients, %s locks, %-15s %8.0f %ss/s",
			round, l.clients, l.locks, s.name, sample.PerSecond, operation)
	}
	return sample, nil
}

// lockName keeps the services apart: some of them share servers.
func lockName(run, service, which string, client int) string {
	run += "/" + strings.ReplaceAll(service, " ", "-")
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
