package locks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
)

// twoRounds is a report in which the machine was half as fast in round 2.
func twoRounds() Report {
	return Report{
		Environment: bench.Environment{CPUs: 2, Go: "go1.26", FlushMicroseconds: 120, PostgreSQL: map[string]string{
			"server_version": "15.4", "fsync": "on", "synchronous_commit": "on",
		}},
		Participants: bench.Participants{
			Peers:   map[string]string{nameEtcd: "3.4.23"},
			Skipped: map[string]string{nameRedis: "redis-server: not on this machine"},
		},
		WakeUps: []WakeUpSample{
			{Service: nameFencegate, Round: 1, HandOffs: 500, P50MS: 3, P99MS: 9},
			{Service: nameEtcd, Round: 1, HandOffs: 500, P50MS: 2, P99MS: 4},
			{Service: nameFencegate, Round: 2, HandOffs: 500, P50MS: 6, P99MS: 11},
			{Service: nameEtcd, Round: 2, HandOffs: 500, P50MS: 4, P99MS: 8},
		},
		Cycles: []CycleSample{
			{Service: nameFencegate, Locks: OwnLocks, Clients: 8, Round: 1, PerSecond: 1000, P50MS: 1, P99MS: 3},
			{Service: nameEtcd, Locks: OwnLocks, Clients: 8, Round: 1, PerSecond: 800, P50MS: 2, P99MS: 5},
			{Service: nameFencegate, Locks: OwnLocks, Clients: 8, Round: 2, PerSecond: 500, P50MS: 2, P99MS: 6},
			{Service: nameEtcd, Locks: OwnLocks, Clients: 8, Round: 2, PerSecond: 250, P50MS: 4, P99MS: 10},
			{Service: nameFencegate, Locks: OneLock, Clients: 8, Round: 1, PerSecond: 100, P50MS: 8, P99MS: 30},
		},
		Leases: []CycleSample{
			{Service: "redis", Operation: Heartbeat, Clients: 8, Round: 1, PerSecond: 900, P50MS: 1, P99MS: 2},
			{Service: nameRedislock, Operation: Heartbeat, Clients: 8, Round: 1, PerSecond: 1200, P50MS: 1, P99MS: 2},
		},
		Transactions: []TransactionSample{transactionsBetween(
			reading{at: time.Unix(10, 0), transactions: 100}, reading{at: time.Unix(20, 0), transactions: 350}, 5, 100)},
		Crowds: []CrowdSample{{
			Round: 1, Waiters: 10000, Protocol: HTTP2, Connections: 50, OpenFilesMax: 20000, QueueSeconds: 12,
			ResidentBeforeKiB: []float64{20480, 30720}, ResidentKiB: []float64{81920, 102400}, KiBPerWaiter: []float64{12, 14},
			Empty:        IdleLoad{Seconds: 10, TransactionsPerSecond: 4, GatewaysCPU: 0.01, PostgresCPU: new(0.02)},
			Idle:         IdleLoad{Seconds: 10, TransactionsPerSecond: 5, GatewaysCPU: 0.03, PostgresCPU: new(0.04)},
			DrainSeconds: 20, GrantsPerSecond: 500,
		}},
	}
}

func TestRatiosStayWhereTheMachineDrifts(t *testing.T) {
	report := twoRounds()
	wakeUps := report.WakeUpLines()
	want := WakeUpLine{nameFencegate, 1000, bench.Spread{Median: 4.5, Low: 3, High: 6},
		bench.Spread{Median: 10, Low: 9, High: 11},
		bench.Spread{Median: 1.5, Low: 1.5, High: 1.5}}
	if len(wakeUps) != 2 || wakeUps[0] != want {
		t.Errorf("got %+v, want %+v first", wakeUps, want)
	}
	cycles := report.CycleLines()
	if len(cycles) != 3 || cycles[0].Ratio != (bench.Spread{Median: 1.625, Low: 1.25, High: 2}) ||
		cycles[0].PerSecond != (bench.Spread{Median: 750, Low: 500, High: 1000}) || cycles[1].Ratio.Median != 1 {
		t.Errorf("got %+v", cycles)
	}
}

