//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/bench/writes"
)

func TestWritesIsTheDefaultCommand(t *testing.T) {
	for want, args := range map[string][]string{
		"writes": {"--clients", "1,8", "--rounds", "2", "--targets", "direct,store", "--goals"},
	} {
		parser, err := newParser(output{}, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		selected, err := parser.Parse(args)
		if err != nil || selected.Command() != want {
			t.Errorf("%q: got %v, %v", args, selected, err)
		}
	}
}

func TestBenchShowsAnEarlierRunAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	report := writes.Report{Samples: []writes.Sample{{Case: writes.Case{Measure: writes.Throughput, Clients: 8},
		Target: "direct", Round: 1, PerSecond: 7}}}
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errors bytes.Buffer
	plot := filepath.Join(t.TempDir(), "plot.svg")
	if code := run(t.Context(), []string{"writes", "--from", file, "--goals", "--plot", plot}, &out, &errors); code != 0 {
		t.Fatalf("exit %d: %s", code, &errors)
	}
	drawn, err := os.ReadFile(plot)
	if err != nil || !bytes.Contains(drawn, []byte("</svg>")) {
		t.Errorf("the plot is %q, %v", drawn, err)
	}
	for _, want := range []string{"direct", "store / direct, 64 clients", "not measured"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}

func TestBenchOfARunningGatewayNeedsItsDatabase(t *testing.T) {
	var out, errors bytes.Buffer
	code := run(t.Context(), []string{"writes", "--url", "http://127.0.0.1:1"}, &out, &errors)
	if code == 0 || !strings.Contains(errors.String(), "--database-url") {
		t.Errorf("exit %d: %s", code, &errors)
	}
}
