package citus_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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

// newJournals returns a cluster with the journals of SQL clients, and the stores of its workers.
func newJournals(t *testing.T) (c *cluster, stores []*postgres.Store) {
	t.Helper()
	c = newClusterOf(t, "text")
	for _, journal := range drive.Journals() {
		execute(t, c.coordinator, journal.Create)
		execute(t, c.coordinator, fmt.Sprintf("select create_distributed_table('%s', 'a', colocate_with := 'fencegate.places')", journal.Name))
		execute(t, c.coordinator, "set citus.enable_unsafe_triggers = on; select "+journal.Protect)
	}
	for _, worker := range c.workers {
		stores = append(stores, enginetest.OpenStore(t, postgres.Config{DatabaseURL: worker.URL()}))
	}
	return c, stores
}

// nodeOf returns the index of the worker that has a name.
func (c *cluster) nodeOf(t *testing.T, coordinator *pgx.Conn, name store.Name) int {
	t.Helper()
	var at string
	check(t, coordinator.QueryRow(t.Context(), `select nodename from pg_dist_shard_placement
		where shardid = get_shard_id_for_distribution_column('fencegate.places', fencegate.place($1))`, name).Scan(&at))
	return slices.IndexFunc(c.workers, func(worker *testpostgres.Cluster) bool { return directory(worker) == at })
}

// TestEveryAnswer makes random calls, one after the other, by the SQL functions at the coordinator and at a worker, and for
// what they don't do by the store of the name's node: the answers must be those of the specification.
func TestEveryAnswer(t *testing.T) {
	c, stores := newJournals(t)
	coordinator := connect(t, c.coordinator)
	servers := []*testpostgres.Cluster{c.coordinator, c.workers[0]}
	target := drive.Cluster{At: func(name store.Name) int {
		run, _, _ := strings.Cut(string(name), "/")
		server := int(run[len(run)-1]) % len(servers) // every other run is by the worker
		return c.nodeOf(t, coordinator, name)*len(servers) + server
	}}
	var calls spec.Generator
	for i, worker := range c.workers {
		conn := connect(t, worker)
		sql, err := pgxpool.New(t.Context(), worker.URL())
		check(t, err)
		t.Cleanup(sql.Close)
		sweeper := enginetest.NewSweeper(t, stores[i], postgres.SweeperConfig{})
		for _, server := range servers {
			client := drive.NewSQLOfCluster(t, server.URL(), stores[i], func(store.Name) *pgx.Conn { return conn })
			target.Nodes = append(target.Nodes, drive.Store{Service: client, SQL: sql, Sweep: func(ctx context.Context) error {
				_, err := sweeper.Sweep(ctx)
				return err
			}})
			calls = client.Calls()
		}
	}
	calls.Sessionless, calls.Weights = true, append(spec.Sessionless(), spec.Weight{Kind: spec.Guard, Share: 30})
	calls.Ways = ways
	drive.Sequences(t, target, calls)
}

// ways are those in which clients are admitted: fence.set_token is not supported.
var ways = []string{spec.ByGuard, spec.ByTryGuard, spec.InSavepoint}

// TestClientsAtRandom lets SQL clients at the coordinator and at both workers do at random what they should and what they
// should not, at each isolation level, and checks their histories against the specification.
func TestClientsAtRandom(t *testing.T) {
	c, stores := newJournals(t)
	node := 0
	clients := drive.Clients{Count: 4, SlotsMax: 4, For: time.Second, Seed: rand.Uint64(),
		Ways: ways,
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
			node = c.nodeOf(t, coordinator, store.Name(root))
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
