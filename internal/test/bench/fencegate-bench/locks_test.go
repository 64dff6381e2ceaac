//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/internal/test/load"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/peers"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// openRig is a rig on a database of its own.
func openRig(t *testing.T, pace rig.Pace) *rig.Rig {
	t.Helper()
	r, err := rig.Open(t.Context(), rig.Servers{DatabaseURL: postgres.Empty(t), Program: process.Build(t)}, pace,
		rig.Private{}, io.Discard)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// skipIfAbsent skips a test whose peer is not here; on CI, where scripts/test-deps installs it, the test fails.
func skipIfAbsent(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, peers.ErrAbsent) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestServices checks each service: one that does not lock would look fast.
func TestServices(t *testing.T) {
	for name, start := range map[string]func(*rig.Rig) (service, error){
		"fencegate x2": func(r *rig.Rig) (service, error) {
			c := &locksCmd{Gateways: []int{2}}
			services, err := c.services(t.Context(), r)
			return services[0], err
		},
		"etcd":  func(r *rig.Rig) (service, error) { return peerLocks(t.Context(), r, "etcd") },
		"redis": func(r *rig.Rig) (service, error) { return peerLocks(t.Context(), r, "redis") },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := start(openRig(t, rig.Pace{Connections: 4}))
			skipIfAbsent(t, err)
			lockers, closeAll, err := s.connectAll(t.Context(), 4)
			if err != nil {
				t.Fatal(err)
			}
			t.Run("locks", func(t *testing.T) { reallyLocks(t, lockers) })
			t.Run("gives up an ended wait", func(t *testing.T) { givesUpEndedWaits(t, lockers) })
			t.Run("counts waiters", func(t *testing.T) { countsWaiters(t, s, lockers) })
			t.Run("releases only its own", func(t *testing.T) { releasesOnlyItsOwn(t, s, lockers[0]) })
			if err := closeAll(); err != nil {
				t.Error(err)
			}
		})
	}
}

func reallyLocks(t *testing.T, lockers []locker) {
	var inside atomic.Int32
	load, err := rig.Repeat(t.Context(), len(lockers), 200*time.Millisecond, func(ctx context.Context, client, _ int) error {
		lease, err := lockers[client].hold(ctx, "locked")
		if err != nil {
			return err
		}
		if inside.Add(1) != 1 {
			t.Error("two clients hold the lock")
		}
		time.Sleep(time.Millisecond)
		inside.Add(-1)
		return lease.release(ctx)
	})
	if err != nil || len(load.Latencies) < len(lockers) {
		t.Errorf("%d cycles, %v", len(load.Latencies), err)
	}
}

func givesUpEndedWaits(t *testing.T, lockers []locker) {
	if _, err := lockers[0].hold(t.Context(), "held"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lockers[1].hold(ctx, "held"); err == nil {
		t.Error("a lock that is held was granted")
	}
}

// A hand-off is measured, and a crowd complete, once the waiters are counted.
func countsWaiters(t *testing.T, s service, lockers []locker) {
	const lock = "waited-for"
	onlooker := lockers[2]
	if (onlooker.waiting != nil) != s.queues {
		t.Errorf("tells how many wait: %t, takes part in hand-offs: %t", onlooker.waiting != nil, s.queues)
	}
	if !s.queues {
		return
	}
	lease, err := lockers[0].hold(t.Context(), lock)
	if err != nil {
		t.Fatal(err)
	}
	if waiting, err := onlooker.waiting(t.Context(), lock); waiting != 0 || err != nil {
		t.Errorf("got %d, %v before one waits", waiting, err)
	}
	var waiter sync.WaitGroup
	waiter.Go(func() {
		lease, err := lockers[1].hold(t.Context(), lock)
		if err == nil {
			err = lease.release(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err := awaitQueue(t.Context(), onlooker, lock, 1, lookInterval); err != nil {
		t.Error(err)
	}
	if err := lease.release(t.Context()); err != nil {
		t.Error(err)
	}
	waiter.Wait()
}

func releasesOnlyItsOwn(t *testing.T, s service, l locker) {
	if s.name != "redis" {
		return
	}
	lease, err := l.hold(t.Context(), "lost")
	if err != nil {
		t.Fatal(err)
	}
	client := connectRedis(s.address)
	defer client.Close()
	if err := client.Set(t.Context(), "lost", "another's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := lease.release(t.Context()); !errors.Is(err, errLockLost) {
		t.Errorf("got %v", err)
	}
}

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
			found[violation.Promise] = true
		}
		if report.ViolationsTotal < int64(len(report.Violations)) {
			t.Errorf("%d violations are listed, %d counted", len(report.Violations), report.ViolationsTotal)
		}
	}
	if !found["P3"] || !found["P10"] {
		t.Errorf("it found %v", found)
	}
	history := filepath.Join(t.TempDir(), "history")
	code, out, failure := loaded(t.Context(), "--url", url, "--clients", "24", "--locks", "4", "--duration", "1s",
		"--history", history)
	if code != 1 || !strings.Contains(out, "\nVIOLATIONS: ") ||
		!strings.Contains(failure, "fencegate-bench: the contract was violated") {
		t.Errorf("load exited with %d: %s%s", code, out, failure)
	}
	_, rest, _ := strings.Cut(out, "\nVIOLATIONS: ")
	total, _, _ := strings.Cut(rest, "\n")
	var checked, errors process.Buffer
	if run(t.Context(), []string{"check-history", history}, &checked, &errors) != 1 ||
		!strings.Contains(checked.String(), " calls, "+total+" violations,") {
		t.Errorf("load found %s violations, and check-history: %s%s", total, &checked, &errors)
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
