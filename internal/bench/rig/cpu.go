package rig

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/procfs"
)

// CPU is seconds of CPU time by process.
type CPU map[int]float64

// CPUOf reads the CPU time of processes of this machine. It returns an error where there is no /proc.
func CPUOf(pids ...int) (CPU, error) {
	cpu := CPU{}
	for _, pid := range pids {
		stat, err := ProcessStat(pid)
		if err != nil {
			return nil, err
		}
		cpu[pid] = stat.CPUTime()
	}
	return cpu, nil
}

// Since is the CPU time used since an earlier reading by the processes that run now; one that began in between counts
// from 0.
func (c CPU) Since(before CPU) float64 {
	var seconds float64
	for pid, cpu := range c {
		seconds += cpu - before[pid]
	}
	return seconds
}

// cpuOfPostgres reads the CPU time of all processes of the server's: it knows them from the server, and takes them for
// this machine's if they are called as PostgreSQL's are. It is nil where they are not.
func cpuOfPostgres(ctx context.Context, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}) (CPU, error) {
	rows, err := db.Query(ctx, "select pid from pg_stat_activity")
	if err != nil {
		return nil, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, err
	}
	cpu := CPU{}
	for _, pid := range pids {
		stat, err := ProcessStat(pid)
		switch {
		case err != nil:
			continue // it ended, or is none of this machine's
		case stat.Comm != "postgres":
			return nil, nil
		}
		cpu[pid] = ownCPU(pid, stat)
		if postmaster, err := ProcessStat(stat.PPID); err == nil {
			cpu[stat.PPID] = ownCPU(stat.PPID, postmaster)
		}
	}
	if len(cpu) == 0 {
		return nil, nil
	}
	return cpu, nil
}

// ownCPU is the CPU time of a process of one thread, as PostgreSQL's are: in nanoseconds where the kernel has them. Its
// hundredths of a second are too coarse for a hundred processes that each do little.
func ownCPU(pid int, stat procfs.ProcStat) float64 {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return stat.CPUTime()
	}
	scheduled, err := process.Schedstat()
	if err != nil || scheduled.RunningNanoseconds == 0 {
		return stat.CPUTime()
	}
	return float64(scheduled.RunningNanoseconds) / 1e9
}

// ProcessStat reads what /proc has about a process.
func ProcessStat(pid int) (procfs.ProcStat, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return process.Stat()
}
