package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// often is a policy of many quick tries.
var often = lockclient.RetryPolicy{Attempts: 10_000, Base: 10 * time.Millisecond, Max: 10 * time.Millisecond}

// done waits for a context's end, and returns its cause.
func done(t *testing.T, ctx context.Context) error { //nolint:revive // the test comes first, as everywhere
	t.Helper()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(patience):
		t.Fatal("the context does not end")
		return nil
	}
}

func TestALeaseTellsWhatItIs(t *testing.T) {
	client, lock := shared(t, lockclient.WithOwner("worker-1"))
	ctx := patient(t)
	lease, err := client.Acquire(ctx, lock, lockclient.WithTTL(time.Minute), lockclient.WithMetadata(map[string]string{"pod": "a"}))
	check(t, err)
	defer lease.ReleaseOnce()
	if lease.Name() != lock || lease.Owner() != "worker-1" || lease.FencingToken() < 1 || lease.ID() == "" || lease.Info().TTLMS != 60_000 {
		t.Errorf("got %+v", lease.Info())
	}
	if text := fmt.Sprintf("%v %+v", lease, lease); strings.Contains(text, lease.ID()) || !strings.Contains(text, lock) {
		t.Errorf("it shows as %s", text)
	}
	if left := lease.ExpiresIn(); left <= 0 || left > 60*time.Second*99/100 {
		t.Errorf("it is trusted for %v", left)
	}
	if lease.Err() != nil || !lease.Valid() || lease.Context().Err() != nil || lease.HeartbeatErr() != nil {
		t.Errorf("it is not valid: %v", lease.Err())
	}
	state, err := client.API().Lock(ctx, lock)
	if err != nil || len(state.Holders) != 1 || string(state.Holders[0].Metadata) != `{"pod":"a"}` {
		t.Errorf("the lock is %+v, %v", state, err)
	}
	if before := lease.ExpiresIn(); lease.RenewWithTTL(ctx, 2*time.Minute) != nil || lease.ExpiresIn() < before+30*time.Second {
		t.Errorf("it is trusted for %v after the renewal, %v", lease.ExpiresIn(), lease.Err())
	}
	if err := lease.RenewWithTTL(ctx, 10*time.Second); err != nil || lease.ExpiresIn() > 10*time.Second {
		t.Errorf("it is trusted for %v after the renewal to less, %v", lease.ExpiresIn(), err)
	}
}

func TestOwnersAreUnique(t *testing.T) {
	first, _ := shared(t)
	second, _ := shared(t)
	if first.Owner() == second.Owner() || strings.Count(first.Owner(), ":") != 2 {
		t.Errorf("got %q and %q", first.Owner(), second.Owner())
	}
}

func TestALockThatIsHeld(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	lease, err := client.Acquire(ctx, lock)
	check(t, err)
	_, err = client.Acquire(ctx, lock, lockclient.WithLeaseOwner("other"))
	if holder := lockclient.Holder(err); !errors.Is(err, lockclient.ErrLockHeld) || holder == nil || holder.OwnerID != client.Owner() {
		t.Errorf("got %v, held by %+v", err, holder)
	}
	_, err = client.AcquireWithRetry(ctx, lock, lockclient.RetryPolicy{Attempts: 3, Base: 1, Max: 1})
	if !errors.Is(err, lockclient.ErrLockHeld) {
		t.Errorf("got %v", err)
	}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		next, err := client.AcquireWithRetry(ctx, lock, often)
		if err != nil || next.FencingToken() <= lease.FencingToken() {
			t.Errorf("got %v", err)
		}
		next.ReleaseOnce()
	})
	check(t, lease.Release(ctx))
}

