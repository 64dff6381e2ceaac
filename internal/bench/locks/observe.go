package locks

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/bench"
)

// IdleLoad is what happened in a time in which clients did nothing.
type IdleLoad struct {
	Seconds float64 `json:"seconds"`
	// TransactionsPerSecond are those that ended in the database, of all clients.
	TransactionsPerSecond float64 `json:"transactions_per_second"`
	// The shares of one CPU that the gateways used, and all processes of PostgreSQL's. The latter is null where those run
	// on another machine.
	GatewaysCPU float64  `json:"gateways_cpu"`
	PostgresCPU *float64 `json:"postgres_cpu"`
}

// observer reads what processes and the database count.
type observer struct {
	db       *pgx.Conn
	gateways []int
}

// reading is all counters at one moment.
type reading struct {
	at           time.Time
	transactions int64
	// Seconds of CPU by process; postgres is nil where its processes are not on this machine.
	gateways, postgres bench.CPU
}

// idle waits until what was done before has been reported, and returns the load of a time from then on, and the memory
// of each gateway after it.
func (o observer) idle(ctx context.Context, settle, duration time.Duration) (IdleLoad, []float64, error) {
	var readings [2]reading
	for i, pause := range []time.Duration{settle, duration} {
		if err := sleep(ctx, pause); err != nil {
			return IdleLoad{}, nil, err
		}
		var err error
		if readings[i], err = o.read(ctx); err != nil {
			return IdleLoad{}, nil, err
		}
	}
	resident, err := residentKiB(o.gateways)
	return between(readings[0], readings[1]), resident, err
}

func between(before, after reading) IdleLoad {
	seconds := after.at.Sub(before.at).Seconds()
	load := IdleLoad{
		Seconds:               seconds,
		TransactionsPerSecond: float64(after.transactions-before.transactions) / seconds,
		GatewaysCPU:           after.gateways.Since(before.gateways) / seconds,
	}
	if before.postgres != nil && after.postgres != nil {
		load.PostgresCPU = new(after.postgres.Since(before.postgres) / seconds)
	}
	return load
}

func (o observer) read(ctx context.Context) (reading, error) {
	gateways, err := bench.CPUOf(o.gateways...)
	if err != nil {
		return reading{}, err
	}
	r := reading{gateways: gateways}
	err = o.db.QueryRow(ctx, "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()").
		Scan(&r.transactions)
	if err != nil {
		return r, fmt.Errorf("read the database's statistics: %w", err)
	}
	r.postgres, err = bench.PostgresCPU(ctx, o.db)
	r.at = time.Now()
	return r, err
}

// residentKiB is the memory of each process.
func residentKiB(pids []int) ([]float64, error) {
	resident := make([]float64, len(pids))
	for i, pid := range pids {
		stat, err := bench.ProcessStat(pid)
		if err != nil {
			return nil, err
		}
		resident[i] = float64(stat.ResidentMemory()) / 1024
	}
	return resident, nil
}

func sleep(ctx context.Context, duration time.Duration) error {
	select {
	case <-time.After(duration):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
