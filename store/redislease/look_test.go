package redislease_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
)

// TestLooksOfSeveralGateways checks that gateways which settle the same leases at the same time, in any order, are in no
// deadlock.
func TestLooksOfSeveralGateways(t *testing.T) {
	t.Parallel()
	const leases = 500
	db := enginetest.New(t)
	db.Exec(t, `insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at)
		select 'lock/' || n, n, gen_random_uuid(), 'A', 30000, now(), now() + interval '1 hour'
		from generate_series(1, $1) n`, leases)
	db.Exec(t, "analyze fence.leases")
	var ascending []store.LeaseStatus
	for i := range leases {
		ref := store.LeaseRef{Lock: store.Name(fmt.Sprint("lock/", i+1)), Token: int64(i + 1)}
		ascending = append(ascending, store.LeaseStatus{LeaseRef: ref, Left: long})
	}
	descending := slices.Clone(ascending)
	slices.Reverse(descending)
	var gateways sync.WaitGroup
	for i := range 4 {
		gateways.Go(func() {
			for range 3 {
				if err := db.SettleLeases(await.Context(t), [][]store.LeaseStatus{ascending, descending}[i%2]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	gateways.Wait()
}
