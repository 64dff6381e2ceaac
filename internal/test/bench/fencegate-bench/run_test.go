//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// TestMain runs the tests, or the empty handler for a test.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "floor" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(postgres.Main(m))
}

// reported runs a command on a database of its own, and returns its report.
func reported(t *testing.T, args ...string) (report rig.Report) {
	t.Helper()
	var out, progress bytes.Buffer
	args = append(args, "--database-url", postgres.Empty(t), "--program", process.Build(t), "--output", "json")
	if code := run(t.Context(), args, &out, &progress); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &progress)
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	for what, why := range report.Skipped {
		// scripts/test-deps does not install ZooKeeper, as it brings Java.
		if os.Getenv("CI") == "true" && what != "zookeeper" {
			t.Errorf("skipped: %s: %s", what, why)
		}
	}
	var text strings.Builder
	if err := report.WriteText(&text, nil); err != nil || strings.Contains(text.String(), "NaN") {
		t.Errorf("%v\n%s", err, &text)
	}
	t.Logf("\n%s", &text)
	return report
}

// measured checks that each target of each case was measured once in each round, and nothing else.
func measured(t *testing.T, report rig.Report, rounds int, want map[string][]string) {
	t.Helper()
	got := map[string][]string{}
	for _, s := range report.Samples {
		if s.Values[0].Of <= 0 && !strings.HasPrefix(s.Table, "crowd") {
			t.Errorf("%+v: nothing was measured", s)
		}
		if s.Round == rounds {
			row := s.Table + ", " + s.Case
			got[row] = append(got[row], s.Target)
		}
	}
	for _, row := range slices.Sorted(maps.Keys(want)) {
		targets := slices.DeleteFunc(want[row], func(target string) bool { return report.Skipped[target] != "" })
		slices.Sort(targets)
		slices.Sort(got[row])
		if !slices.Equal(got[row], targets) {
			t.Errorf("%s: measured were %q, want %q", row, got[row], targets)
		}
		delete(got, row)
	}
	if len(got) > 0 {
		t.Errorf("nobody asked for %q", got)
	}
}

func TestTables(t *testing.T) {
	report := reported(t, "tables", "--clients", "1,3", "--rounds", "1", "--duration", "20ms", "--warm-up", "5ms",
		"--rows", "500", "--bulk-rows", "40", "--bulk-resources", "4")
	bulk := []string{"plain", "protected", "partitioned", "partitioned_protected"}
	want := map[string][]string{"bulk, 40 rows of 1 resources": bulk, "bulk, 40 rows of 4 resources": bulk}
	for _, clients := range []string{"1 clients", "3 clients"} {
		want["writes, "+clients] = transactionNames()
		want["five, "+clients] = []string{"five", "five-protected", "five-steps", "five-steps-protected"}
		want["claims, "+clients] = []string{"plain queue", "claim 1", "claim 10", "claim 100"}
	}
	measured(t, report, 1, want)
	if goals := (&tablesCmd{BulkRows: 40, BulkResources: 4}).goals(report); len(goals) < 3 {
		t.Errorf("got %+v", goals)
	}
}

