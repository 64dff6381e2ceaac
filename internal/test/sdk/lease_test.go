package sdk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

func TestLease(t *testing.T) {
	t.Parallel()
	client, lock := shared(t, lockclient.WithOwner("worker-1"))
	ctx := await.Context(t)
	lease := mustAcquire(t, client, lock, lockclient.WithTTL(time.Minute))
	if lease.Name() != lock || lease.Owner() != "worker-1" || lease.FencingToken() < 1 || lease.ID() == "" ||
		lease.Info().TTLMS != 60_000 {
		t.Errorf("the lease is %+v", lease.Info())
	}
	if text := fmt.Sprintf("%v %+v", lease, lease); strings.Contains(text, lease.ID()) || !strings.Contains(text, lock) {
		t.Errorf("it prints as %s, expected the lock and no secret", text)
	}
	if left := lease.ExpiresIn(); left <= 0 || left > 60*time.Second*99/100 {
		t.Errorf("it is valid for %v, expected at most 99%% of its TTL", left)
	}
	if lease.Err() != nil || !lease.Valid() || lease.Context().Err() != nil || lease.HeartbeatErr() != nil {
		t.Errorf("a new lease has the error %v", lease.Err())
	}
	before := lease.ExpiresIn()
	if err := lease.RenewWithTTL(ctx, 2*time.Minute); err != nil || lease.ExpiresIn() < before+30*time.Second {
		t.Errorf("after a renewal to a longer TTL it is valid for %v, %v", lease.ExpiresIn(), err)
	}
	if err := lease.RenewWithTTL(ctx, 10*time.Second); err != nil || lease.ExpiresIn() > 10*time.Second {
		t.Errorf("after a renewal to a shorter TTL it is valid for %v, %v", lease.ExpiresIn(), err)
	}
	other, _ := shared(t)
	third, _ := shared(t)
	if other.Owner() == third.Owner() || strings.Count(other.Owner(), ":") != 2 {
		t.Errorf("the default owners are %q and %q, expected unique ones", other.Owner(), third.Owner())
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	lease := mustAcquire(t, client, lock)
	derived, cancel := context.WithCancel(lease.Context())
	defer cancel()
	for range 3 {
		check(t, lease.Release(ctx))
	}
	lease.ReleaseOnce()
	for what, ended := range map[string]context.Context{"the context": lease.Context(), "a derived context": derived} {
		wantErr(t, what, causeOf(t, what, ended), lockclient.ErrLeaseReleased)
		wantErr(t, "Err of "+what, ended.Err(), context.Canceled)
	}
	if lease.ExpiresIn() != 0 {
		t.Error("a released lease is valid")
	}
	wantErr(t, "Renew", lease.Renew(ctx), lockclient.ErrLeaseReleased)
	wantErr(t, "Put", second(lease.Put(ctx, "k", nil)), lockclient.ErrTokenStale)
	(*lockclient.Lease)(nil).ReleaseOnce()
}

func TestCloseEndsLeases(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	lease := mustAcquire(t, client, lock)
	client.Close()
	client.Close()
	for what, err := range map[string]error{
		"the cause":  context.Cause(lease.Context()),
		"Err":        lease.Err(),
		"Acquire":    second(client.Acquire(ctx, lock)),
		"NewSession": second(client.NewSession(ctx)),
		"Watch":      second(client.Watch(ctx, lock)),
	} {
		wantErr(t, what, err, lockclient.ErrClosed)
	}
	check(t, second(lease.Put(ctx, "k", []byte("v"))))
	check(t, lease.Release(ctx))
}

// limitHold sets the max_hold_ms of the lock's policy.
func limitHold(t *testing.T, client *lockclient.Client, lock string, limit time.Duration) {
	t.Helper()
	ms := limit.Milliseconds()
	check(t, second(admin.New(client).PutPolicy(await.Context(t), lock, api.PolicyRequest{MaxHoldMS: &ms})))
	t.Cleanup(func() { _ = admin.New(client).DeletePolicy(context.Background(), lock) })
}

// A lease that is renewed all the time ends at its policy's max_hold_ms, before a TTL that is longer, and Do returns that.
func TestDoEndsAtMaxHold(t *testing.T) {
	t.Parallel()
	client, lock := shared(t)
	ctx := await.Context(t)
	const limit = 3 * time.Second
	limitHold(t, client, lock, limit)
	failures := make(chan error, 1000)
	failed := lockclient.OnHeartbeatError(func(err error) { failures <- err })
	err := client.Do(ctx, lock, func(ctx context.Context, lease *lockclient.Lease) error {
		if left := lease.ExpiresIn(); left > limit {
			t.Errorf("it is valid for %v, expected at most %v", left, limit)
		}
		cause := causeOf(t, "the context", ctx)
		wantErr(t, "the cause", cause, lockclient.ErrLeaseLost)
		wantErr(t, "Err", lease.Err(), lockclient.ErrLeaseLost)
		if lease.ExpiresIn() != 0 {
			t.Errorf("it is valid for %v after its end", lease.ExpiresIn())
		}
		// The context ended a little before the lease. The next lease is granted at its end.
		next, err := client.Acquire(context.WithoutCancel(ctx), lock, lockclient.WithWait(time.Minute))
		check(t, err)
		next.ReleaseOnce()
		return cause
	}, lockclient.WithTTL(time.Minute), lockclient.HeartbeatEvery(50*time.Millisecond), failed)
	wantErr(t, "the error of Do", err, lockclient.ErrLeaseLost)
	for !errors.Is(err, lockclient.ErrLeaseLost) || len(failures) > 0 {
		err = <-failures
	}
	wantErr(t, "the last heartbeat's error", err, lockclient.ErrLeaseLost)
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
	wantErr(t, "the first cause", causeOf(t, "the first context", first.Context()), lockclient.ErrLeaseLost)
	wantErr(t, "the second cause", causeOf(t, "the second context", next.Context()), lockclient.ErrLeaseLost)
	check(t, session.Err())
}
