package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// TestGiveBackAfterTheRequestWasSentAgain checks that a gateway that gives back a lease whose client is gone does not
// take it from the client, if the client has sent its request again through another gateway.
func TestGiveBackAfterTheRequestWasSentAgain(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	gateway := uuid.New()
	if _, err := b.SQL.Exec(t.Context(), "select fence.heartbeat($1, 60000)", gateway); err != nil {
		t.Fatal(err)
	}
	acquire := func(t *testing.T, request store.AcquireRequest) store.Lease {
		lease, err := b.Acquire(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	// claimed has the lock granted to the request of one who waits at the gateway, and returns how the gateway gives it
	// back.
	claimed := func(t *testing.T, lock store.Name) (giveBack func() string) {
		holder := acquire(t, store.AcquireRequest{Lock: lock, OwnerID: "holder"})
		var outcome string
		ask := "select outcome from fence.acquire(fence.lease_request($1, 'waiter', 'exclusive', 'node', 60000, null, " +
			"'request', null), 60000, $2)"
		if err := b.SQL.QueryRow(t.Context(), ask, lock, gateway).Scan(&outcome); err != nil || outcome != "queued" {
			t.Fatal(outcome, err)
		}
		if err := b.Release(t.Context(), holder.Ref()); err != nil {
			t.Fatal(err)
		}
		var id uuid.UUID
		var token int64
		claim := "select c.outcome, (c.lease).lease_id, (c.lease).fencing_token from fence.grant_next($1, $2, 'node') c"
		if err := b.SQL.QueryRow(t.Context(), claim, gateway, lock).Scan(&outcome, &id, &token); err != nil ||
			outcome != "granted" {
			t.Fatal(outcome, err)
		}
		return func() (status string) {
			if err := b.SQL.QueryRow(t.Context(), "select fence.give_back($1, 'waiter', $2, $3)", lock, id,
				token).Scan(&status); err != nil {
				t.Fatal(err)
			}
			return status
		}
	}
	again := func(lock store.Name) store.AcquireRequest {
		return store.AcquireRequest{Lock: lock, OwnerID: "waiter", TTL: time.Minute, RequestID: "request"}
	}

	t.Run("after it", func(t *testing.T) {
		giveBack := claimed(t, "after")
		lease := acquire(t, again("after"))
		if status := giveBack(); status != "adopted" {
			t.Errorf("the lease was given back: %s, want adopted", status)
		}
		if _, err := b.Renew(t.Context(), lease.Ref(), 0); err != nil {
			t.Errorf("the client that was answered with the lease can't renew it: %v", err)
		}
	})
	t.Run("before it", func(t *testing.T) {
		giveBack := claimed(t, "before")
		if status := giveBack(); status != "released" {
			t.Errorf("giving back returned %s, want released", status)
		}
		lease := acquire(t, again("before"))
		if _, err := b.Renew(t.Context(), lease.Ref(), 0); err != nil {
			t.Errorf("the lease that was granted after that can't be renewed: %v", err)
		}
	})
}
