package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/procfs"
)

// Target is what is measured in turn with others.
type Target struct {
	// Name is the target's in reports; Base is the name of the target that it is compared with.
	Name, Base string
	// Tuned are numbers of connections, of which the measurement finds the best for each number of clients; nil: the
	// target has no such choice.
	Tuned []int
	// PerCall is how many operations a call makes; 0 is 1.
	PerCall int
	// Clients is the number of clients, if it is another one than the case's.
	Clients int
	// Servers are the processes that do the work beside PostgreSQL's.
	Servers []int
	// Open makes the target ready for a round.
	Open func(ctx context.Context, clients, connections int) (Session, error)
}

// Session is a target in use. All clients call Do at the same time.
type Session struct {
	Do    Do
	Close func() error
}

// Case is a row of a table for each target.
type Case struct {
	Table, Name string
	Clients     int
	// Rates are how many operations a second the clients make of each target, by its name; a target without one is called
	// as fast as the clients can.
	Rates map[string]float64
	// First is the name of the value that counts; "" is PerSecond.
	First string
	// CPURatio compares PostgreSQL's CPU time, too: the base writes to PostgreSQL.
	CPURatio bool
}

// The values of a sample that Compare makes, beside PerSecond.
const (
	P50         = "p50 ms"
	P99         = "p99 ms"
	PostgresCPU = "PostgreSQL's CPU µs"
	ServerCPU   = "server's CPU µs"
	LoadCPU     = "load's CPU µs"
	LogBytes    = "WAL B"
)

// Compare measures targets in turn, round by round, each with the number of connections that is best for it: what
// drifts on the machine drifts for all of them. A measurement that fails is noted, and not made again.
func (r *Rig) Compare(ctx context.Context, c Case, targets []Target) error {
	connections := make([]int, len(targets))
	failed := map[int]bool{}
	failure := func(i int, err error) error {
		if ctx.Err() != nil {
			return err
		}
		failed[i] = true
		text := fmt.Sprintf("%s, %s, %s: %v", c.Table, c.Name, targets[i].Name, err)
		r.Report.Failed = append(r.Report.Failed, text)
		r.Progress("failed: %s", text)
		return nil
	}
	for i, t := range targets {
		var err error
		if connections[i], err = r.tune(ctx, c, t); err != nil {
			if err := failure(i, err); err != nil {
				return err
			}
		}
	}
	return r.InTurn(len(targets), func(round, i int) error {
		if failed[i] {
			return nil
		}
		values, err := r.measure(ctx, c, targets[i], connections[i], r.WarmUp, r.Duration)
		if err != nil {
			return failure(i, err)
		}
		r.Note(c.Table, c.Name, targets[i].Name, targets[i].Base, round, values...)
		return nil
	})
}