func TestLocks(t *testing.T) {
	report := reported(t, "locks", "--clients", "1,4", "--rounds", "2", "--duration", "50ms", "--warm-up", "10ms",
		"--connections", "4", "--hand-offs", "3", "--waiters", "60", "--idle", "100ms")
	one := []string{"fencegate", "etcd", "redis", redisFsync}
	both := append([]string{"fencegate x2"}, one...)
	leases := []string{"postgres", "postgres http"}
	if report.Skipped["leases in Redis"] == "" {
		leases = append(leases, "redis", "redis http", "redlock 3", "redlock 3 http", "redlock 5", "redlock 5 http",
			"redsync 1", "redsync 3", "redislock")
	}
	want := map[string][]string{
		"wake-up, 3 hand-offs":         {"fencegate", "fencegate x2", "etcd"},
		"cycles, own locks, 1 clients": one, "cycles, own locks, 4 clients": both, "cycles, one lock, 4 clients": both,
		"leases, acquire and release, 1 clients": leases, "leases, heartbeat, 1 clients": leases,
		"leases, acquire and release, 4 clients": leases, "leases, heartbeat, 4 clients": leases,
	}
	c := &locksCmd{Waiters: 60}
	for _, figure := range []string{"seconds until all wait", "gateways' memory per waiter, KiB", "seconds to drain",
		grantsPerSecond, "PostgreSQL's CPU, nobody waits, %", "PostgreSQL's CPU, all wait, %",
		"both gateways' CPU, nobody waits, %", "both gateways' CPU, all wait, %",
		"both gateways' memory, nobody waits, MiB", "both gateways' memory, all wait, MiB"} {
		want[c.crowdTable()+", "+figure] = []string{"fencegate"}
	}
	measured(t, report, 2, want)
	for _, goal := range c.goals(report) {
		if strings.HasPrefix(goal.Name, "waiters") && goal.Figure.Low <= 0 {
			t.Errorf("%+v", goal)
		}
	}
}

func TestWrites(t *testing.T) {
	report := reported(t, "writes", "--measure", "throughput,latency,sizes,fences,refusals", "--clients", "1,6",
		"--rounds", "1", "--duration", "40ms", "--warm-up", "5ms", "--resources", "20", "--hot", "3", "--connections", "4",
		"--sizes", "8,70000", "--fences", "50", "--gateways", "2", "--zombie-rates", "500,0")
	three := []string{"direct", "store", "http"}
	want := map[string][]string{
		"fences, 50 fences, 6 clients": three, "sizes, 8 bytes, 6 clients": three, "sizes, 70000 bytes, 6 clients": three,
		refusedTable + ", 6 clients": {"floor", "refused"},
		honestTable + ", 6 clients":  {honestAlone, besideZombies(500), besideZombies(0)},
	}
	for _, clients := range []int{1, 6} {
		for _, resources := range []int{20, 3} {
			want["throughput, "+resourcesName(resources, clients)] = append([]string{"http x2"}, writeTargetNames...)
		}
	}
	for _, load := range []string{"as fast as they can", "at half of that", "at half of direct's rate"} {
		want["latency, 6 clients, "+load] = append([]string{"handmade"}, three...)
	}
	measured(t, report, 1, want)
	goals := (&writesCmd{Pace: rig.Pace{Clients: []int{6}}, Resources: 20}).goals(report)
	if i := slices.IndexFunc(goals,
		func(g rig.Goal) bool { return g.Name == "refused / empty handler" }); goals[i].Figure.Low <= 0 {
		t.Errorf("%+v", goals[i])
	}
}

// TestFlush checks that a database with slow flushes is made, and that its samples come into the report.
func TestFlush(t *testing.T) {
	if os.Getenv("FENCEGATE_DATABASE_URL") != "" {
		t.Skip("only a private PostgreSQL's flushes can be slowed down")
	}
	var out, progress bytes.Buffer
	code := run(t.Context(), []string{"writes", "--measure", "flush", "--program", process.Build(t), "--clients", "1",
		"--rounds", "1", "--duration", "100ms", "--resources", "2", "--output", "json"}, &out, &progress)
	var report rig.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v\n%s", code, err, &progress)
	}
	if report.Skipped["flush"] != "" && os.Getenv("CI") != "true" {
		t.Skip(report.Skipped["flush"])
	}
	measured(t, report, 1, map[string][]string{flushTable + ", 2 resources, 1 clients": flushTargets})
}

// TestCPU checks that all is measured. A short time without calls says nothing of the CPU time that is used without them,
// so none is subtracted.
func TestCPU(t *testing.T) {
	report := reported(t, "cpu", "--rounds", "2", "--duration", "100ms", "--idle", "0s")
	measured(t, report, 2, map[string][]string{cpuTable + ", 1 clients": {
		"upsert", "write", "acquire and release", "hand-over to the next waiter", "protected transaction",
	}})
	for _, s := range report.Samples {
		if s.Values[0].Name != rig.PostgresCPU {
			t.Errorf("%s has %s first", s.Target, s.Values[0].Name)
		}
	}
}

