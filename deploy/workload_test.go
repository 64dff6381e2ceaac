package deploy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// workload uses all parts of fencegate until it is stopped. None of its writes is rejected.
func workload(t *testing.T, clients []*lockclient.Client) (stop func()) {
	return repeat(t, clients, func(ctx context.Context, client *lockclient.Client, name string) error {
		return errors.Join(holder(ctx, client, name), waiter(ctx, client, name), session(ctx, client, name))
	})
}

// storm has holders let their leases expire, and write while another owner holds the lock.
func storm(t *testing.T, clients []*lockclient.Client) (stop func()) {
	return repeat(t, clients, zombie)
}

// workPause is between two turns of a client: Prometheus and other tests need the processor, too.
const workPause = 50 * time.Millisecond

// turn is one turn of a client's work at a lock.
type turn func(ctx context.Context, client *lockclient.Client, name string) error

// repeat does work at each client again and again. An error fails the test, unless a call got no answer, or was cut off
// by the end.
func repeat(t *testing.T, clients []*lockclient.Client, work turn) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for i, client := range clients {
		working.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				time.Sleep(workPause)
				err := work(ctx, client, fmt.Sprintf("work-%d/job-%d", i, n%10))
				switch {
				case err == nil, ctx.Err() != nil:
				case errors.Is(err, lockclient.ErrUnavailable): // a connection was lost; a client would call again
					t.Logf("the workload: %v", err)
				default:
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
	if err := lease.Writes(ctx, []api.BulkWrite{{Op: "put", Key: "bulk", Value: []byte("1")}})[0].Err; err != nil {
		return err
	}
	token, sequence := lease.FencingToken(), int64(1_000_000)
	_, err = client.API().Transaction(ctx, api.TransactionRequest{
		Fences: []api.WriteToken{{Resource: name, FencingToken: &token, Sequence: &sequence}},
		Ops:    []api.Op{{Op: "put", Resource: name, Key: "transaction", Value: []byte(`1`)}},
	})
	return err
}

// waiter waits in the queue for a moment, and is granted the lock.
func waiter(ctx context.Context, client *lockclient.Client, name string) error {
	first, err := client.Acquire(ctx, name+"/queue")
	if err != nil {
		return err
	}
	released := time.AfterFunc(50*time.Millisecond, func() { first.ReleaseOnce() })
	defer released.Stop()
	second, err := client.Acquire(ctx, name+"/queue", lockclient.WithLeaseOwner("second"), lockclient.WithWait(await.Limit))
	if err == nil {
		second.ReleaseOnce()
	}
	return err
}

// forgotten leaves a transaction open that has locked the lease of a session which has expired: no sweep ends the lease,
// and no gateway grants its lock to the waiter.
func forgotten(t *testing.T, databaseURL string, client *lockclient.Client) (end func()) {
	t.Helper()
	calls, hour := client.API(), time.Hour.Milliseconds()
	made, err := calls.CreateSession(t.Context(), api.SessionRequest{OwnerID: "dead", TTLMS: &hour})
	check(t, err)
	lease, err := calls.Acquire(t.Context(), "forgotten", api.AcquireRequest{OwnerID: "dead", SessionID: &made.SessionID})
	check(t, err)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_, _ = calls.Acquire(t.Context(), lease.Lock, api.AcquireRequest{OwnerID: "next", WaitMS: (5 * time.Minute).Milliseconds()})
	})
	t.Cleanup(waiting.Wait)
	conn, err := pgx.Connect(t.Context(), databaseURL)
	check(t, err)
	await.True(t, "the other owner waits", func() bool {
		var waits bool
		check(t, conn.QueryRow(t.Context(), "select exists (select from fence.waiters where lock = 'forgotten')").Scan(&waits))
		return waits
	})
	_, err = conn.Exec(t.Context(), "update fence.sessions set expires_at = clock_timestamp(), check_at = '-infinity' "+
		"where owner_id = 'dead'; update fence.leases set expires_at = clock_timestamp() where lock = 'forgotten'")
	check(t, err)
	other, err := pgx.Connect(t.Context(), databaseURL)
	check(t, err)
	_, err = other.Exec(t.Context(), `begin;
		select from fence.fences where resource = 'forgotten' for update;
		select from fence.leases where lock = 'forgotten' for update`)
	check(t, err)
	check(t, conn.Close(t.Context()))
	return func() { check(t, other.Close(t.Context())) }
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

// zombie lets its lease expire. Another owner is granted the lock; then the zombie writes, and renews.
func zombie(ctx context.Context, client *lockclient.Client, name string) error {
	calls, ttl, one := client.API(), int64(100), int64(1)
	dead, err := calls.Acquire(ctx, name+"/abandoned", api.AcquireRequest{OwnerID: "zombie", TTLMS: &ttl})
	if err != nil {
		return err
	}
	heir, err := calls.Acquire(ctx, name+"/abandoned",
		api.AcquireRequest{OwnerID: "heir", WaitMS: await.Limit.Milliseconds()})
	if err != nil {
		return err
	}
	token := api.FencingToken{Token: dead.FencingToken, Sequence: &one}
	_, err = calls.Put(ctx, dead.Lock, "k", lockclient.Write{Token: token, Value: []byte("late")})
	if !errors.Is(err, lockclient.ErrTokenStale) {
		return errors.Join(errors.New("a zombie's write did not return token_stale"), err)
	}
	_, err = calls.Renew(ctx, dead.Lock, api.RenewRequest{OwnerID: dead.OwnerID, LeaseID: dead.LeaseID,
		FencingToken: dead.FencingToken})
	if !errors.Is(err, lockclient.ErrLeaseLost) {
		return errors.Join(errors.New("a zombie's renewal did not return lease_lost"), err)
	}
	return calls.Release(ctx, heir.Lock, api.ReleaseRequest{OwnerID: heir.OwnerID, LeaseID: heir.LeaseID,
		FencingToken: heir.FencingToken})
}