func TestTables(t *testing.T) {
	var out strings.Builder
	if err := twoRounds().WriteTables(&out); err != nil {
		t.Fatal(err)
	}
	const want = `2 CPUs, go1.26, PostgreSQL 15.4, fsync on, synchronous_commit on, a flush takes 120 µs
etcd: 3.4.23
skipped: redis: redis-server: not on this machine

Wake-up: from the release to the next waiter's grant

    service  hand-offs  p50 ms   (min   max)  p99 ms   (min    max)  p50 to etcd   (min   max)
  fencegate       1000    4.50  (3.00  6.00)   10.00  (9.00  11.00)         1.50  (1.50  1.50)
       etcd       1000    3.00  (2.00  4.00)    6.00  (4.00   8.00)         1.00  (1.00  1.00)

Cycles: acquire and release

  locks  clients    service  cycles/s  (min   max)  p50 ms  p99 ms  to etcd   (min   max)
    own        8  fencegate       750  (500  1000)    1.50    4.50     1.62  (1.25  2.00)
    own        8       etcd       525  (250   800)    3.00    7.50     1.00  (1.00  1.00)
    one        8  fencegate       100  (100   100)    8.00   30.00        -     (-     -)

Leases: acquire and release, and heartbeats; Redis with persistence off

  operation  clients    service  per second   (min   max)  p50 ms  p99 ms  to redislock   (min   max)
  heartbeat        8      redis         900   (900   900)    1.00    2.00          0.75  (0.75  0.75)
  heartbeat        8  redislock        1200  (1200  1200)    1.00    2.00          1.00  (1.00  1.00)

PostgreSQL's transactions for a heartbeat

  service  heartbeats  transactions  of them background  per heartbeat
                  100           250                  50          2.000

Crowd: 10000 wait for one lock at two gateways, over 50 connections (h2c; 20000 open files allowed); 10 s idle

                               figure  median    (min    max)
               seconds until all wait    12.0   (12.0   12.0)
         gateway's memory before, MiB    25.0   (20.0   30.0)
                gateway's memory, MiB    90.0   (80.0  100.0)
     gateway's memory per waiter, KiB    13.0   (12.0   14.0)
         transactions/s, nobody waits     4.0    (4.0    4.0)
             transactions/s, all wait     5.0    (5.0    5.0)
    PostgreSQL's CPU, nobody waits, %     2.0    (2.0    2.0)
        PostgreSQL's CPU, all wait, %     4.0    (4.0    4.0)
  both gateways' CPU, nobody waits, %     1.0    (1.0    1.0)
      both gateways' CPU, all wait, %     3.0    (3.0    3.0)
                     seconds to drain    20.0   (20.0   20.0)
             grants/s while it drains   500.0  (500.0  500.0)
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}

func TestGoalsCompareRatiosOfTheSameRound(t *testing.T) {
	met := map[string]string{}
	for _, goal := range twoRounds().Goals() {
		met[goal.Name] = fmt.Sprint(goal.Figure.Median, goal.Measured() && goal.Met())
	}
	for name, want := range map[string]string{
		"a lock each, 8 clients: fencegate / etcd":       "1.625 true",
		"a lock each, 64 clients: fencegate / etcd":      "NaN false",
		"one lock, 64 clients: cycles/s":                 "NaN false",
		"waiters of one lock: grants/s while they drain": "500 false",
	} {
		if met[name] != want {
			t.Errorf("%s: got %q, want %q; all: %v", name, met[name], want, met)
		}
	}
}

func TestTablesOfNothing(t *testing.T) {
	var out strings.Builder
	if err := (Report{}).WriteTables(&out); err != nil || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%v: %q", err, out.String())
	}
}

// NaN has no place in JSON: it would make the whole report unwritable.
func TestJSONOfEveryReport(t *testing.T) {
	elsewhere := twoRounds()
	elsewhere.Crowds[0].Idle.PostgresCPU = nil
	for _, report := range []Report{{}, twoRounds(), elsewhere} {
		text, err := json.Marshal(report)
		if err != nil || !json.Valid(text) {
			t.Errorf("%v: %s", err, text)
		}
	}
}

func TestFiguresThatNoRoundHasAreLeftOut(t *testing.T) {
	report := twoRounds()
	report.Crowds[0].Empty.PostgresCPU, report.Crowds[0].Idle.PostgresCPU = nil, nil
	var names []string
	for _, line := range report.CrowdLines() {
		names = append(names, line.Figure)
	}
	if len(names) != 10 || slices.ContainsFunc(names,
		func(name string) bool { return strings.Contains(name, "PostgreSQL") }) {
		t.Errorf("got %q", names)
	}
	if lines := (Report{}).CrowdLines(); lines != nil {
		t.Errorf("got %v of nothing", lines)
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{
		Measure: []string{Crowd}, Rounds: 1, HandOffs: 1, Clients: []int{1}, Duration: time.Second, Waiters: 2,
		Protocol: HTTP1, Gateways: []int{1},
		Idle: time.Second, Connections: 2,
	}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for flag, spoil := range map[string]func(*Config){
		"--measure":        func(c *Config) { c.Measure = nil },
		"--rounds":         func(c *Config) { c.Rounds = 0 },
		"--hand-offs":      func(c *Config) { c.HandOffs = 0 },
		"--clients":        func(c *Config) { c.Clients = []int{1, 0} },
		"--duration":       func(c *Config) { c.Duration = 0 },
		"--waiters":        func(c *Config) { c.Waiters = 1 },
		"--idle":           func(c *Config) { c.Idle = 0 },
		"--crowd-protocol": func(c *Config) { c.Protocol = "h3" },
		"--connections":    func(c *Config) { c.Connections = 1 },
		"--gateways":       func(c *Config) { c.Gateways = nil },
	} {
		config := good
		spoil(&config)
		if err := config.check(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}
