//go:build unix

package writes

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
	"github.com/fencegate/fencegate/internal/gatewayprocess"
	"github.com/fencegate/fencegate/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestEverythingIsMeasured(t *testing.T) {
	program := filepath.Join(t.TempDir(), "fencegate")
	output, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "github.com/fencegate/fencegate/cmd/fencegate").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	url := pgtest.Migrated(t)
	gateway, err := gatewayprocess.Start(t.Context(), program, "--database-url", url)
	if err != nil {
		t.Fatal(err)
	}
	defer gateway.Kill()
	told := 0
	report, err := Run(t.Context(), Config{
		DatabaseURL: url, GatewayURL: gateway.URL, Clients: []int{1, 4}, Rounds: 2, Duration: 50 * time.Millisecond, WarmUp: 10 * time.Millisecond,
		Resources: 10, ValueBytes: 100, Connections: 4, Progress: func(Sample) { told++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Samples) != 12 || told != 12 || len(report.Lines()) != 6 {
		t.Errorf("%d samples, %d told, %d lines", len(report.Samples), told, len(report.Lines()))
	}
	for _, s := range report.Samples {
		if s.Writes < s.Clients || s.PerSecond <= 0 || s.P50MS <= 0 || s.P99MS < s.P50MS {
			t.Errorf("%+v", s)
		}
	}
	var table bytes.Buffer
	if err := report.WriteTable(&table); err != nil || strings.Contains(table.String(), "NaN") {
		t.Errorf("%v\n%s", err, &table)
	}
}

func TestTable(t *testing.T) {
	report := Report{Resources: 10, ValueBytes: 256, Connections: 16, Environment: bench.Environment{CPUs: 2, Go: "go1.26"}, Samples: []Sample{
		{Target: "direct", Clients: 8, Round: 1, PerSecond: 4000, P50MS: 1, P99MS: 2},
		{Target: "http", Clients: 8, Round: 1, PerSecond: 1000, P50MS: 4, P99MS: 8},
		{Target: "direct", Clients: 8, Round: 2, PerSecond: 1000, P50MS: 3, P99MS: 6},
		{Target: "http", Clients: 8, Round: 2, PerSecond: 500, P50MS: 6, P99MS: 12},
	}}
	var table bytes.Buffer
	if err := report.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	const want = `2 CPUs, go1.26, PostgreSQL , fsync , synchronous_commit , 10 resources, 256-byte values, 16 connections

  clients  target  writes/s   (min   max)  p50 ms  p99 ms  to direct   (min   max)
        8  direct      2500  (1000  4000)    2.00    4.00       1.00  (1.00  1.00)
        8    http       750   (500  1000)    5.00   10.00       0.38  (0.25  0.50)
`
	if table.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &table, want)
	}
}
