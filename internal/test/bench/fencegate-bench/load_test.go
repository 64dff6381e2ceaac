//go:build unix

package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/load"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// loaded runs "load", and returns its exit code and what it wrote.
func loaded(ctx context.Context, args ...string) (code int, out, progress string) {
	var stdout, stderr process.Buffer
	code = run(ctx, append([]string{"load"}, args...), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// runLoad runs a small load, and returns its exit code, its report and its progress.
func runLoad(t *testing.T, flags ...string) (code int, report load.Report, progress string) {
	t.Helper()
	code, out, progress := loaded(t.Context(), append([]string{"--clients", "24", "--locks", "4", "--duration", "3s",
		"--output", "json"}, flags...)...)
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("load exited with %d: %s%s: %v", code, out, progress, err)
	}
	return code, report, progress
}

// TestLoadFindsNoFault checks that the clients do all that is checked, on two gateways and beside every kind of
// pressure, and see no violation.
func TestLoadFindsNoFault(t *testing.T) {
	t.Parallel()
	databaseURL := postgres.Migrated(t)
	one, other := gateway.Serve(t, databaseURL), gateway.Serve(t, databaseURL)
	var report load.Report
	var progress string
	calls, admitted := map[load.Pressure]int64{}, int64(0)
	made := func(kind load.Pressure) bool { return calls[kind] > 0 }
	enough := false
	// a busy machine gets little done in one run
	for run := 0; run < 10 && !enough && !t.Failed(); run++ {
		var code int
		code, report, progress = runLoad(t, "--url", one.URL, "--url", other.URL, "--seed", "7", "--pressure",
			"queue,fence,zombies,sessions", "--waiters", "100", "--database-url", databaseURL)
		counts := report.Counts
		if code != 0 || report.ViolationsTotal != 0 || counts.Unexpected != 0 || report.Unread != 0 {
			t.Errorf("load exited with %d: %+v\n%s", code, report, progress)
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
	if !strings.Contains(progress, "s  24 clients  ") || !strings.Contains(progress, "0 violations\n") {
		t.Errorf("the progress is %q", progress)
	}
}

// TestLoadRefuses checks that a load that can't be run fails, and says why.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	for why, args := range map[string][]string{
		"--database-url": {"--pressure", "fence", "--database-url="}, "it can be": {"--pressure", "rain"},
		"10001 clients": {"--clients", "10001"}, "-1 locks": {"--locks=-1"}, "connection refused": {"--url", "http://127.0.0.1:1"},
	} {
		code, _, failure := loaded(t.Context(), append(args, "--duration", "1s")...)
		if code != 1 || !strings.Contains(failure, why) {
			t.Errorf("load %q exited with %d: %s", args, code, failure)
		}
	}
}

// TestLoadFindsABrokenRule breaks the rule in the database: nothing is stale any more.
func TestLoadFindsABrokenRule(t *testing.T) {
	t.Parallel()
	databaseURL := postgres.Migrated(t)
	url := gateway.Serve(t, databaseURL).URL
	postgres.BreakRule(t, databaseURL)
	found := map[string]bool{}
	// a busy machine gets few holders past their TTL in one run
	for run := 0; run < 10 && !(found["P3"] && found["P10"]); run++ {
		_, report, _ := runLoad(t, "--url", url)
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
	code, out, failure := loaded(t.Context(), "--url", url, "--clients", "24", "--locks", "4", "--duration", "1s")
	if code != 1 || !strings.Contains(out, "\nVIOLATIONS: ") ||
		!strings.Contains(failure, "fencegate-bench: the contract was violated") {
		t.Errorf("load exited with %d: %s%s", code, out, failure)
	}
}

// TestLoadIsInterrupted checks that a load that is interrupted reports what it saw.
func TestLoadIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, progress process.Buffer
	args := []string{"load", "--url", gateway.Serve(t, postgres.Migrated(t)).URL, "--clients", "8", "--duration", "1h"}
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, args, &out, &progress) }()
	await.True(t, "the load starts", func() bool { return strings.Contains(progress.String(), "8 clients") })
	interrupt()
	if code := <-ended; code != 0 || !strings.Contains(out.String(), "interrupted\n") ||
		!strings.Contains(out.String(), "\nno violations\n") {
		t.Errorf("it exited with %d: %s%s", code, &out, &progress)
	}
}
