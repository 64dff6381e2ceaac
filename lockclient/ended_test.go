package lockclient_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// wantLost checks that an error says that the lease is lost, and nothing that asks for another try.
func wantLost(t *testing.T, what string, err error) {
	t.Helper()
	problem := lockclient.ProblemOf(err)
	switch {
	case !errors.Is(err, lockclient.ErrLeaseLost) || !errors.Is(err, context.Canceled):
		t.Errorf("%s: %v, want ErrLeaseLost and context.Canceled", what, err)
	case errors.Is(err, lockclient.ErrUnavailable):
		t.Errorf("%s: %v is ErrUnavailable, too", what, err)
	case problem == nil || problem.Code != api.CodeLeaseLost || problem.Retryable:
		t.Errorf("%s: its problem is %+v, want lease_lost that is not retryable", what, problem)
	case errors.Is(err, lockclient.ErrOutcomeUnknown):
		t.Errorf("%s: %v, want an outcome that is known: nothing was sent", what, err)
	}
}

// What is called with the context of a lease that is lost returns ErrLeaseLost, not ErrUnavailable: another try can't
// succeed.
func TestCallsUnderALostLease(t *testing.T) {
	client, lock := shared(t)
	lease, err := client.Acquire(patient(t), lock, lockclient.WithHeartbeat(lockclient.HeartbeatEvery(20*time.Millisecond)))
	check(t, err)
	pipeline, err := lease.Pipeline(lease.Context())
	check(t, err)
	_, err = client.API().Break(patient(t), lock, api.BreakRequest{Reason: "test"})
	check(t, err)
	_ = done(t, lease.Context())
	derived, cancel := context.WithTimeout(lease.Context(), time.Hour)
	defer cancel()
	_ = done(t, derived)
	other, err := client.Acquire(patient(t), lock+"/kept")
	check(t, err)
	defer other.ReleaseOnce()
	wantLost(t, "put under another lease", second(other.Put(lease.Context(), "k", nil)))
	wantLost(t, "renewal of another lease", other.Renew(lease.Context()))
	if err := other.Err(); err != nil {
		t.Errorf("another lease has ended: %v", err)
	}
	for what, ctx := range map[string]context.Context{"its context": lease.Context(), "a derived context": derived} {
		wantLost(t, what+": put", second(lease.Put(ctx, "k", nil)))
		wantLost(t, what+": delete", second(lease.Delete(ctx, "k")))
		wantLost(t, what+": transaction", second(lease.Transaction(ctx, lockclient.PutOp("k", nil, ""))))
		wantLost(t, what+": get", second(client.API().Get(ctx, lock, "k")))
		wantLost(t, what+": acquire", second(client.Acquire(ctx, lock+"/other")))
		wantLost(t, what+": acquire with retry", second(client.AcquireWithRetry(ctx, lock+"/other", lockclient.RetryPolicy{})))
		wantLost(t, what+": session", second(client.NewSession(ctx)))
		wantLost(t, what+": campaign", second(client.Campaign(ctx, lock+"/other", nil)))
	}
	if _, err := pipeline.Put(patient(t), "k", nil); !errors.Is(err, lockclient.ErrLeaseLost) || errors.Is(err, lockclient.ErrUnavailable) {
		t.Errorf("pipeline: %v", err)
	}
	_ = pipeline.Close()
}

// A write that waits for its turn when the lease is lost was not sent, and returns ErrLeaseLost.
func TestAWriteThatWaitsWhenTheLeaseIsLost(t *testing.T) {
	direct, lock := shared(t)
	relay := newRelay(t)
	client := newClient(t, relay.url)
	lease, err := client.Acquire(patient(t), lock, lockclient.WithTTL(time.Second))
	check(t, err)
	relay.harm(answersHeld)
	ctx, cancel := context.WithCancel(patient(t))
	first := make(chan error, 1)
	go func() { first <- second(lease.Put(ctx, "k", []byte("1"))) }()
	eventually(t, func() bool { return second(direct.API().Get(patient(t), lock, "k")) == nil })
	wantLost(t, "behind another", second(lease.Put(lease.Context(), "k", []byte("2"))))
	cancel()
	t.Log("the first write ended with", <-first)
}

// When a lease is lost while a write under its context has no answer, the error is ErrLeaseLost with an unknown
// outcome.
func TestTheLeaseIsLostDuringAWrite(t *testing.T) {
	direct, lock := shared(t)
	relay := newRelay(t)
	client := newClient(t, relay.url)
	lease, err := client.Acquire(patient(t), lock, lockclient.WithTTL(time.Second))
	check(t, err)
	relay.harm(answersHeld)
	err = second(lease.Put(lease.Context(), "k", []byte("1")))
	if !errors.Is(err, lockclient.ErrLeaseLost) || errors.Is(err, lockclient.ErrUnavailable) || !errors.Is(err, lockclient.ErrOutcomeUnknown) {
		t.Errorf("got %v, want ErrLeaseLost and ErrOutcomeUnknown", err)
	}
	check(t, second(direct.API().Get(patient(t), lock, "k")))
}

// A wait that a deadline ends is context.DeadlineExceeded and ErrLockHeld with the holder: the gateways answered.
func TestADeadlineEndsAWait(t *testing.T) {
	client, lock := shared(t)
	held, err := client.Acquire(patient(t), lock, lockclient.WithLeaseOwner("holder"))
	check(t, err)
	defer held.ReleaseOnce()
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
			ctx, cancel := context.WithTimeout(patient(t), 2*time.Second)
			defer cancel()
			wantHeld(t, what, wait(ctx))
		})
	}
	waiting.Wait()
	queued(t, client, lock, 0)
}

// wantHeld checks the error of a wait for a lock of the owner "holder" that a deadline has ended.
func wantHeld(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, lockclient.ErrLockHeld) || errors.Is(err, lockclient.ErrUnavailable) ||
		errors.Is(err, lockclient.ErrOutcomeUnknown) {
		t.Errorf("%s: %v, want context.DeadlineExceeded and ErrLockHeld", what, err)
	}
	if holder := lockclient.Holder(err); holder == nil || holder.OwnerID != "holder" {
		t.Errorf("%s: the holder is %+v", what, holder)
	}
}

// A release under the lease's own context is sent, although it ends that context.
func TestReleaseUnderItsOwnContext(t *testing.T) {
	client, lock := shared(t)
	check(t, client.Do(patient(t), lock, func(ctx context.Context, lease *lockclient.Lease) error {
		derived, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		err := lease.Release(derived)
		wantFree(t, client, lock)
		return err
	}))
	session, err := client.NewSession(patient(t))
	check(t, err)
	check(t, session.Close(session.Context()))
}
