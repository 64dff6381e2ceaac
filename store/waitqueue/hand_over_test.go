package waitqueue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

// TestHandOver checks that a release grants the lock to the next waiter of the process in the same transaction: the
// engine does not run, so nothing else could wake the waiter.
func TestHandOver(t *testing.T) {
	t.Parallel()
	b := enginetest.New(t)
	e, err := engine.New(b.Store, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := await.Context(t)
	request := store.AcquireRequest{Lock: "lock", OwnerID: "holder", TTL: time.Hour}
	held, err := e.Acquire(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	waiters := make([]chan store.Lease, 2)
	for i := range waiters {
		waiters[i] = make(chan store.Lease, 1)
		request := request
		request.OwnerID, request.Wait = "waiter", store.WaitMax
		go func() {
			lease, err := e.Acquire(ctx, request)
			if err != nil {
				t.Error(err)
			}
			waiters[i] <- lease
		}()
		await.True(t, "the acquire is in the queue", func() bool {
			return b.Count(t, "select count(*) from fence.waiters") == i+1
		})
	}
	for i := range waiters {
		if err := e.Release(ctx, held.Ref()); err != nil {
			t.Fatal(err)
		}
		next := await.Receive(t, "the next waiter has the lock", waiters[i])
		sameTransaction := b.Count(t, "select count(*) from fence.leases l join fence.leases n on n.lock = l.lock "+
			"where l.fencing_token = $1 and n.fencing_token = $2 and l.xmin = n.xmin", held.Token, next.Token)
		if sameTransaction != 1 || next.Token <= held.Token {
			t.Errorf("token %d was granted after %d in another transaction", next.Token, held.Token)
		}
		held = next
	}
	// A lease that was lost is not released, and nobody gets the lock.
	stale := held.Ref()
	stale.ID[0]++
	if err := e.Release(ctx, stale); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("the release with another lease_id: %v, want ErrLeaseLost", err)
	}
}
