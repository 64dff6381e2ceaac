package writes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/bench"
)

// Case is the circumstances of a measurement; targets are compared within one.
type Case struct {
	Measure    string `json:"measure"`
	Clients    int    `json:"clients"`
	Resources  int    `json:"resources"`
	ValueBytes int    `json:"value_bytes"`
	// FlushDelayMS is by how much the database's flushes were slowed.
	FlushDelayMS float64 `json:"flush_delay_ms"`
	// Load says what else is different: at half its rate, beside zombies.
	Load string `json:"load,omitempty"`
}

// Sample is one measurement of one target.
type Sample struct {
	Case

	Target string `json:"target"`
	Round  int    `json:"round"`
	// Connections are those that the target shares among the clients; 0 where each has its own or the target has no say.
	Connections int     `json:"connections,omitempty"`
	Writes      int     `json:"writes"`
	Seconds     float64 `json:"seconds"`
	PerSecond   float64 `json:"per_second"`
	// OfferedPerSecond is the configured rate, if the clients did not write as fast as they could.
	OfferedPerSecond float64 `json:"offered_per_second,omitempty"`
	// Of requests: of a target with 100 writes in each, of the 100.
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
	// WALBytesPerWrite are what the database logged, of all clients.
	WALBytesPerWrite float64 `json:"wal_bytes_per_write"`
	// CPU time of the processes on this machine, in microseconds per write: "load" is this process, which the store and
	// the pools are in, too.
	CPUMicroseconds map[string]float64 `json:"cpu_us_per_write"`
}

// The processes whose CPU time is read.
const (
	roleLoad     = "load"
	rolePostgres = "postgres"
	roleGateway  = "gateway"
	rolePeer     = "peer"
)

// measurement is one measurement to make.
type measurement struct {
	target           target
	setting          setting
	warmUp, duration time.Duration
	// rate is how many writes a second the clients make; 0: as many as they can.
	rate float64
}

// run opens the target, warms it up, measures, and closes it. A write that fails ends it.
func (t measurement) run(ctx context.Context, control *pgxpool.Pool) (sample Sample, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", t.target.name, err)
		}
	}()
	opened, err := t.target.open(ctx, t.setting)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, opened.close()) }()
	writers := t.setting.layout.writers(t.setting.clients, t.setting.valueBytes)
	do := func(ctx context.Context, client, _ int) error { return opened.write(ctx, client, writers[client]) }

	if t.warmUp > 0 {
		if _, err := bench.Repeat(ctx, t.setting.clients, t.warmUp, do); err != nil {
			return Sample{}, err
		}
	}
	before, err := t.read(ctx, control)
	if err != nil {
		return Sample{}, err
	}
	load, err := t.load(ctx, do)
	if err != nil {
		return Sample{}, err
	}
	after, err := t.read(ctx, control)
	if err != nil {
		return Sample{}, err
	}
	return t.sample(load, before, after), nil
}

func (t measurement) load(ctx context.Context, do bench.Do) (bench.Load, error) {
	if t.rate > 0 {
		return bench.RepeatAtRate(ctx, t.setting.clients, t.rate/float64(t.perRequest()), t.duration, do)
	}
	return bench.Repeat(ctx, t.setting.clients, t.duration, do)
}

func (t measurement) perRequest() int { return max(1, t.target.perRequest) }

func (t measurement) sample(load bench.Load, before, after reading) Sample {
	writes := len(load.Latencies) * t.perRequest()
	sample := Sample{
		Target: t.target.name, Connections: t.setting.connections, Writes: writes, Seconds: load.Took.Seconds(),
		Case: Case{Clients: t.setting.clients, Resources: len(t.setting.layout.resources),
			ValueBytes: t.setting.valueBytes},
		PerSecond: load.PerSecond() * float64(t.perRequest()), OfferedPerSecond: t.rate,
		P50MS: bench.Percentile(load.Latencies, 0.50), P99MS: bench.Percentile(load.Latencies, 0.99),
		MaxMS:           bench.Percentile(load.Latencies, 1),
		CPUMicroseconds: map[string]float64{},
	}
	if writes == 0 {
		return sample
	}
	sample.WALBytesPerWrite = (after.walBytes - before.walBytes) / float64(writes)
	for role, cpu := range after.cpu {
		sample.CPUMicroseconds[role] = cpu.Since(before.cpu[role]) * 1e6 / float64(writes)
	}
	return sample
}

// reading is what is counted beside the writes, at one moment.
type reading struct {
	walBytes float64
	cpu      map[string]bench.CPU
}

// read leaves out the processes that are not on this machine, and all where there is no /proc.
func (t measurement) read(ctx context.Context, control *pgxpool.Pool) (reading, error) {
	r := reading{cpu: map[string]bench.CPU{}}
	postgres, err := bench.PostgresCPU(ctx, control)
	if err != nil {
		return r, err
	}
	if postgres != nil {
		r.cpu[rolePostgres] = postgres
	}
	for role, pids := range map[string][]int{roleLoad: {os.Getpid()}, t.target.role: t.target.pids} {
		if cpu, err := bench.CPUOf(pids...); err == nil && len(pids) > 0 {
			r.cpu[role] = cpu
		}
	}
	err = control.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&r.walBytes)
	if err != nil {
		return r, fmt.Errorf("read where the log of the database ends: %w", err)
	}
	return r, nil
}
