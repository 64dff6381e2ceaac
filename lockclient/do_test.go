package lockclient_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

func wantFree(t *testing.T, client *lockclient.Client, lock string) {
	t.Helper()
	if state, err := client.API().Lock(patient(t), lock); err != nil || state.State != "free" {
		t.Errorf("the lock is %+v, %v, want it free", state, err)
	}
}

func TestDo(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	broken := errors.New("broken")
	for _, want := range []error{nil, broken} {
		err := client.Do(context.WithValue(ctx, t, "value"), lock, func(ctx context.Context, lease *lockclient.Lease) error {
			if ctx.Value(t) != "value" || ctx.Err() != nil || !lease.Valid() || lease.Name() != lock {
				t.Errorf("its context is %v, %v", ctx, lease.Err())
			}
			if _, err := lease.Put(ctx, "k", nil); err != nil {
				t.Error(err)
			}
			return want
		})
		if err != want { //nolint:errorlint // as it is, not wrapped
			t.Errorf("got %v, want %v", err, want)
		}
		wantFree(t, client, lock)
	}
	_, err := client.Acquire(ctx, lock, lockclient.WithTTL(time.Hour))
	check(t, err)
	err = client.Do(ctx, lock, func(context.Context, *lockclient.Lease) error {
		t.Error("it ran without the lock")
		return nil
	}, lockclient.WithWait(0))
	if !errors.Is(err, lockclient.ErrLockHeld) {
		t.Errorf("got %v", err)
	}
}

func TestDoReleasesAfterAPanic(t *testing.T) {
	client, lock := shared(t)
	func() {
		defer func() {
			if got := recover(); got != "oops" {
				t.Errorf("the panic became %v", got)
			}
		}()
		_ = client.Do(patient(t), lock, func(context.Context, *lockclient.Lease) error { panic("oops") })
	}()
	wantFree(t, client, lock)

	var running sync.WaitGroup
	running.Go(func() {
		_ = client.Do(patient(t), lock, func(context.Context, *lockclient.Lease) error { runtime.Goexit(); return nil })
	})
	running.Wait()
	wantFree(t, client, lock)
}

func TestDoTellsOfALoss(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	tooLate := errors.New("too late")
	for what, work := range map[string]func(context.Context, *lockclient.Lease) error{
		"it notices":   func(ctx context.Context, _ *lockclient.Lease) error { _ = done(t, ctx); return tooLate },
		"it goes on":   func(context.Context, *lockclient.Lease) error { return tooLate },
		"it succeeded": func(context.Context, *lockclient.Lease) error { return nil },
	} {
		err := client.Do(ctx, lock, func(ctx context.Context, lease *lockclient.Lease) error {
			_, err := client.API().Break(ctx, lock, api.BreakRequest{Reason: "test"})
			check(t, err)
			return work(ctx, lease)
		}, lockclient.WithHeartbeat(lockclient.HeartbeatEvery(20*time.Millisecond)))
		if !errors.Is(err, lockclient.ErrLeaseLost) || errors.Is(err, tooLate) != (what != "it succeeded") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestDoEndsWithItsContext(t *testing.T) {
	client, lock := shared(t)
	ctx, cancel := context.WithCancel(patient(t))
	err := client.Do(ctx, lock, func(ctx context.Context, lease *lockclient.Lease) error {
		cancel()
		_ = done(t, ctx)
		if !lease.Valid() {
			t.Errorf("the lease is %v: it is held until work has returned", lease.Err())
		}
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, lockclient.ErrLeaseLost) {
		t.Errorf("got %v", err)
	}
	wantFree(t, client, lock)
}
