package lockclient_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// limitHold sets a policy for the lock.
func limitHold(t *testing.T, client *lockclient.Client, lock string, limit time.Duration) {
	t.Helper()
	ms := limit.Milliseconds()
	_, err := client.API().PutPolicy(patient(t), lock, api.PolicyRequest{MaxHoldMS: &ms})
	check(t, err)
	t.Cleanup(func() { _ = client.API().DeletePolicy(context.Background(), lock) })
}

func wantHeldOut(t *testing.T, err error) {
	t.Helper()
	if problem := lockclient.ProblemOf(err); !errors.Is(err, lockclient.ErrLeaseLost) || problem == nil || problem.Reason != "max_hold" {
		t.Errorf("the error is %v, want ErrLeaseLost with the reason max_hold", err)
	}
}

// A lease that is renewed all the time ends at its policy's max_hold_ms: Do says so, and its late write is refused.
func TestDoEndsAtMaxHold(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	limitHold(t, client, lock, 400*time.Millisecond)
	failures := make(chan error, 1000)
	err := client.Do(ctx, lock, func(ctx context.Context, lease *lockclient.Lease) error {
		if _, err := lease.Put(ctx, "k", nil); err != nil {
			t.Error(err)
		}
		cause := done(t, ctx)
		wantHeldOut(t, cause)
		wantHeldOut(t, lease.Err())
		if lease.ExpiresIn() != 0 {
			t.Errorf("it is trusted for %v", lease.ExpiresIn())
		}
		// It was let go a little before its end; the next is granted the lock at that.
		next, err := client.Acquire(context.WithoutCancel(ctx), lock, lockclient.WithWait(time.Minute))
		check(t, err)
		next.ReleaseOnce()
		return cause
	}, lockclient.WithTTL(time.Minute), lockclient.WithHeartbeat(lockclient.HeartbeatEvery(50*time.Millisecond),
		lockclient.OnHeartbeatError(func(err error) { failures <- err })))
	wantHeldOut(t, err)
	for { // the last one is the end of the heartbeat
		select {
		case err := <-failures:
			if errors.Is(err, lockclient.ErrLeaseLost) {
				wantHeldOut(t, err)
				return
			}
		case <-ctx.Done():
			t.Fatal("the heartbeat goes on")
		}
	}
}

// The holder need not hear it from a gateway: a TTL that is longer than the limit does not count.
func TestALeaseIsNotTrustedBeyondMaxHold(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	limitHold(t, client, lock, 500*time.Millisecond)
	lease, err := client.Acquire(ctx, lock, lockclient.WithTTL(time.Hour))
	check(t, err)
	if left := lease.ExpiresIn(); left > 500*time.Millisecond {
		t.Errorf("it is trusted for %v", left)
	}
	if err := lease.RenewWithTTL(ctx, 2*time.Hour); err != nil && !errors.Is(err, lockclient.ErrLeaseLost) || lease.ExpiresIn() > 500*time.Millisecond {
		t.Errorf("it is trusted for %v after the renewal, %v", lease.ExpiresIn(), err)
	}
	wantHeldOut(t, done(t, lease.Context()))

	next, err := client.Acquire(ctx, lock, lockclient.WithWait(time.Minute), lockclient.WithTTL(time.Hour))
	check(t, err)
	if next.Err() != nil || next.ExpiresIn() > 500*time.Millisecond {
		t.Errorf("the next one is trusted for %v, %v", next.ExpiresIn(), next.Err())
	}
	if _, err := lease.Put(ctx, "k", nil); !errors.Is(err, lockclient.ErrTokenStale) {
		t.Errorf("the late write: %v", err)
	}
	wantHeldOut(t, done(t, next.Context()))
}

// In a session the lease ends, and the session goes on. How long it waited before does not count.
func TestMaxHoldInASession(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	limitHold(t, client, lock, time.Second)
	session, err := client.NewSession(ctx)
	check(t, err)
	defer session.Close(ctx)
	first, err := session.Acquire(ctx, lock)
	check(t, err)
	second, err := session.Acquire(ctx, lock, lockclient.WithWait(time.Minute))
	check(t, err)
	if second.Err() != nil || second.ExpiresIn() > time.Second {
		t.Errorf("the second lease is trusted for %v, %v", second.ExpiresIn(), second.Err())
	}
	wantHeldOut(t, done(t, first.Context()))
	wantHeldOut(t, done(t, second.Context()))
	if session.Err() != nil {
		t.Errorf("the session has ended: %v", session.Err())
	}
}
