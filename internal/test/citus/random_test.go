package citus_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/spec/drive"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	testpostgres "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// atNode is what SQL clients have no function for, at the node of the names of a round.
type atNode struct {
	spec.Service

	node   *int
	stores []*postgres.Store
}

func (a atNode) Break(ctx context.Context, lock store.Name, reason string) (store.Lease, error) {
	return a.stores[*a.node].Break(ctx, lock, reason)
}

func (a atNode) Lock(ctx context.Context, name store.Name) (store.Lock, error) {
	return a.stores[*a.node].Lock(ctx, name)
}

func (a atNode) Fence(ctx context.Context, resource store.Name) (store.Fence, error) {
	return a.stores[*a.node].Fence(ctx, resource)
}

func (a atNode) Record(ctx context.Context, resource, key store.Name) (store.Record, error) {
	return a.stores[*a.node].Record(ctx, resource, key)
}

// TestClientsAtRandom lets SQL clients at the coordinator and at both workers do at random what they should and what they
// should not, at each isolation level, and checks their histories against the specification. fence.set_token is not
// supported, so they are admitted in the other ways.
func TestClientsAtRandom(t *testing.T) {
	c := newClusterOf(t, "text")
	for _, journal := range drive.Journals() {
		execute(t, c.coordinator, journal.Create)
		execute(t, c.coordinator, fmt.Sprintf("select create_distributed_table('%s', 'a', colocate_with := 'fencegate.places')", journal.Name))
		execute(t, c.coordinator, "set citus.enable_unsafe_triggers = on; select "+journal.Protect)
	}
	node := 0
	var stores []*postgres.Store
	for _, worker := range c.workers {
		stores = append(stores, enginetest.OpenStore(t, postgres.Config{DatabaseURL: worker.URL()}))
	}
	clients := drive.Clients{Count: 4, SlotsMax: 4, For: time.Second, Seed: rand.Uint64(),
		Ways: []string{spec.ByGuard, spec.ByTryGuard, spec.InSavepoint},
		Weights: []spec.Weight{{Kind: spec.Acquire, Share: 4}, {Kind: spec.Guard, Share: 12}, {Kind: spec.Expire, Share: 4},
			{Kind: spec.Release, Share: 1}, {Kind: spec.Break, Share: 1}}}
	servers := []*testpostgres.Cluster{c.workers[0], c.workers[1], c.coordinator}
	for i := range clients.Count {
		conns := []*pgx.Conn{connect(t, c.workers[0]), connect(t, c.workers[1])}
		clients.Gateways = append(clients.Gateways, drive.NewSQLOfCluster(t, servers[i%len(servers)].URL(),
			atNode{node: &node, stores: stores}, func(store.Name) *pgx.Conn { return conns[node] }))
	}
	coordinator := connect(t, c.coordinator)
	for _, level := range spec.Levels {
		clients.Levels = []string{level}
		answers := map[string]int{}
		for round := range 10 {
			root := fmt.Sprintf("%s-%d", level, round)
			var at string
			check(t, coordinator.QueryRow(t.Context(), `select nodename from pg_dist_shard_placement
				where shardid = get_shard_id_for_distribution_column('accounts', $1::text)`, root).Scan(&at))
			if node = 0; at == directory(c.workers[1]) {
				node = 1
			}
			clients.Seed++
			clients.Names = nil
			for _, name := range []string{"", "/a", "/a/1", "/b"} {
				clients.Names = append(clients.Names, store.Name(root+name))
			}
			calls, _, err := clients.Run(t.Context(), spec.State{})
			if err == nil {
				err = clients.Gateways[0].(*drive.SQL).CheckOrder(t.Context(), clients.Names, calls)
			}
			if err != nil {
				t.Fatalf("%q, round %d: %v", level, round, err)
			}
			for _, call := range calls {
				answers[string(call.Op.Kind)+" "+call.Answer.Code]++
			}
		}
		t.Logf("%q: %v", level, answers)
		if answers["guard "+spec.CodeAdmitted] < 20 {
			t.Errorf("few transactions were admitted")
		}
	}
}