func TestReleases(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	lease, err := client.Acquire(ctx, lock, lockclient.WithHeartbeat())
	check(t, err)
	derived, cancel := context.WithCancel(lease.Context())
	defer cancel()
	for range 3 {
		check(t, lease.Release(ctx))
	}
	lease.ReleaseOnce()
	for _, ended := range []context.Context{lease.Context(), derived} {
		if cause := done(t, ended); !errors.Is(cause, lockclient.ErrLeaseReleased) || !errors.Is(ended.Err(), context.Canceled) {
			t.Errorf("the context ended by %v, with %v", cause, ended.Err())
		}
	}
	if lease.Valid() || !errors.Is(lease.Err(), lockclient.ErrLeaseReleased) || lease.ExpiresIn() != 0 {
		t.Errorf("it is still valid: %v", lease.Err())
	}
	if err := lease.Renew(ctx); !errors.Is(err, lockclient.ErrLeaseReleased) {
		t.Errorf("renew: %v", err)
	}
	if _, err := lease.Put(ctx, "k", nil); !errors.Is(err, lockclient.ErrTokenStale) {
		t.Errorf("put: %v, want the fence's verdict", err)
	}
	again, err := client.Acquire(ctx, lock)
	check(t, err)
	again.ReleaseOnce()
	again.ReleaseOnce()
	if state, err := client.API().Lock(ctx, lock); err != nil || state.State != "free" {
		t.Errorf("the lock is %+v, %v", state, err)
	}
	(*lockclient.Lease)(nil).ReleaseOnce()
	(*lockclient.Leadership)(nil).ResignOnce()
}

// Without renewals the context ends before another can have the lock: who gets it finds it ended.
func TestTheContextEndsBeforeAnotherIsGranted(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	for range 5 {
		lease, err := client.Acquire(ctx, lock, lockclient.WithTTL(400*time.Millisecond))
		check(t, err)
		held, derived := lease.Context(), context.WithValue(lease.Context(), t, t)
		next, err := client.AcquireWithRetry(ctx, lock, often)
		check(t, err)
		if !errors.Is(held.Err(), lockclient.ErrLeaseLost) || !errors.Is(held.Err(), context.Canceled) || derived.Err() == nil || lease.Valid() {
			t.Errorf("another holds the lock, and the context says %v, %v", held.Err(), lease.Err())
		}
		if cause := done(t, held); !errors.Is(cause, lockclient.ErrLeaseLost) {
			t.Errorf("the cause is %v", cause)
		}
		if err := lease.Release(ctx); !errors.Is(err, lockclient.ErrLeaseLost) {
			t.Errorf("release: %v", err)
		}
		check(t, next.Release(ctx))
	}
}

func TestABrokenLeaseIsNoticedByItsHeartbeat(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	told := make(chan error, 10)
	lease, err := client.Acquire(ctx, lock, lockclient.WithTTL(time.Hour))
	check(t, err)
	lease.StartHeartbeat(lockclient.HeartbeatEvery(20*time.Millisecond), lockclient.OnHeartbeatError(func(err error) { told <- err }))
	lease.StartHeartbeat() // does nothing
	_, err = client.API().Break(ctx, lock, api.BreakRequest{Reason: "test"})
	check(t, err)
	cause := done(t, lease.Context())
	if problem := lockclient.ProblemOf(cause); !errors.Is(cause, lockclient.ErrLeaseLost) || problem == nil || problem.Reason != "broken" {
		t.Errorf("the cause is %v", cause)
	}
	if err := <-told; !errors.Is(err, lockclient.ErrLeaseLost) || !errors.Is(lease.HeartbeatErr(), lockclient.ErrLeaseLost) {
		t.Errorf("told %v, HeartbeatErr %v", err, lease.HeartbeatErr())
	}
	if err := lease.Renew(ctx); !errors.Is(err, lockclient.ErrLeaseLost) {
		t.Errorf("renew: %v", err)
	}
}

