package cluster_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/spec/drive"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// TestMain makes random runs few: each moves names again and again, and PostgreSQL's store has more of them.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "10"); err != nil {
		panic(err)
	}
	os.Exit(pgtest.Main(m))
}

// TestProvider checks what every provider promises, but for sessions, which a cluster refuses.
func TestProvider(t *testing.T) {
	t.Parallel()
	target, _ := newTarget(t)
	drive.Scenarios(t, target, false, "session")
}

// TestRandomSequences makes random calls, one after the other, to a cluster and to the specification: every answer must be
// the same, also after the names have moved to other nodes.
func TestRandomSequences(t *testing.T) {
	t.Parallel()
	target, b := newTarget(t)
	calls := spec.Generator{
		Names: []store.Name{"a", "b", "b/c", "b/c/d"}, Owners: []string{"A", "B", "A/1"}, Principals: []string{"A", "", "b"},
		Sessionless: true, Weights: spec.Sessionless(),
		TTL: time.Hour, TTLSpread: time.Second,
	}
	drive.Sequences(t, &moving{Cluster: target, bed: b, t: t}, calls)
}

// newTarget is a cluster whose names are at two nodes.
func newTarget(t *testing.T) (drive.Cluster, *bed) {
	t.Helper()
	b := newBed(t, 2, 1, "text")
	b.place(t, 8, func(i int) int { return i % 2 })
	b.move(t)
	target := drive.Cluster{At: func(name store.Name) int {
		for i, on := range b.nodes {
			var elsewhere bool
			check(t, on.SQL.QueryRow(t.Context(), "select fence.is_elsewhere($1)", name).Scan(&elsewhere))
			if !elsewhere {
				return i
			}
		}
		t.Fatalf("%s is nowhere", name)
		return 0
	}}
	for _, on := range b.nodes {
		sweeper := enginetest.NewSweeper(t, on.Store, postgres.SweeperConfig{})
		target.Nodes = append(target.Nodes, drive.Store{Service: b.gateways[0], SQL: on.SQL, Sweep: func(ctx context.Context) error {
			_, err := sweeper.Sweep(ctx)
			return err
		}})
	}
	return target, b
}

// move moves the names to where they are placed.
func (b *bed) move(t *testing.T) {
	t.Helper()
	check(t, b.gateways[0].Start(t.Context()))
	check(t, b.gateways[0].Move(t.Context()))
}

// moving is a cluster whose names move from time to time.
type moving struct {
	drive.Cluster
	*bed
	t *testing.T

	calls int
}

// Perform performs an operation.
func (m *moving) Perform(ctx context.Context, before spec.State, op spec.Op) (spec.Answer, spec.Choice, error) {
	m.calls++
	if m.calls%5 == 0 {
		to := rand.IntN(2)
		m.place(m.t, 2, func(i int) int { return (i + to) % 2 })
		m.move(m.t)
	}
	return m.Cluster.Perform(ctx, before, op)
}
