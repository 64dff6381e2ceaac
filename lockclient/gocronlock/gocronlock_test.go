package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"go.uber.org/goleak"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/gatewayprocess"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/gocronlock"
)

const patience = time.Minute

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fencegate-gocronlock-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "gocronlock:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = sync.OnceValues(func() (string, error) { return build(filepath.Join(dir, "fencegate")) })
	code := pgtest.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "gocronlock: goroutines are left:", err)
		return 1
	}
	return code
}

// program is the path of fencegate as it stands in this tree, built once.
var program func() (string, error)

func build(path string) (string, error) {
	output, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "github.com/fencegate/fencegate/cmd/fencegate").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, output)
	}
	return path, nil
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// gateway runs fencegate, and returns a maker of clients.
func gateway(t *testing.T) func(owner string) *lockclient.Client {
	t.Helper()
	databaseURL := pgtest.Migrated(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	path, err := program()
	check(t, err)
	process, err := gatewayprocess.Start(ctx, path, "--database-url", databaseURL)
	check(t, err)
	t.Cleanup(process.Kill)
	return func(owner string) *lockclient.Client {
		client, err := lockclient.New(process.URL, lockclient.WithOwner(owner))
		check(t, err)
		t.Cleanup(client.Close)
		return client
	}
}

func TestAJobRunsOnOneScheduler(t *testing.T) {
	client := gateway(t)
	var running, runs, together atomic.Int64
	job := func() {
		if running.Add(1) > 1 {
			together.Add(1)
		}
		time.Sleep(20 * time.Millisecond) // the work
		running.Add(-1)
		runs.Add(1)
	}
	for i := range 3 {
		locker := gocronlock.NewLocker(client(fmt.Sprint("scheduler-", i)), "cron/", lockclient.WithTTL(10*time.Second))
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		check(t, err)
		_, err = scheduler.NewJob(gocron.DurationJob(30*time.Millisecond), gocron.NewTask(job), gocron.WithName("report"))
		check(t, err)
		scheduler.Start()
		t.Cleanup(func() { check(t, scheduler.Shutdown()) })
	}
	eventually(t, "twenty runs", func() bool { return runs.Load() >= 20 })
	if together.Load() > 0 {
		t.Errorf("%d of %d runs were beside another", together.Load(), runs.Load())
	}
	lock, err := client("other").API().Lock(t.Context(), "cron/report")
	if err != nil || lock.FencingToken < 20 {
		t.Errorf("the lock is %+v, %v, want one that was granted for each run", lock, err)
	}
}

func TestALockerTellsWhoHolds(t *testing.T) {
	client := gateway(t)
	ctx := t.Context()
	first := gocronlock.NewLocker(client("first"), "")
	second := gocronlock.NewLocker(client("second"), "")
	lock, err := first.Lock(ctx, "report")
	check(t, err)
	if _, err := second.Lock(ctx, "report"); !errors.Is(err, lockclient.ErrLockHeld) {
		t.Errorf("got %v", err)
	}
	if _, err := second.Lock(ctx, "//"); !errors.Is(err, lockclient.ErrInvalidName) {
		t.Errorf("got %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	check(t, lock.Unlock(ended)) // the job's ctx has ended
	lock, err = second.Lock(ctx, "report")
	check(t, err)
	_, err = client("admin").API().Break(ctx, "report", api.BreakRequest{Reason: "test"})
	check(t, err)
	check(t, lock.Unlock(ctx))
}

func TestOneElectorLeads(t *testing.T) {
	client := gateway(t)
	ctx := t.Context()
	electors := map[*gocronlock.Elector]bool{}
	for i := range 3 {
		elector := gocronlock.NewElector(client(fmt.Sprint("scheduler-", i)), "cron", func(err error) { t.Error(err) })
		t.Cleanup(elector.Close)
		electors[elector] = true
	}
	leader := func() *gocronlock.Elector {
		var found *gocronlock.Elector
		for elector := range electors {
			if elector.IsLeader(ctx) == nil {
				if found != nil {
					t.Error("two lead")
				}
				found = elector
			}
		}
		return found
	}
	term := int64(0)
	for len(electors) > 0 {
		eventually(t, "one leads", func() bool { return leader() != nil })
		elected := leader()
		leadership := elected.Leadership()
		if leadership.Term() <= term {
			t.Errorf("term %d after %d", leadership.Term(), term)
		}
		term = leadership.Term()
		_, err := leadership.Lease().Put(ctx, "report", []byte("done"))
		check(t, err)
		elected.Close()
		if err := elected.IsLeader(ctx); !errors.Is(err, gocronlock.ErrNotLeader) {
			t.Errorf("after its end: %v", err)
		}
		delete(electors, elected)
	}
}
