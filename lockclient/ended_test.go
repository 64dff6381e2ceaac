package lockclient_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
)

// wantLost expects ErrLeaseLost of a call that was not sent, and nothing that asks for a retry.
func wantLost(t *testing.T, what string, err error) {
	t.Helper()
	wantErr(t, what, err, lockclient.ErrLeaseLost)
	wantErr(t, what, err, context.Canceled)
	problem := lockclient.ProblemOf(err)
	if errors.Is(err, lockclient.ErrUnavailable) || errors.Is(err, lockclient.ErrOutcomeUnknown) ||
		problem == nil || problem.Code != api.CodeLeaseLost || problem.Retryable {
		t.Errorf("%s returned %v with %+v, expected lease_lost without a retry", what, err, problem)
	}
}

// wantCanceled expects the error of a call that the caller canceled: it has the outcome, and asks for no retry.
func wantCanceled(t *testing.T, what string, err error, want api.Outcome) {
	t.Helper()
	wantErr(t, what, err, context.Canceled)
	problem := lockclient.ProblemOf(err)
	if errors.Is(err, lockclient.ErrUnavailable) || problem == nil || problem.Retryable || problem.Outcome != want ||
		errors.Is(err, lockclient.ErrOutcomeUnknown) != (want == api.OutcomeUnknown) {
		t.Errorf("%s returned %v with %+v, expected no retry and the outcome %s", what, err, problem, want)
	}
}

// callsUnder returns the error of each kind of call, made with ctx.
func callsUnder(ctx context.Context, client *lockclient.Client, lease *lockclient.Lease) map[string]error {
	other := lease.Name() + "/other"
	return map[string]error{
		"Put":              second(lease.Put(ctx, "k", nil)),
		"Delete":           second(lease.Delete(ctx, "k")),
		"Transaction":      second(lease.Transaction(ctx, lockclient.PutOp("k", nil, ""))),
		"Get":              second(client.API().Get(ctx, lease.Name(), "k")),
		"Acquire":          second(client.Acquire(ctx, other)),
		"AcquireWithRetry": second(client.AcquireWithRetry(ctx, other, lockclient.RetryPolicy{})),
		"NewSession":       second(client.NewSession(ctx)),
		"Campaign":         second(client.Campaign(ctx, other, nil)),
		"Watch":            second(client.Watch(ctx, lease.Name())),
	}
}

// A call under the context of a lost lease returns ErrLeaseLost, not ErrUnavailable: no retry can succeed.
func TestCallsUnderALostLease(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	lease := mustAcquire(t, client, lock, lockclient.HeartbeatEvery(20*time.Millisecond))
	pipeline, err := lease.Pipeline(lease.Context())
	check(t, err)
	mustBreak(t, client, lock)
	_ = causeOf(t, "the context", lease.Context())
	derived, cancel := context.WithTimeout(lease.Context(), time.Hour)
	defer cancel()
	_ = causeOf(t, "a derived context", derived)
	other := mustAcquire(t, client, lock+"/kept")
	wantLost(t, "Put under another lease", second(other.Put(lease.Context(), "k", nil)))
	wantLost(t, "Renew of another lease", other.Renew(lease.Context()))
	check(t, other.Err())
	for what, ctx := range map[string]context.Context{"the context": lease.Context(), "a derived context": derived} {
		for call, err := range callsUnder(ctx, client, lease) {
			wantLost(t, call+" under "+what, err)
		}
	}
	_, err = pipeline.Put(await.Context(t), "k", nil)
	if !errors.Is(err, lockclient.ErrLeaseLost) || errors.Is(err, lockclient.ErrUnavailable) {
		t.Errorf("the pipeline's Put returned %v, expected ErrLeaseLost alone", err)
	}
	_ = pipeline.Close()
}

// A call that its caller has canceled asks for no retry.
func TestCallsUnderACanceledContext(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	lease := mustAcquire(t, client, lock)
	ctx, cancel := context.WithCancel(await.Context(t))
	cancel()
	wantCanceled(t, "Renew", lease.Renew(ctx), api.OutcomeNotApplied)
	for call, err := range callsUnder(ctx, client, lease) {
		wantCanceled(t, call, err, api.OutcomeNotApplied)
	}
}

// A write that waits for its turn when the lease is lost is not sent. A write under way may have been applied.
func TestLeaseIsLostDuringWrites(t *testing.T) {
	t.Parallel()
	direct, lock := shared(t)
	relay := newRelay(t)
	lease := mustAcquire(t, newClient(t, relay.url), lock, lockclient.WithTTL(5*time.Second),
		lockclient.WithoutHeartbeat())
	relay.hold()
	first := make(chan error, 1)
	go func() { first <- second(lease.Put(lease.Context(), "k", []byte("1"))) }()
	awaitValue(t, direct, lock, "k", "1")
	waiting := second(lease.Put(lease.Context(), "k", []byte("2")))
	if !errors.Is(waiting, lockclient.ErrLeaseLost) {
		t.Errorf("the waiting Put returned %v, expected ErrLeaseLost", waiting)
	}
	wantLost(t, "the waiting Put", waiting)
	err := await.Receive(t, "the first Put", first)
	wantErr(t, "the first Put", err, lockclient.ErrLeaseLost)
	wantErr(t, "the first Put", err, lockclient.ErrOutcomeUnknown)
	if errors.Is(err, lockclient.ErrUnavailable) {
		t.Errorf("the first Put returned %v, which asks for a retry", err)
	}
	relay.begin(calm)
}

// A deadline that ends a wait is context.DeadlineExceeded, and ErrLockHeld with the holder: the gateways answered.
func TestDeadlineEndsAWait(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	mustAcquire(t, client, lock, lockclient.WithLeaseOwner("holder"))
	var waiting sync.WaitGroup
	for what, wait := range map[string]func(context.Context) error{
		"Do": func(ctx context.Context) error {
			return client.Do(ctx, lock, func(context.Context, *lockclient.Lease) error { return nil })
		},
		"Acquire": func(ctx context.Context) error {
			return second(client.Acquire(ctx, lock, lockclient.WithWait(time.Hour)))
		},
		"Campaign": func(ctx context.Context) error { return second(client.Campaign(ctx, lock, nil)) },
		"AcquireWithRetry": func(ctx context.Context) error {
			return second(client.AcquireWithRetry(ctx, lock, lockclient.RetryPolicy{Attempts: 1000}))
		},
	} {
		waiting.Go(func() {
			ctx, cancel := context.WithTimeout(await.Context(t), 6*time.Second)
			defer cancel()
			err := wait(ctx)
			wantErr(t, what, err, context.DeadlineExceeded)
			wantErr(t, what, err, lockclient.ErrLockHeld)
			if errors.Is(err, lockclient.ErrUnavailable) || errors.Is(err, lockclient.ErrOutcomeUnknown) {
				t.Errorf("%s returned %v, expected no other sentinel", what, err)
			}
			if holder := lockclient.ProblemOf(err).Holder; holder == nil || holder.OwnerID != "holder" {
				t.Errorf("%s returned the holder %+v", what, holder)
			}
		})
	}
	waiting.Wait()
	awaitQueue(t, client, lock, 0)
}

// A release under the lease's own context is sent, although it ends that context.
func TestReleaseUnderItsOwnContext(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	check(t, client.Do(await.Context(t), lock, func(ctx context.Context, lease *lockclient.Lease) error {
		derived, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		err := lease.Release(derived)
		wantFree(t, client, lock)
		return err
	}))
	session, err := client.NewSession(await.Context(t))
	check(t, err)
	check(t, session.Close(session.Context()))
}
