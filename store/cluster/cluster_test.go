package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/spec/drive"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/cluster"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

// bed is a coordinator with nodes, each a database, and gateways.
type bed struct {
	coordinator *enginetest.DB
	nodes       []*enginetest.DB
	gateways    []served
}

// served is a Cluster as the specification calls it.
type served struct{ *cluster.Cluster }

func (s served) Acquire(ctx context.Context, request store.AcquireRequest) (lease store.Lease, err error) {
	err = s.Cluster.Acquire(ctx, &request, &lease)
	return lease, err
}

func (s served) Release(ctx context.Context, ref store.LeaseRef) error {
	_, err := s.ReleaseLease(ctx, ref)
	return err
}

func (s served) Write(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	results := make([]store.Result, len(writes))
	for i, write := range writes {
		var err error
		if results[i], err = s.Commit(ctx, write); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// address is how the placement names a node.
func address(node int) string { return fmt.Sprintf("node-%d:5432", node) }

// newBed returns a bed whose coordinator has all names.
func newBed(t *testing.T, nodes, gateways int, placeType string) *bed {
	t.Helper()
	b := &bed{coordinator: enginetest.New(t)}
	for range nodes {
		b.nodes = append(b.nodes, enginetest.New(t))
	}
	for _, on := range append(b.nodes, b.coordinator) {
		on.Exec(t, "insert into fence.cluster (place_type) values ($1)", placeType)
	}
	b.coordinator.Exec(t, "insert into fence.ranges (first, last) values (-2147483648, 2147483647)")
	b.coordinator.Exec(t, `create schema fencegate;
		create table fencegate.ranges (first bigint, last bigint, node integer);
		create function fencegate.placements() returns table (first bigint, last bigint, node text, address text)
		language sql as 'select first, last, node::text, ''node-'' || node || '':5432'' from fencegate.ranges'`)
	b.place(t, 8, func(int) int { return 0 })
	for range gateways {
		b.gateways = append(b.gateways, b.gateway(t))
	}
	return b
}

// place divides the names into ranges of the same size, each at a node.
func (b *bed) place(t *testing.T, ranges int, node func(int) int) {
	t.Helper()
	const all = int64(1) << 32
	var values []string
	for i := range ranges {
		first, last := all*int64(i)/int64(ranges)-all/2, all*int64(i+1)/int64(ranges)-all/2-1
		values = append(values, fmt.Sprintf("(%d, %d, %d)", first, last, node(i)))
	}
	b.coordinator.Exec(t, "begin; delete from fencegate.ranges; insert into fencegate.ranges values "+
		strings.Join(values, ", ")+"; commit")
}

// gateway returns a Cluster that runs until the test ends.
func (b *bed) gateway(t *testing.T) served {
	t.Helper()
	run := func(on *enginetest.DB) *engine.Engine {
		opened := enginetest.OpenStore(t, postgres.Config{DatabaseURL: on.URL, ConnectionsMax: 6})
		return enginetest.Run(t, opened, engine.Config{RefusalsRememberedMax: -1}).Engine
	}
	c := cluster.New(run(b.coordinator), func(node string) (*engine.Engine, func(), error) {
		for i, on := range b.nodes {
			if node == address(i) {
				return run(on), func() {}, nil
			}
		}
		return nil, nil, errors.New("there is no such node")
	})
	check(t, c.Start(t.Context()))
	return served{c}
}

// TestHistoriesWhileNamesMove checks that the calls of many concurrent clients can be put in an order in which the
// contract has the same answers, while the names on which they work move from node to node.
func TestHistoriesWhileNamesMove(t *testing.T) {
	t.Parallel()
	for _, names := range [][]store.Name{{"a", "b", "c"}, {"tree", "tree/a", "tree/a/x", "tree/b"}} {
		t.Run(string(names[0]), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, 3, 2, "text")
			for round := range 5 {
				calls, err := b.history(t, fmt.Sprint(round, "-"), names)
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				answers := map[string]int{}
				for _, call := range calls {
					answers[string(call.Op.Kind)+" "+call.Answer.Code]++
				}
				t.Log(answers)
			}
		})
	}
}

// history checks one history, of clients on names that were never used.
func (b *bed) history(t *testing.T, prefix string, names []store.Name) ([]spec.Call, error) {
	t.Helper()
	clients := drive.Clients{Count: 8, SlotsMax: 4, For: 400 * time.Millisecond, Seed: rand.Uint64(), Weights: []spec.Weight{
		{Kind: spec.Acquire, Share: 6}, {Kind: spec.Put, Share: 30}, {Kind: spec.Renew, Share: 3}, {Kind: spec.Release, Share: 4},
		{Kind: spec.Break, Share: 1}, {Kind: spec.ReadLock, Share: 2}, {Kind: spec.ReadFence, Share: 2},
		{Kind: spec.ReadRecord, Share: 3}}}
	for _, name := range names {
		clients.Names = append(clients.Names, store.Name(prefix)+name)
	}
	for _, gateway := range b.gateways {
		clients.Gateways = append(clients.Gateways, gateway)
	}
	moving, stop := context.WithCancel(t.Context())
	var movers sync.WaitGroup
	for _, gateway := range b.gateways {
		movers.Go(func() {
			for moving.Err() == nil {
				if err := gateway.Start(t.Context()); err != nil {
					t.Error(err)
				}
				if err := gateway.Move(t.Context()); err != nil {
					var pgErr *pgconn.PgError
					errors.As(err, &pgErr)
					t.Logf("%v %+v", err, pgErr)
				}
			}
		})
	}
	movers.Go(func() {
		for moving.Err() == nil {
			b.place(t, 1+rand.IntN(8), func(int) int { return rand.IntN(len(b.nodes)) })
			time.Sleep(30 * time.Millisecond)
		}
	})
	calls, initial, err := clients.Run(t.Context(), spec.State{})
	stop()
	movers.Wait()
	if err != nil {
		return nil, err
	}
	check(t, b.gateways[0].Move(t.Context()))
	calls, err = spec.Resolve(calls, b.leases(t, prefix))
	return calls, errors.Join(err, spec.Linearize(initial, calls, strings.Contains(string(names[1]), "/"), time.Minute))
}

// leases are all that the nodes have.
func (b *bed) leases(t *testing.T, prefix string) (leases []spec.Lease) {
	t.Helper()
	for _, on := range append(b.nodes, b.coordinator) {
		rows, err := on.SQL.Query(t.Context(), `
			select lock, mode, scope, fencing_token, lease_id, coalesce(request_id, ''), coalesce(requested_ttl_ms, 0), granted_at
			from fence.leases where lock ^@ $1 order by lock, fencing_token`, prefix)
		check(t, err)
		for rows.Next() {
			var l spec.Lease
			var ttl int64
			var at time.Time
			check(t, rows.Scan(&l.Lock, &l.Mode, &l.Scope, &l.Token, &l.ID, &l.Request, &ttl, &at))
			l.GrantedAt, l.ExpiresAt = at.UnixMicro(), at.UnixMicro()+ttl*1000
			leases = append(leases, l)
		}
		check(t, rows.Err())
	}
	return leases
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
