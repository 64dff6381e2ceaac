package writes

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/bench"
)

// report has two rounds, in each of which store is three times as fast as direct.
func report() Report {
	r := Report{
		Environment: bench.Environment{CPUs: 2, Go: "go1.26"}, Resources: 100, Hot: 4, ValueBytes: 256, Connections: 16,
		Participants: bench.Participants{Skipped: map[string]string{"etcd": "etcd: not on this machine"}},
	}
	sample := func(target string, clients, round int, perSecond, p99 float64) {
		r.Samples = append(r.Samples, Sample{
			Case:   Case{Measure: Throughput, Clients: clients, Resources: 100, ValueBytes: 256},
			Target: target, Round: round, PerSecond: perSecond, P50MS: 1, P99MS: p99, WALBytesPerWrite: 200,
			CPUMicroseconds: map[string]float64{roleLoad: 10, rolePostgres: 20},
		})
	}
	for _, clients := range []int{8, 64} {
		sample(nameDirect, clients, 1, 4000, 4)
		sample(nameStore, clients, 1, 12000, 2)
		sample(nameDirect, clients, 2, 1000, 8)
		sample(nameStore, clients, 2, 3000, 16)
	}
	return r
}

func TestTables(t *testing.T) {
	var tables bytes.Buffer
	if err := report().WriteTables(&tables); err != nil {
		t.Fatal(err)
	}
	const want = `2 CPUs, go1.26, PostgreSQL , fsync , synchronous_commit ; 16 connections of the store and of the gateway
skipped: etcd: etcd: not on this machine

throughput: 100 resources, 256-byte values

  clients  target  writes/s   (min    max)  p50 ms  p99 ms  to direct   (min   max)  WAL B  CPU µs: load  postgres  server
        8  direct      2500  (1000   4000)    1.00    6.00       1.00  (1.00  1.00)    200          10.0      20.0     0.0
        8   store      7500  (3000  12000)    1.00    9.00       3.00  (3.00  3.00)    200          10.0      20.0     0.0
       64  direct      2500  (1000   4000)    1.00    6.00       1.00  (1.00  1.00)    200          10.0      20.0     0.0
       64   store      7500  (3000  12000)    1.00    9.00       3.00  (3.00  3.00)    200          10.0      20.0     0.0
`
	if tables.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &tables, want)
	}
}

func TestGoalsAreJudgedByTheMedianOfTheRounds(t *testing.T) {
	want := map[string]string{
		"store / direct, 64 clients":               "met",
		"store / direct, 256 clients":              "not measured",
		"p99 of store / p99 of direct, 64 clients": "missed",
		"store / etcd, 64 clients":                 "not measured",
	}
	var text bytes.Buffer
	if err := report().WriteGoals(&text); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		name, rest, _ := strings.Cut(line, "  ")
		verdict, asked := want[name]
		if asked && !strings.HasSuffix(strings.TrimSpace(rest), verdict) {
			t.Errorf("%s: %s, want %s", name, rest, verdict)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not among the goals: %v\n%s", want, &text)
	}
}

func TestAReportCanBeReadAgain(t *testing.T) {
	text, err := json.Marshal(report())
	if err != nil {
		t.Fatal(err)
	}
	var again Report
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if err := errors.Join(report().WriteTables(&first), again.WriteTables(&second)); err != nil ||
		first.String() != second.String() {
		t.Errorf("%v\n%s\nwas\n%s", err, &second, &first)
	}
}

func TestThePlotIsXMLWithAllLines(t *testing.T) {
	var plot bytes.Buffer
	if err := report().WritePlot(&plot); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(plot.String(), "<polyline"); lines != 2 || strings.Contains(plot.String(), "NaN") {
		t.Errorf("%d lines\n%s", lines, &plot)
	}
	decoder := xml.NewDecoder(&plot)
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
