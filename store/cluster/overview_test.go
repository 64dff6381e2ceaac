package cluster_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
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
	for _, on := range b.nodes { // fewer leases of one principal are not listed
		on.Exec(t, `update fence.inventory set leases_of = '{"P": 2000}'`)
	}
	overview, err := gateway.Overview(t.Context())
	check(t, err)
	for _, on := range overview.Nodes {
		check(t, on.Failed)
		if on.Inventory.Held == 0 || on.Database.Version == "" {
			t.Errorf("node %s: %+v", on.Address, on)
		}
		held, locks = held+on.Inventory.Held, locks+on.Inventory.Locks
	}
	if got := overview.Inventory; got.Held != 8 || got.Locks != 8 || held != 8 || locks != 8 || got.LeasesOf["P"] != 4000 {
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

// TestRejectionsMoveToTheCoordinator checks that what nodes have recorded of rejected writes is in the lists of the
// coordinator, once, also if several gateways move it.
func TestRejectionsMoveToTheCoordinator(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3, 0, "text")
	b.place(t, 8, func(i int) int { return 1 + i%2 })
	gateways := []served{b.gateway(t), b.gateway(t)}
	reject := func(node *enginetest.DB, writes int, owner string, late *int64) {
		node.Exec(t, `insert into fence.rejections as r (resource, key, code, reason, source, address, fencing_token, sequence,
				granted_token, last_token, last_sequence, owner_id, late_ms, count, first_at, last_at)
			values ('job', 'jobs', 'token_stale', 'superseded', 'sql', '', 7, 1, 8, 8, 1, nullif($1, ''), $2, $3, now(), now())
			on conflict (resource, fencing_token, code, reason, source, address, principal)
			do update set count = r.count + excluded.count`, owner, late, writes)
	}
	late := int64(1300)
	reject(b.nodes[1], 3, "worker", &late)
	check(t, gateways[0].MoveRejections(t.Context()))
	stop := make(chan struct{})
	var moving sync.WaitGroup
	for _, gateway := range gateways {
		moving.Go(func() {
			for {
				if err := gateway.MoveRejections(t.Context()); err != nil {
					t.Error(err)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range 50 {
		reject(b.nodes[1], 1, "", nil)
		reject(b.nodes[2], 1, "", nil)
	}
	await.True(t, "all have moved", func() bool {
		return b.nodes[1].Count(t, "select count(*) from fence.rejections")+b.nodes[2].Count(t, "select count(*) from fence.rejections") == 0
	})
	close(stop)
	moving.Wait()
	listed, err := gateways[0].Rejections(t.Context(), store.RejectionQuery{Limit: 10})
	check(t, err)
	if len(listed) != 1 || listed[0].Count != 103 || listed[0].OwnerID != "worker" || *listed[0].Late != 1300*time.Millisecond {
		t.Errorf("the coordinator lists %+v", listed)
	}
	b.coordinator.Exec(t, "alter table fence.rejections rename to gone")
	reject(b.nodes[2], 1, "", nil)
	if err := gateways[0].MoveRejections(t.Context()); err == nil || b.nodes[2].Count(t, "select count(*) from fence.rejections") != 1 {
		t.Errorf("without the coordinator's table the rejection did not stay: %v", err)
	}
}
