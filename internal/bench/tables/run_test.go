package tables

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

func TestEverythingIsMeasured(t *testing.T) {
	config := Config{
		DatabaseURL: postgres.Empty(t), Progress: func(line string) { t.Log(line) },
		Measure: []string{Writes, Five, Bulk, Plans, Pgbench}, Clients: []int{1, 3}, Rounds: 1,
		Duration: 20 * time.Millisecond, WarmUp: 5 * time.Millisecond, Rows: 500, BulkRows: 40, BulkResources: 4,
		PgbenchTransactions: 5,
	}
	report, err := Run(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if why := report.Skipped[Pgbench]; why != "" && os.Getenv("CI") == "true" {
		t.Error(why)
	}
	got := map[string]int{}
	for _, s := range report.Samples {
		if s.PerSecond < 0 || s.Milliseconds <= 0 || s.P99MS < s.P50MS {
			t.Errorf("%+v", s)
		}
		got[s.Case.String()+": "+s.Target]++
	}
	for _, want := range expected(config, report) {
		if got[want] != 1 {
			t.Errorf("%s: %d samples", want, got[want])
		}
		delete(got, want)
	}
	if len(got) > 0 {
		t.Errorf("samples that the configuration does not name: %v", got)
	}
	for _, s := range report.Scans {
		if s.Table == "fence.fences" && (s.Index < int64(s.Rows) || s.Sequential > 0) {
			t.Errorf("%+v: want the fence of each row looked up by the index", s)
		}
	}
	checkOutput(t, report)
}

// expected names all samples that the configuration is for.
func expected(config Config, report Report) (want []string) {
	for _, clients := range config.Clients {
		for _, target := range writeTargets {
			want = append(want, fmt.Sprintf("writes, %d clients: %s", clients, target.name))
			if report.Skipped[Pgbench] == "" {
				want = append(want, fmt.Sprintf("pgbench, %d clients: %s", clients, target.name))
			}
		}
		for _, target := range fiveTargets {
			want = append(want, fmt.Sprintf("five, %d clients: %s", clients, target.name))
		}
	}
	for _, resources := range []int{1, config.BulkResources} {
		for _, target := range []string{"bulk_plain", "bulk_protected", "bulk_partitioned", "bulk_partitioned_protected",
			"guards of bulk_protected", "guards of bulk_partitioned_protected"} {
			want = append(want, fmt.Sprintf("bulk: 40 rows of %d resources: %s", resources, target))
		}
	}
	return want
}

func checkOutput(t *testing.T, report Report) {
	t.Helper()
	var tables, goals bytes.Buffer
	if err := report.WriteTables(&tables); err != nil || strings.Contains(tables.String(), "NaN") {
		t.Errorf("%v\n%s", err, &tables)
	}
	if err := report.WriteGoals(&goals); err != nil || !strings.Contains(goals.String(), "bulk_protected / bulk_plain") {
		t.Errorf("%v\n%s", err, &goals)
	}
	t.Logf("\n%s%s", &tables, &goals)
}

func TestInvalidConfigs(t *testing.T) {
	for flag, change := range map[string]func(*Config){
		"--clients":   func(c *Config) { c.Clients = []int{1, 0} },
		"--rounds":    func(c *Config) { c.Rounds = 0 },
		"--measure":   func(c *Config) { c.Measure = nil },
		"--rows":      func(c *Config) { c.Clients = []int{3} },
		"--bulk-rows": func(c *Config) { c.BulkResources = 11 },
		"--targets":   func(c *Config) { c.Targets = []string{"mysql"} },
	} {
		c := Config{Measure: []string{Writes}, Clients: []int{1}, Rounds: 1, Duration: time.Second, Rows: 10, BulkRows: 10,
			BulkResources: 10}
		if err := c.check(); err != nil {
			t.Fatal(err)
		}
		change(&c)
		if err := c.check(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}
