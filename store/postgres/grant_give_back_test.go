package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// TestGiveBackAfterTheRequestWasSentAgain checks that a gateway that gives back a lease whose client is gone does not
// take it from the client, if the client has sent its request again through another gateway. If the client does so
// later, it gets another lease.
func TestGiveBackAfterTheRequestWasSentAgain(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	gateway := uuid.New()
	b.Exec(t, "select fence.heartbeat($1, 60000)", gateway)
	for _, before := range []bool{false, true} { // the lease is given back before the request is sent again
		lock := store.Name(fmt.Sprint("before ", before))
		request := store.AcquireRequest{Lock: lock, OwnerID: "waiter", Mode: store.Exclusive, Scope: store.Node,
			TTL: time.Minute, RequestID: "request", Wait: time.Minute}
		holder := b.granted(t, store.AcquireRequest{Lock: lock, OwnerID: "holder"})
		if acquired, err := b.Enqueue(t.Context(), request, gateway); err != nil || acquired.Ticket == 0 {
			t.Fatalf("the request is not in the queue: %+v (%v)", acquired, err)
		}
		if err := b.Release(t.Context(), holder.Ref()); err != nil {
			t.Fatal(err)
		}
		granted, err := b.GrantNext(t.Context(), gateway, lock, store.Node, time.Second)
		if err != nil || len(granted) == 0 || !granted[0].Done || granted[0].Err != nil {
			t.Fatalf("the lock is not granted to the waiter: %+v (%v)", granted, err)
		}
		giveBack := func() {
			if err := b.GiveBack(t.Context(), granted[0].Lease); err != nil {
				t.Error(err)
			}
		}
		if before {
			giveBack()
		}
		request.Wait = 0
		lease := b.granted(t, request)
		if !before {
			giveBack()
		}
		if (lease.Ref() != granted[0].Lease.Ref()) != before {
			t.Errorf("given back before: %v; sent again the request was granted %+v, after %+v", before, lease, granted[0])
		}
		if _, err := b.Renew(t.Context(), lease.Ref(), 0); err != nil {
			t.Errorf("given back before: %v; the client can't renew its lease: %v", before, err)
		}
	}
}
