package lockclient_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
)

// limitHold sets the max_hold_ms of the lock's policy.
func limitHold(t *testing.T, client *lockclient.Client, lock string, limit time.Duration) {
	t.Helper()
	ms := limit.Milliseconds()
	check(t, second(admin.New(client).PutPolicy(await.Context(t), lock, api.PolicyRequest{MaxHoldMS: &ms})))
	t.Cleanup(func() { _ = admin.New(client).DeletePolicy(context.Background(), lock) })
}

// wantMaxHold expects ErrLeaseLost with the reason max_hold.
func wantMaxHold(t *testing.T, what string, err error) {
	t.Helper()
	problem := lockclient.ProblemOf(err)
	if !errors.Is(err, lockclient.ErrLeaseLost) || problem == nil || problem.Reason != "max_hold" {
		t.Errorf("%s is %v, expected ErrLeaseLost with the reason max_hold", what, err)
	}
}

// A lease that is renewed all the time ends at its policy's max_hold_ms, and Do returns that.
func TestDoEndsAtMaxHold(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	limitHold(t, client, lock, 3*time.Second)
	failures := make(chan error, 1000)
	failed := lockclient.OnHeartbeatError(func(err error) { failures <- err })
	err := client.Do(ctx, lock, func(ctx context.Context, lease *lockclient.Lease) error {
		check(t, second(lease.Put(ctx, "k", nil)))
		cause := causeOf(t, "the context", ctx)
		wantMaxHold(t, "the cause", cause)
		wantMaxHold(t, "Err", lease.Err())
		if lease.ExpiresIn() != 0 {
			t.Errorf("it is valid for %v after its end", lease.ExpiresIn())
		}
		// The context ended a little before the lease. The next lease is granted at its end.
		next, err := client.Acquire(context.WithoutCancel(ctx), lock, lockclient.WithWait(time.Minute))
		check(t, err)
		next.ReleaseOnce()
		return cause
	}, lockclient.WithTTL(time.Minute), lockclient.HeartbeatEvery(50*time.Millisecond), failed)
	wantMaxHold(t, "the error of Do", err)
	for !errors.Is(err, lockclient.ErrLeaseLost) || len(failures) > 0 {
		err = <-failures
	}
	wantMaxHold(t, "the last heartbeat's error", err)
}

// A TTL that is longer than max_hold_ms does not count, even without an answer of a gateway.
func TestValidityIsLimitedByMaxHold(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	const limit = 3 * time.Second
	limitHold(t, client, lock, limit)
	lease := mustAcquire(t, client, lock, lockclient.WithTTL(time.Hour))
	if left := lease.ExpiresIn(); left > limit {
		t.Errorf("it is valid for %v, expected at most %v", left, limit)
	}
	err := lease.RenewWithTTL(ctx, 2*time.Hour)
	if err != nil && !errors.Is(err, lockclient.ErrLeaseLost) || lease.ExpiresIn() > limit {
		t.Errorf("after a renewal it is valid for %v, %v, expected at most %v", lease.ExpiresIn(), err, limit)
	}
	wantMaxHold(t, "the cause", causeOf(t, "the context", lease.Context()))
	next := mustAcquire(t, client, lock, lockclient.WithWait(time.Minute), lockclient.WithTTL(time.Hour))
	if next.Err() != nil || next.ExpiresIn() > limit {
		t.Errorf("the next lease is valid for %v, %v, expected at most %v", next.ExpiresIn(), next.Err(), limit)
	}
	wantErr(t, "the late Put", second(lease.Put(ctx, "k", nil)), lockclient.ErrTokenStale)
	wantMaxHold(t, "the next cause", causeOf(t, "the next context", next.Context()))
}

// A lease in a session ends at max_hold_ms, counted from its grant, and the session continues.
func TestMaxHoldInASession(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	limitHold(t, client, lock, 3*time.Second)
	session, err := client.NewSession(ctx)
	check(t, err)
	defer session.Close(ctx)
	first, err := session.Acquire(ctx, lock)
	check(t, err)
	next, err := session.Acquire(ctx, lock, lockclient.WithWait(time.Minute))
	check(t, err)
	if next.Err() != nil || next.ExpiresIn() > 3*time.Second {
		t.Errorf("the second lease is valid for %v, %v, expected at most 3s", next.ExpiresIn(), next.Err())
	}
	wantMaxHold(t, "the first cause", causeOf(t, "the first context", first.Context()))
	wantMaxHold(t, "the second cause", causeOf(t, "the second context", next.Context()))
	check(t, session.Err())
}
