//go:build unix

package writes

import (
	"context"

	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/bench/floor"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/internal/testenv/process"
)

// TestMain runs the tests, or the empty handler for a test.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == floor.Command {
		if err := floor.Serve(context.Background(), os.Args[3]); err != nil {
			panic(err)
		}
	}
	os.Exit(postgres.Main(m))
}

// config measures everything in a short time, on a database of its own.
func config(t *testing.T) Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Program: process.Build(t), FloorProgram: self, DatabaseURL: postgres.Empty(t),
		Measure: []string{Throughput, Latency, Sizes, Fences, Refusals, Dashboards},
		Clients: []int{1, 6}, Rounds: 1, Duration: 40 * time.Millisecond, WarmUp: 5 * time.Millisecond,
		Resources: 20, Hot: 3, ValueBytes: 100, Connections: 4,
		Sizes: []int{8, 70_000}, Fences: []int{50}, Gateways: []int{2}, ZombieRates: []float64{500, 0}, Dashboards: 4,
		Progress: func(line string) { t.Log(line) },
	}
}

// checkSkipped lets ZooKeeper be absent: scripts/test-deps does not install it, as it brings Java. The others must be
// there on CI.
func checkSkipped(t *testing.T, report Report) {
	t.Helper()
	for what, why := range report.Skipped {
		if os.Getenv("CI") == "true" && what != nameZooKeeper {
			t.Errorf("skipped: %s: %s", what, why)
		}
	}
}

func TestEverythingIsMeasured(t *testing.T) {
	config := config(t)
	report, err := Run(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	checkSkipped(t, report)
	for _, failure := range report.Failed {
		t.Error(failure)
	}
	got := map[string]int{}
	for _, s := range report.Samples {
		if s.Writes < 1 || s.PerSecond <= 0 || s.P50MS <= 0 || s.P99MS < s.P50MS || s.MaxMS < s.P99MS || s.Seconds <= 0 {
			t.Errorf("%+v", s)
		}
		got[fmt.Sprintf("%s, %s, %d clients, %d resources, %d bytes%s", s.Measure, s.Target, s.Clients, s.Resources,
			s.ValueBytes, prefixed(", ", s.Load))]++
	}
	for _, want := range expected(config, report) {
		if got[want] != 1 {
			t.Errorf("%s: %d samples", want, got[want])
		}
		delete(got, want)
	}
	for what, samples := range got {
		t.Errorf("%s: %d samples that the configuration does not name", what, samples)
	}
	checkOutput(t, report)
}

// expected names all samples that the configuration is for.
func expected(config Config, report Report) (want []string) {
	for _, target := range append(TargetNames(), fleetName(2)) {
		if _, skipped := report.Skipped[target]; skipped {
			continue
		}
		for _, clients := range config.Clients {
			for _, resources := range []int{config.Resources, config.Hot} {
				want = append(want, fmt.Sprintf("throughput, %s, %d clients, %d resources, 100 bytes", target, clients, resources))
			}
		}
	}
	for _, target := range []string{nameDirect, nameHandmade, nameStore, nameHTTP} {
		for _, load := range []string{loadFull, loadHalf, loadHalfDirect} {
			want = append(want, fmt.Sprintf("latency, %s, 6 clients, 20 resources, 100 bytes, %s", target, load))
		}
	}
	for _, target := range []string{nameDirect, nameStore, nameHTTP} {
		want = append(want, fmt.Sprintf("fences, %s, 6 clients, 50 resources, 100 bytes", target))
		for _, size := range config.Sizes {
			want = append(want, fmt.Sprintf("sizes, %s, 6 clients, 20 resources, %d bytes", target, size))
		}
	}
	for _, target := range []string{nameFloor, nameRefused} {
		want = append(want, fmt.Sprintf("refusals, %s, 6 clients, 20 resources, 100 bytes", target))
	}
	for _, load := range []string{loadAlone, besideZombies(500), besideZombies(0)} {
		want = append(want, fmt.Sprintf("refusals, http, 6 clients, 20 resources, 100 bytes, %s", load))
	}
	for _, load := range []string{loadAlone, besideDashboards(4)} {
		want = append(want, fmt.Sprintf("dashboards, http, 6 clients, 20 resources, 100 bytes, %s", load))
	}
	return want
}

func checkOutput(t *testing.T, report Report) {
	t.Helper()
	var tables, goals, plot bytes.Buffer
	if err := report.WriteTables(&tables); err != nil || strings.Contains(tables.String(), "NaN") {
		t.Errorf("%v\n%s", err, &tables)
	}
	t.Logf("\n%s", &tables)
	if err := report.WriteGoals(&goals); err != nil || !strings.Contains(goals.String(), "refused / empty handler") {
		t.Errorf("%v\n%s", err, &goals)
	}
	if err := report.WritePlot(&plot); err != nil || !strings.Contains(plot.String(), ">handmade</text>") {
		t.Errorf("%v\n%s", err, &plot)
	}
}

func TestInvalidConfigs(t *testing.T) {
	for flag, change := range map[string]func(*Config){
		"--clients":      func(c *Config) { c.Clients = []int{1, 0} },
		"--rounds":       func(c *Config) { c.Rounds = 0 },
		"--measure":      func(c *Config) { c.Measure = nil },
		"--value-bytes":  func(c *Config) { c.ValueBytes = 7 },
		"--connections":  func(c *Config) { c.Connections = 1 },
		"--resources":    func(c *Config) { c.Resources, c.Hot = 0, 0 },
		"--sizes":        func(c *Config) { c.Sizes = []int{valueBytesMax + 1} },
		"--fences":       func(c *Config) { c.Fences = []int{0} },
		"--gateways":     func(c *Config) { c.Gateways = []int{1} },
		"leave --url":    func(c *Config) { c.Gateways, c.GatewayURL = []int{2}, "http://127.0.0.1:1" },
		"--dashboards":   func(c *Config) { c.Dashboards = 1001 },
		"--zombie-rates": func(c *Config) { c.ZombieRates = []float64{-1} },
		"--targets":      func(c *Config) { c.Targets = []string{"mysql"} },
	} {
		c := Config{Measure: []string{Throughput}, Clients: []int{1}, Rounds: 1, Duration: time.Second, Resources: 1,
			ValueBytes: 8, Connections: 2}
		if err := c.check(); err != nil {
			t.Fatal(err)
		}
		change(&c)
		if err := c.check(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}