func TestNames(t *testing.T) {
	report := reported(t, "names", "--names", "1000,2000", "--rounds", "1", "--calls", "3")
	want := map[string][]string{}
	for _, what := range []string{
		"ms, acquire", "ms, write", "ms, read a record", "ms, release", "ms, leases of a lock", "ms, records of a resource",
		"ms, locks: the first page", "ms, locks: a page in the middle", "ms, locks by prefix",
		"ms, locks that are held: the first page", "ms, locks by contains, found among the first",
		"ms, sweep, its statements together", "ms, a gateway from its start to ready", "ms, inventory",
		"ms, inventory with 5 running leases", "ms, number of locks (count=true)", "bytes, disk, a row of fences",
		"bytes, disk, a row of records", "bytes, disk, a row of leases", "ms, vacuum of fences after changes of 5 %",
		"ms, vacuum of records after changes of 5 %",
	} {
		want["names, "+what] = []string{"1000", "2000"}
	}
	measured(t, report, 1, want)
}

// TestSoak checks that all is measured. 3 s are too short to be flat.
func TestSoak(t *testing.T) {
	var out, progress bytes.Buffer
	code := run(t.Context(), []string{"soak", "--database-url", postgres.Empty(t), "--program", process.Build(t),
		"--duration", "3s", "--every", "200ms", "--clients", "4", "--locks", "8", "--snapshot", "300ms"}, &out, &progress)
	if code != 0 && !strings.Contains(progress.String(), errGrew.Error()) {
		t.Fatalf("exit code %d\n%s", code, &progress)
	}
	for _, want := range append(slices.Collect(maps.Keys(slacks)), "rejections_group", "leases_pkey", "gateway-2",
		"no violations") {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}

// TestFlat checks that a value that rises until the middle and then moves up and down is flat, and that one which rises
// to the end by more than a tenth and the slack is not.
func TestFlat(t *testing.T) {
	for name, c := range map[string]struct {
		value func(i int) float64
		flat  bool
	}{
		"steady from the middle on": {func(i int) float64 { return min(float64(i), 30) * mB }, true},
		"saw":                       {func(i int) float64 { return float64(20+i%7) * mB }, true},
		"one peak":                  {func(i int) float64 { return map[bool]float64{true: 99 * mB}[i == 80] + mB }, true},
		"leak":                      {func(i int) float64 { return float64(20*mB + i*300*kB) }, false},
	} {
		var samples []map[series]float64
		for i := range 90 {
			samples = append(samples, map[series]float64{{"Go heap", "gateway-1"}: c.value(i)})
		}
		if lines, flat := judge(samples); flat != c.flat {
			t.Errorf("%s: flat is %t: %q", name, flat, lines)
		}
	}
}

func TestFlagsAreChecked(t *testing.T) {
	for args, flag := range map[string]string{
		"writes --targets mysql": "--targets", "--resources 0 --hot 0": "--resources", "writes --sizes 1": "--sizes",
		"writes --gateways 1": "--gateways", "writes --zombie-rates=-1": "--zombie-rates",
		"tables --clients 1,0": "--clients", "tables --rounds 0": "--rounds", "tables --targets mysql": "--targets",
		"tables --bulk-resources 200000": "--bulk-resources", "tables --rows 10": "--rows",
		"tables --measure none": "--measure", "locks --gateways 0": "--gateways", "locks --waiters 1": "--waiters", "names --names 1000": "--names",
		"soak --duration 1m": "--duration",
	} {
		var out, failure bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &failure); code == 0 ||
			!strings.Contains(failure.String(), flag) {
			t.Errorf("%s: exit code %d, %s", args, code, &failure)
		}
	}
}
