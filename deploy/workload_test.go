package deploy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/lockclient"
)

// workload uses all of fencegate, in a small way, until it is stopped. It is well-behaved: nothing is shut out.
func workload(t *testing.T, clients []*lockclient.Client) (stop func()) {
	return repeat(t, clients, func(ctx context.Context, client *lockclient.Client, name string) error {
		return errors.Join(holder(ctx, client, name), waiter(ctx, client, name), session(ctx, client, name))
	})
}

// storm is of holders who are away when their leases run out, and write when another one holds the lock.
func storm(t *testing.T, clients []*lockclient.Client) (stop func()) {
	return repeat(t, clients, zombie)
}

// workPause is between two turns of a client: Prometheus and other tests need the processor, too.
const workPause = 50 * time.Millisecond

// repeat does work at each client again and again. An error fails the test, unless it was caused by the end.
func repeat(
	t *testing.T, clients []*lockclient.Client, work func(ctx context.Context, client *lockclient.Client, name string) error,
) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for i, client := range clients {
		working.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				time.Sleep(workPause)
				if err := work(ctx, client, fmt.Sprintf("work-%d/job-%d", i, n%10)); err != nil && ctx.Err() == nil {
					t.Errorf("the workload: %v", err)
				}
			}
		})
	}
	stop = func() {
		cancel()
		working.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// holder takes a lock, renews it, writes by every source, and gives it back.
func holder(ctx context.Context, client *lockclient.Client, name string) error {
	lease, err := client.Acquire(ctx, name)
	if err != nil {
		return err
	}
	defer lease.ReleaseOnce()
	if err := lease.Renew(ctx); err != nil {
		return err
	}
	if _, err := lease.Put(ctx, "http", []byte("x")); err != nil {
		return err
	}
	pipeline, err := lease.Pipeline(ctx)
	if err != nil {
		return err
	}
	if _, err := pipeline.Put(ctx, "bulk", []byte("x")); err != nil {
		return err
	}
	if err := pipeline.Close(); err != nil {
		return err
	}
	token, sequence := lease.FencingToken(), int64(1_000_000)
	_, err = client.API().Transaction(ctx, api.TransactionRequest{
		Fences: []api.WriteToken{{Resource: name, FencingToken: &token, Sequence: &sequence}},
		Ops:    []api.Op{{Op: "put", Resource: name, Key: "transaction", Value: []byte(`1`)}},
	})
	return err
}

// waiter stands in line for a moment, and is granted the lock.
func waiter(ctx context.Context, client *lockclient.Client, name string) error {
	first, err := client.Acquire(ctx, name+"/line")
	if err != nil {
		return err
	}
	released := time.AfterFunc(50*time.Millisecond, func() { first.ReleaseOnce() })
	defer released.Stop()
	second, err := client.Acquire(ctx, name+"/line", lockclient.WithLeaseOwner("second"), lockclient.WithWait(await.Limit))
	if err == nil {
		second.ReleaseOnce()
	}
	return err
}

// session is made, kept alive and ended.
func session(ctx context.Context, client *lockclient.Client, name string) error {
	made, err := client.API().CreateSession(ctx, api.SessionRequest{OwnerID: name})
	if err != nil {
		return err
	}
	if _, err := client.API().KeepSessionAlive(ctx, made.SessionID); err != nil {
		return err
	}
	_, err = client.API().EndSession(ctx, made.SessionID)
	return err
}

// zombie lets its lease run out; another owner is granted the lock; the zombie writes, and renews.
func zombie(ctx context.Context, client *lockclient.Client, name string) error {
	calls, ttl, one := client.API(), int64(100), int64(1)
	dead, err := calls.Acquire(ctx, name+"/haunted", api.AcquireRequest{OwnerID: "zombie", TTLMS: &ttl})
	if err != nil {
		return err
	}
	heir, err := calls.Acquire(ctx, name+"/haunted", api.AcquireRequest{OwnerID: "heir", WaitMS: await.Limit.Milliseconds()})
	if err != nil {
		return err
	}
	token := api.FencingToken{Token: dead.FencingToken, Sequence: &one}
	if _, err := calls.Put(ctx, dead.Lock, "k", lockclient.Write{Token: token, Value: []byte("late")}); !errors.Is(err, lockclient.ErrTokenStale) {
		return fmt.Errorf("a zombie's write was answered %w", errors.Join(errors.New("not as stale"), err))
	}
	_, err = calls.Renew(ctx, dead.Lock, api.RenewRequest{OwnerID: dead.OwnerID, LeaseID: dead.LeaseID, FencingToken: dead.FencingToken})
	if !errors.Is(err, lockclient.ErrLeaseLost) {
		return fmt.Errorf("a zombie's renewal was answered %w", errors.Join(errors.New("not as lost"), err))
	}
	return calls.Release(ctx, heir.Lock, api.ReleaseRequest{OwnerID: heir.OwnerID, LeaseID: heir.LeaseID, FencingToken: heir.FencingToken})
}
