package writes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/bench"
	"github.com/fencegate/fencegate/store"
)

// Config says what is measured.
type Config struct {
	DatabaseURL string
	GatewayURL  string
	Clients     []int
	// Rounds is how often every target is measured with every number of clients; Duration how long each time, after a WarmUp.
	Rounds           int
	Duration, WarmUp time.Duration
	Resources        int
	ValueBytes       int
	// Connections to the database, of the direct target and of the store alike.
	Connections int
	// Progress is told of every sample, as it is made.
	Progress func(Sample)
}

// check returns bench.ErrInvalid for what makes no sense.
func (c Config) check() error {
	switch {
	case len(c.Clients) == 0 || c.Rounds < 1 || c.Duration <= 0:
		return fmt.Errorf("%w: --clients, --rounds and --duration must be positive", bench.ErrInvalid)
	case c.ValueBytes < 1 || c.Connections < 2:
		return fmt.Errorf("%w: --value-bytes must be at least 1 and --connections at least 2", bench.ErrInvalid)
	}
	for _, clients := range c.Clients {
		if clients < 1 || clients > c.Resources {
			return fmt.Errorf("%w: --clients %d must be 1 to --resources (%d)", bench.ErrInvalid, clients, c.Resources)
		}
	}
	return nil
}

// Run measures all targets in turn, round by round.
func Run(ctx context.Context, config Config) (Report, error) {
	if err := config.check(); err != nil {
		return Report{}, err
	}
	poolConfig, err := pgxpool.ParseConfig(config.DatabaseURL)
	if err != nil {
		return Report{}, fmt.Errorf("--database-url: %w", err)
	}
	poolConfig.MaxConns = int32(config.Connections)
	pool, err := pgxpool.NewWithConfig(ctx, poolConfig)
	if err != nil {
		return Report{}, err
	}
	defer pool.Close()
	st, err := store.Open(ctx, store.Config{DatabaseURL: config.DatabaseURL, ConnectionsMax: config.Connections})
	if err != nil {
		return Report{}, err
	}
	defer st.Close()

	environment, err := bench.ReadEnvironment(ctx, pool)
	if err != nil {
		return Report{}, err
	}
	if err := prepare(ctx, pool); err != nil {
		return Report{}, err
	}
	defer func() { _, _ = pool.Exec(context.WithoutCancel(ctx), "drop schema fencegate_bench cascade") }()
	resources, err := acquireAll(ctx, st, config)
	if err != nil {
		return Report{}, err
	}
	report := Report{
		Environment: environment, Resources: config.Resources, ValueBytes: config.ValueBytes, Connections: config.Connections,
	}
	for _, clients := range config.Clients {
		throughHTTP, err := httpTarget(config.GatewayURL, clients)
		if err != nil {
			return Report{}, err
		}
		targets := []target{directTarget(pool), storeTarget(st), throughHTTP}
		if err := config.rounds(ctx, targets, resources, clients, &report); err != nil {
			return report, err
		}
	}
	return report, nil
}

// rounds measures the targets in turn, so that what drifts on the machine drifts for all of them.
func (c Config) rounds(ctx context.Context, targets []target, resources []resource, clients int, report *Report) error {
	for round := range c.Rounds + 1 {
		for _, t := range targets {
			duration := c.Duration
			if round == 0 {
				duration = c.WarmUp
			}
			sample, err := measure(ctx, t, resources, clients, c.ValueBytes, duration)
			if err != nil {
				return err
			}
			if round == 0 {
				continue
			}
			sample.Round = round
			report.Samples = append(report.Samples, sample)
			c.Progress(sample)
		}
	}
	return nil
}

// prepare makes the plain table.
func prepare(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `
		drop schema if exists fencegate_bench cascade;
		create schema fencegate_bench;
		create table fencegate_bench.direct (
			resource text collate "C", key text collate "C", value bytea not null, primary key (resource, key)
		) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05)`)
	if err != nil {
		return fmt.Errorf("make the plain table: %w", err)
	}
	return nil
}

// acquireAll takes a lease on every resource, for longer than the measurement lasts.
func acquireAll(ctx context.Context, st *store.Store, config Config) ([]resource, error) {
	resources := make([]resource, config.Resources)
	run := time.Now().UnixNano()
	errs := make([]error, config.Connections)
	var running sync.WaitGroup
	for worker := range config.Connections {
		running.Go(func() {
			mine := share(resources, worker, config.Connections)
			for i := range mine {
				name := store.Name(fmt.Sprintf("bench/%d/%d-%d", run, worker, i))
				lease, err := st.Acquire(ctx, store.AcquireRequest{Lock: name, OwnerID: "bench", TTL: store.TTLMax})
				if err != nil {
					errs[worker] = err
					return
				}
				mine[i] = resource{name: name, token: lease.Token}
			}
		})
	}
	running.Wait()
	return resources, errors.Join(errs...)
}
