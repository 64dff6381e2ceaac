package main

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/load"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// runLoad runs a small load, and returns its report.
func runLoad(t *testing.T, s shell, flags ...string) (result, load.Report) {
	t.Helper()
	got := s.do(append([]string{"load", "--clients", "24", "--locks", "4", "--duration", "3s", "--output", "json"},
		flags...)...)
	var report load.Report
	if err := json.Unmarshal([]byte(got.out), &report); err != nil {
		t.Fatalf("load exited with %d: %s%s: %v", got.code, got.out, got.errOut, err)
	}
	return got, report
}

// TestLoadFindsNoFault checks that the clients do all that is checked, on two gateways and beside every kind of
// pressure, and see no violation.
func TestLoadFindsNoFault(t *testing.T) {
	t.Parallel()
	databaseURL := postgres.Migrated(t)
	s, other := newShellOn(t, databaseURL), newShellOn(t, databaseURL)
	var got result
	var report load.Report
	calls, admitted := map[load.Pressure]int64{}, int64(0)
	made := func(kind load.Pressure) bool { return calls[kind] > 0 }
	enough := false
	// a busy machine gets little done in one run
	for run := 0; run < 10 && !enough && !t.Failed(); run++ {
		got, report = runLoad(t, s, "--url", s.url, "--url", other.url, "--seed", "7", "--pressure",
			"queue,fence,zombies,sessions", "--waiters", "100", "--database-url", databaseURL)
		counts := report.Counts
		if got.code != 0 || report.ViolationsTotal != 0 || counts.Unexpected != 0 || report.Unread != 0 {
			t.Errorf("load exited with %d: %s%s", got.code, got.out, got.errOut)
		}
		for _, p := range report.Pressure {
			calls[p.Kind] += p.Calls
		}
		admitted += counts.Admitted
		enough = admitted > 0 && counts.Grants > 0 && counts.SharedGrants > 0 && counts.Repeats > 0 &&
			len(slices.DeleteFunc(slices.Clone(load.Pressures), made)) == 0
	}
	if !enough || report.Seed != 7 || len(report.Gateways) != 2 {
		t.Errorf("too little was done, %d writes and the calls %v: %+v", admitted, calls, report)
	}
	if !strings.Contains(got.errOut, "s  24 clients  ") || !strings.Contains(got.errOut, "0 violations\n") {
		t.Errorf("the progress is %q", got.errOut)
	}
	s.fails(2, "--database-url", "load", "--pressure", "fence", "--database-url=", "--duration", "1s")
	s.fails(2, "it can be", "load", "--pressure", "rain", "--duration", "1s")
	shell{t, "http://127.0.0.1:1"}.fails(7, "Is the gateway running there?", "load", "--duration", "1s")
}

// TestLoadFindsABrokenRule breaks the rule in the database: nothing is stale any more.
func TestLoadFindsABrokenRule(t *testing.T) {
	t.Parallel()
	databaseURL := postgres.Migrated(t)
	s := newShellOn(t, databaseURL)
	postgres.BreakRule(t, databaseURL)
	found := map[string]bool{}
	// a busy machine gets few holders past their TTL in one run
	for run := 0; run < 10 && !(found["P3"] && found["P10"]); run++ {
		_, report := runLoad(t, s)
		for _, violation := range report.Violations {
			found[violation.Property] = true
		}
		if report.ViolationsTotal < int64(len(report.Violations)) {
			t.Errorf("%d violations are listed, %d counted", len(report.Violations), report.ViolationsTotal)
		}
	}
	if !found["P3"] || !found["P10"] {
		t.Errorf("it found %v", found)
	}
	text := s.do("load", "--clients", "24", "--locks", "4", "--duration", "1s")
	if text.code != 1 || !strings.Contains(text.out, "\nVIOLATIONS: ") ||
		!strings.Contains(text.errOut, "fencegate: the contract was violated") {
		t.Errorf("load exited with %d: %s%s", text.code, text.out, text.errOut)
	}
}

func TestLoadIsInterrupted(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	p := s.start("load", "--clients", "8", "--duration", "1h")
	await.True(t, "the load starts", func() bool { return strings.Contains(p.errOut.String(), "8 clients") })
	p.signal(syscall.SIGINT)
	got := p.wants(0, "")
	if !strings.Contains(got.out, "interrupted\n") || !strings.Contains(got.out, "\nno violations\n") {
		t.Errorf("it printed %s", got.out)
	}
}
