package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"go.uber.org/goleak"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/lockclient/gocronlock"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	code := postgres.Main(m)
	if err := await.Nil(func() error { return goleak.Find() }); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "gocronlock: goroutines are left:", err)
		return 1
	}
	return code
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve runs fencegate, and returns a function that makes clients.
func serve(t *testing.T) func(owner string) *lockclient.Client {
	t.Helper()
	served := gateway.Serve(t, postgres.Migrated(t))
	return func(owner string) *lockclient.Client {
		client, err := lockclient.New(served.URL, lockclient.WithOwner(owner))
		check(t, err)
		t.Cleanup(client.Close)
		return client
	}
}

func TestJobRunsOnOneScheduler(t *testing.T) {
	client := serve(t)
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
	await.True(t, "twenty runs", func() bool { return runs.Load() >= 20 })
	if together.Load() > 0 {
		t.Errorf("%d of %d runs overlapped with another, expected none", together.Load(), runs.Load())
	}
	lock, err := client("other").API().Lock(t.Context(), "cron/report")
	if err != nil || lock.FencingToken < 20 {
		t.Errorf("the lock is %+v, %v, expected a grant for each run", lock, err)
	}
}

func TestLocker(t *testing.T) {
	client := serve(t)
	ctx := t.Context()
	first := gocronlock.NewLocker(client("first"), "")
	second := gocronlock.NewLocker(client("second"), "")
	lock, err := first.Lock(ctx, "report")
	check(t, err)
	if _, err := second.Lock(ctx, "report"); !errors.Is(err, lockclient.ErrLockHeld) {
		t.Errorf("a second Lock returned %v, expected ErrLockHeld", err)
	}
	if _, err := second.Lock(ctx, "//"); !errors.Is(err, lockclient.ErrInvalidName) {
		t.Errorf("Lock of an invalid name returned %v, expected ErrInvalidName", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	check(t, lock.Unlock(ended)) // the job's ctx has ended
	lock, err = second.Lock(ctx, "report")
	check(t, err)
	_, err = admin.New(client("admin")).Break(ctx, "report", api.BreakRequest{Reason: "test"})
	check(t, err)
	check(t, lock.Unlock(ctx))
}

func TestElector(t *testing.T) {
	client := serve(t)
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
					t.Error("two electors lead")
				}
				found = elector
			}
		}
		return found
	}
	term := int64(0)
	for len(electors) > 0 {
		await.True(t, "a leader", func() bool { return leader() != nil })
		elected := leader()
		lease := elected.Lease()
		if lease.FencingToken() <= term {
			t.Errorf("term %d came after %d", lease.FencingToken(), term)
		}
		term = lease.FencingToken()
		_, err := lease.Put(ctx, "report", []byte("done"))
		check(t, err)
		elected.Close()
		if err := elected.IsLeader(ctx); !errors.Is(err, gocronlock.ErrNotLeader) {
			t.Errorf("IsLeader after Close returned %v, expected ErrNotLeader", err)
		}
		delete(electors, elected)
	}
}