// InTurn calls a function for every round and each of count targets. Every other round goes backwards, so that what
// drifts on the machine favours none.
func (r *Rig) InTurn(count int, do func(round, i int) error) error {
	for round := 1; round <= r.Rounds; round++ {
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

// Note puts a sample into the report; base is "" where there is none.
func (r *Rig) Note(table, inCase, target, base string, round int, values ...Value) {
	s := Sample{table, inCase, target, base, round, values}
	r.Report.Samples = append(r.Report.Samples, s)
	text := fmt.Sprintf("%s, %s, round %d: %-20s", s.Table, s.Case, s.Round, s.Target)
	for _, v := range s.Values {
		text += fmt.Sprintf(" %s %s,", Number(v.Of), v.Name)
	}
	r.Progress("%s", text[:len(text)-1])
}

// measure opens the target, warms it up, measures and closes it.
func (r *Rig) measure(
	ctx context.Context, c Case, t Target, connections int, warmUp, duration time.Duration,
) (values []Value, err error) {
	clients := c.Clients
	if t.Clients != 0 {
		clients = t.Clients
	}
	session, err := t.Open(ctx, clients, connections)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	if warmUp > 0 {
		if _, err := Repeat(ctx, clients, warmUp, session.Do); err != nil {
			return nil, err
		}
	}
	before, err := r.read(ctx, t)
	if err != nil {
		return nil, err
	}
	perCall := float64(max(1, t.PerCall))
	var load Load
	if rate := c.Rates[t.Name]; rate > 0 {
		load, err = RepeatAtRate(ctx, clients, rate/perCall, duration, session.Do)
	} else {
		load, err = Repeat(ctx, clients, duration, session.Do)
	}
	if err != nil {
		return nil, err
	}
	after, err := r.read(ctx, t)
	if err != nil {
		return nil, err
	}
	done := float64(len(load.Latencies)) * perCall
	values = []Value{
		{Name: PerSecond, Of: done / load.Took.Seconds()},
		{Name: P50, Of: Percentile(load.Latencies, 0.5)}, {Name: P99, Of: Percentile(load.Latencies, 0.99)},
		{PostgresCPU, (after.postgres.Since(before.postgres) - r.Background*load.Took.Seconds()) * 1e6 / done, c.CPURatio},
		{Name: ServerCPU, Of: after.server.Since(before.server) * 1e6 / done},
		{Name: LoadCPU, Of: after.load.Since(before.load) * 1e6 / done},
		{Name: LogBytes, Of: (after.log - before.log) / done},
	}
	if first := slices.IndexFunc(values, func(v Value) bool { return v.Name == c.First }); first > 0 {
		values = slices.Concat(values[first:first+1], values[:first], values[first+1:])
	}
	return values, nil
}

// reading is what is counted beside the calls, at one moment.
type reading struct {
	postgres, server, load CPU
	log                    float64
}

// read leaves out the processes that are not on this machine, and all where there is no /proc.
func (r *Rig) read(ctx context.Context, t Target) (at reading, err error) {
	if at.postgres, err = cpuOfPostgres(ctx, r.Control); err != nil {
		return at, err
	}
	at.server, _ = CPUOf(t.Servers...)
	at.load, _ = CPUOf(os.Getpid())
	err = r.Control.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&at.log)
	if err != nil {
		return at, fmt.Errorf("read where the log of the database ends: %w", err)
	}
	return at, nil
}

// Idle returns what PostgreSQL and other processes use while nothing is called, in seconds of CPU a second.
func (r *Rig) Idle(ctx context.Context, length time.Duration, servers []int) (postgres, server float64, err error) {
	before, err := r.read(ctx, Target{Servers: servers})
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	select {
	case <-time.After(length):
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	seconds := time.Since(begun).Seconds()
	after, err := r.read(ctx, Target{Servers: servers})
	return after.postgres.Since(before.postgres) / seconds, after.server.Since(before.server) / seconds, err
}

// tuneShare of the duration of a measurement is what each number of connections gets, twice: once upwards, once
// downwards.
const tuneShare = 4

// tune returns the number of connections with which the target does most, where it has a choice: one of those that it
// names below the number of clients, or one a client.
func (r *Rig) tune(ctx context.Context, c Case, t Target) (chosen int, err error) {
	limit := min(c.Clients, r.ConnectionsMax)
	candidates := append(slices.DeleteFunc(slices.Clone(t.Tuned), func(n int) bool { return n >= limit }), limit)
	known := fmt.Sprint(c.Table, c.Name, t.Name)
	if t.Tuned == nil || len(candidates) == 1 {
		return limit, nil
	}
	if n := r.tuned[known]; n != 0 {
		return n, nil
	}
	rates := map[int]float64{}
	for range 2 {
		for _, connections := range candidates {
			share := r.Duration / tuneShare
			values, err := r.measure(ctx, Case{Clients: c.Clients}, t, connections, share/2, share)
			if err != nil {
				return 0, err
			}
			rates[connections] += values[0].Of
		}
		slices.Reverse(candidates)
	}
	for connections, rate := range rates {
		if chosen == 0 || rate > rates[chosen] {
			chosen = connections
		}
	}
	r.Progress("%s, %s: %s does best with %d connections of %v", c.Table, c.Name, t.Name, chosen, candidates)
	r.tuned[known] = chosen
	return chosen, nil
}

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
func cpuOfPostgres(ctx context.Context, db *pgxpool.Pool) (CPU, error) {
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
