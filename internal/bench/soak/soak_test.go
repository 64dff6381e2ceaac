//go:build unix

package soak

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/load"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/internal/testenv/process"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

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
		report := Report{Load: &load.Report{}}
		for i := range 90 {
			report.Samples = append(report.Samples, Sample{Values: map[Series]float64{{heap, "gateway-1"}: c.value(i)}})
		}
		var out bytes.Buffer
		if err := report.WriteText(&out); (err == nil) != c.flat {
			t.Errorf("%s: %v\n%s", name, err, &out)
		}
	}
}

// TestSoak checks that each sample has all that is measured.
func TestSoak(t *testing.T) {
	report, err := Run(t.Context(), Config{
		Program: process.Build(t), DatabaseURL: postgres.Empty(t), Duration: 3 * time.Second, Every: 200 * time.Millisecond,
		Clients: 4, Locks: 8, Names: 50, Snapshot: 300 * time.Millisecond, Progress: func(line string) { t.Log(line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	_ = report.WriteText(&out) // 3 s are too short to be flat
	for _, want := range []string{
		memory.name, heap.name, goroutines.name, descriptors.name, pooled.name, connections.name, deadRows.name, logFiles.name,
		"rejections_group", "leases_pkey", "gateway-2", "no violations",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	for _, trend := range trends(report.Samples) {
		if trend.Kind == pooled && trend.Peak == 0 || trend.Kind == names && trend.Last <= trend.First {
			t.Errorf("%+v", trend)
		}
	}
}
