package lockclient_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
)

func TestDo(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := context.WithValue(await.Context(t), t, "value")
	failed := errors.New("failed")
	for _, want := range []error{nil, failed} {
		err := client.Do(ctx, lock, func(ctx context.Context, lease *lockclient.Lease) error {
			if ctx.Value(t) != "value" || ctx.Err() != nil || !lease.Valid() || lease.Name() != lock {
				t.Errorf("work gets the context %v and the lease %v, %v", ctx, lease, lease.Err())
			}
			check(t, second(lease.Put(ctx, "k", nil)))
			return want
		})
		if err != want { //nolint:errorlint // as it is, not wrapped
			t.Errorf("Do returned %v, expected %v", err, want)
		}
		wantFree(t, client, lock)
	}
	mustAcquire(t, client, lock, lockclient.WithTTL(time.Hour))
	err := client.Do(ctx, lock, func(context.Context, *lockclient.Lease) error {
		t.Error("work ran without the lock")
		return nil
	}, lockclient.WithWait(0))
	wantErr(t, "Do of a held lock", err, lockclient.ErrLockHeld)
}

// Do releases the lease when work panics or ends its goroutine.
func TestDoReleasesAfterAPanic(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	func() {
		defer func() {
			if got := recover(); got != "oops" {
				t.Errorf("Do panicked with %v, expected oops", got)
			}
		}()
		_ = client.Do(await.Context(t), lock, func(context.Context, *lockclient.Lease) error { panic("oops") })
	}()
	wantFree(t, client, lock)
	var running sync.WaitGroup
	running.Go(func() {
		_ = client.Do(await.Context(t), lock, func(context.Context, *lockclient.Lease) error {
			runtime.Goexit()
			return nil
		})
	})
	running.Wait()
	wantFree(t, client, lock)
}

// Do returns ErrLeaseLost, and the error of work, if the lease was lost before work returned.
func TestDoReportsALoss(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	late := errors.New("late")
	for what, work := range map[string]func(context.Context) error{
		"work that stops":     func(ctx context.Context) error { _ = causeOf(t, "work's context", ctx); return late },
		"work that continues": func(context.Context) error { return late },
		"work that succeeds":  func(context.Context) error { return nil },
	} {
		err := client.Do(await.Context(t), lock, func(ctx context.Context, lease *lockclient.Lease) error {
			mustBreak(t, client, lock)
			return work(ctx)
		}, lockclient.HeartbeatEvery(20*time.Millisecond))
		wantErr(t, "Do of "+what, err, lockclient.ErrLeaseLost)
		if errors.Is(err, late) != (what != "work that succeeds") {
			t.Errorf("Do of %s returned %v, expected the error of work in it", what, err)
		}
	}
}

// Do holds the lease until work has returned, even if its ctx has ended.
func TestDoEndsWithItsContext(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx, cancel := context.WithCancel(await.Context(t))
	err := client.Do(ctx, lock, func(ctx context.Context, lease *lockclient.Lease) error {
		cancel()
		_ = causeOf(t, "work's context", ctx)
		check(t, lease.Err())
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, lockclient.ErrLeaseLost) {
		t.Errorf("Do returned %v, expected context.Canceled alone", err)
	}
	wantFree(t, client, lock)
}
