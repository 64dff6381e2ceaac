package locks

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/procfs"
)

// IdleLoad is what happened in a time in which clients did nothing.
type IdleLoad struct {
	Seconds float64 `json:"seconds"`
	// TransactionsPerSecond are those that the database committed, whoever sent them.
	TransactionsPerSecond float64 `json:"transactions_per_second"`
	// The shares of one CPU that the gateways used, and all processes of PostgreSQL's. The latter is null where those run on another machine.
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
	gateways, postgres map[int]float64
}

// idle reads, waits, and reads again.
func (o observer) idle(ctx context.Context, duration time.Duration) (IdleLoad, error) {
	before, err := o.read(ctx)
	if err != nil {
		return IdleLoad{}, err
	}
	if err := sleep(ctx, duration); err != nil {
		return IdleLoad{}, err
	}
	after, err := o.read(ctx)
	if err != nil {
		return IdleLoad{}, err
	}
	return between(before, after), nil
}

func between(before, after reading) IdleLoad {
	seconds := after.at.Sub(before.at).Seconds()
	load := IdleLoad{
		Seconds:               seconds,
		TransactionsPerSecond: float64(after.transactions-before.transactions) / seconds,
		GatewaysCPU:           used(before.gateways, after.gateways) / seconds,
	}
	if before.postgres != nil && after.postgres != nil {
		load.PostgresCPU = new(used(before.postgres, after.postgres) / seconds)
	}
	return load
}

// used is the CPU time of the processes that run at the end, in seconds; one that began in between counts from 0.
func used(before, after map[int]float64) float64 {
	var seconds float64
	for pid, cpu := range after {
		seconds += cpu - before[pid]
	}
	return seconds
}

func (o observer) read(ctx context.Context) (reading, error) {
	r := reading{gateways: map[int]float64{}}
	for _, pid := range o.gateways {
		stat, err := processStat(pid)
		if err != nil {
			return r, err
		}
		r.gateways[pid] = stat.CPUTime()
	}
	err := o.db.QueryRow(ctx, "select xact_commit from pg_stat_database where datname = current_database()").Scan(&r.transactions)
	if err != nil {
		return r, fmt.Errorf("read the database's statistics: %w", err)
	}
	r.postgres, err = o.postgresCPU(ctx)
	r.at = time.Now()
	return r, err
}

// postgresCPU knows the processes from the server, and takes them for this machine's if they are called as PostgreSQL's are.
func (o observer) postgresCPU(ctx context.Context) (map[int]float64, error) {
	rows, err := o.db.Query(ctx, "select pid from pg_stat_activity")
	if err != nil {
		return nil, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, err
	}
	cpu := map[int]float64{}
	for _, pid := range pids {
		stat, err := processStat(pid)
		switch {
		case err != nil:
			continue // it ended, or is none of this machine's
		case stat.Comm != "postgres":
			return nil, nil
		}
		cpu[pid] = stat.CPUTime()
		if postmaster, err := processStat(stat.PPID); err == nil {
			cpu[stat.PPID] = postmaster.CPUTime()
		}
	}
	if len(cpu) == 0 {
		return nil, nil
	}
	return cpu, nil
}

// residentKiB is the memory of each process.
func residentKiB(pids []int) ([]float64, error) {
	resident := make([]float64, len(pids))
	for i, pid := range pids {
		stat, err := processStat(pid)
		if err != nil {
			return nil, err
		}
		resident[i] = float64(stat.ResidentMemory()) / 1024
	}
	return resident, nil
}

func processStat(pid int) (procfs.ProcStat, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return process.Stat()
}

func sleep(ctx context.Context, duration time.Duration) error {
	select {
	case <-time.After(duration):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