func TestABrokenLeaseIsNoticedByItsWritesAndRenewals(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	for what, use := range map[string]func(*lockclient.Lease) error{
		"renewal": func(l *lockclient.Lease) error { return l.Renew(ctx) },
		"write":   func(l *lockclient.Lease) error { _, err := l.Put(ctx, "k", nil); return err },
		"transaction": func(l *lockclient.Lease) error {
			_, err := l.Transaction(ctx, lockclient.PutOp("k", nil, ""))
			return err
		},
	} {
		lease, err := client.Acquire(ctx, lock, lockclient.WithTTL(time.Hour))
		check(t, err)
		_, err = client.API().Break(ctx, lock, api.BreakRequest{Reason: "test"})
		check(t, err)
		if err := use(lease); err == nil || errors.Is(err, lockclient.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", what, err)
		}
		if cause := done(t, lease.Context()); !errors.Is(cause, lockclient.ErrLeaseLost) {
			t.Errorf("%s: the cause is %v", what, cause)
		}
	}
}

// TestHeartbeatOnBusyProcessors checks that a lease is renewed while goroutines keep every processor busy. A
// heartbeat that came as much as 10 s late would still be in time.
func TestHeartbeatOnBusyProcessors(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	watch, err := client.Watch(ctx, lock)
	check(t, err)
	defer watch.Close()
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 8 * runtime.GOMAXPROCS(0) {
		busy.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	defer busy.Wait()
	defer close(stop)
	lease, err := client.Acquire(ctx, lock, lockclient.WithTTL(15*time.Second), lockclient.WithHeartbeat())
	check(t, err)
	nextOf(t, watch, api.EventState)
	nextOf(t, watch, api.EventGranted)
	nextOf(t, watch, api.EventRenewed)
	if lease.Err() != nil || lease.HeartbeatErr() != nil {
		t.Errorf("it was lost: %v, %v", lease.Err(), lease.HeartbeatErr())
	}
	check(t, lease.Release(ctx))
}

func TestCloseEndsWhatWasGranted(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	lease, err := client.Acquire(ctx, lock, lockclient.WithHeartbeat())
	check(t, err)
	client.Close()
	client.Close()
	if err := context.Cause(lease.Context()); !errors.Is(err, lockclient.ErrClosed) || !errors.Is(lease.Err(), lockclient.ErrClosed) {
		t.Errorf("the cause is %v", err)
	}
	if _, err := client.Acquire(ctx, lock); !errors.Is(err, lockclient.ErrClosed) {
		t.Errorf("acquire: %v", err)
	}
	if _, err := client.NewSession(ctx); !errors.Is(err, lockclient.ErrClosed) {
		t.Errorf("session: %v", err)
	}
	if _, err := client.Watch(ctx, lock); !errors.Is(err, lockclient.ErrClosed) {
		t.Errorf("watch: %v", err)
	}
	if _, err := lease.Put(ctx, "k", []byte("v")); err != nil {
		t.Errorf("put: %v", err)
	}
	check(t, lease.Release(ctx))
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	try := func(opts ...lockclient.LeaseOption) error {
		_, err := client.Acquire(ctx, lock, opts...)
		return err
	}
	_, sessionErr := client.NewSession(ctx, lockclient.Shared())
	_, campaignErr := client.Campaign(ctx, lock, nil, lockclient.Subtree())
	_, valueErr := client.Campaign(ctx, lock, func() {})
	_, transactErr := client.Transact(ctx, nil)
	for what, err := range map[string]error{
		"fraction of a millisecond": try(lockclient.WithTTL(1500 * time.Microsecond)),
		"too short a TTL":           try(lockclient.WithTTL(time.Millisecond)),
		"no object":                 try(lockclient.WithMetadata("text")),
		"no JSON":                   try(lockclient.WithMetadata(func() {})),
		"a shared session":          sessionErr,
		"a candidate of a subtree":  campaignErr,
		"a value that is no JSON":   valueErr,
		"no lease":                  transactErr,
	} {
		if !errors.Is(err, lockclient.ErrInvalidRequest) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
