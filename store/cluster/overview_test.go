package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/store"
)

// TestOverviewOfNodes checks that the overview counts what all nodes hold and have rejected, names each node, and shows
// one that does not answer as such.
func TestOverviewOfNodes(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3, 0, "text")
	b.place(t, 8, func(i int) int { return 1 + i%2 })
	gateway := b.gateway(t)
	check(t, gateway.Move(t.Context()))
	for i := range 8 {
		_, err := gateway.Acquire(t.Context(), store.AcquireRequest{Lock: store.Name(fmt.Sprint("lock-", i)), OwnerID: "worker", TTL: time.Hour})
		check(t, err)
	}
	var held, locks int64
	for _, on := range b.nodes {
		on.Exec(t, "update fence.rejected_by_sql set rejections = 2 where (code, reason, mode) = ('token_stale', 'superseded', 'enforce')")
	}
	_, err := gateway.Recount(t.Context())
	check(t, err)
	overview, err := gateway.Overview(t.Context())
	check(t, err)
	for _, on := range overview.Nodes {
		check(t, on.Failed)
		if on.Inventory.Held == 0 || on.Database.Version == "" {
			t.Errorf("node %s: %+v", on.Address, on)
		}
		held, locks = held+on.Inventory.Held, locks+on.Inventory.Locks
	}
	if got := overview.Inventory; got.Held != 8 || got.Locks != 8 || held != 8 || locks != 8 || got.LeasesOf == nil {
		t.Errorf("%d of 8 leases and %d of 8 locks were counted, at the nodes %d and %d", got.Held, got.Locks, held, locks)
	}
	var rejected int64
	for _, rejections := range overview.Database.BySQL.Rejected {
		rejected += rejections
	}
	if rejected != 4 || len(overview.Nodes) != 2 || overview.Nodes[0].Address != address(1) || overview.Nodes[1].Address != address(2) {
		t.Errorf("%d rejections of 4 were counted, of nodes %+v", rejected, overview.Nodes)
	}
	if stats := gateway.PoolStats(); stats.Max != 18 || !gateway.Listening() {
		t.Errorf("three databases have %d connections at most, want 18; that all notify is %t", stats.Max, gateway.Listening())
	}

	b.nodes[2].Exec(t, "drop function fence.lineage cascade; alter table fence.inventory rename to gone")
	await.True(t, "a node fails", func() bool {
		overview, err = gateway.Overview(t.Context())
		return err == nil && overview.Nodes[1].Failed != nil
	})
	if overview.Nodes[0].Failed != nil || overview.Inventory.Held != overview.Nodes[0].Inventory.Held {
		t.Errorf("without a node: %+v", overview)
	}
}
