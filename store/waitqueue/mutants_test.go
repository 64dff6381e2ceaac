package waitqueue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/mutants/judge"
	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/spec/drive"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	storepostgres "github.com/fencegate/fencegate/store/postgres"
)

// judgebed is engines whose queues are driven.
type judgebed struct {
	*engines
	queue *drive.Queue
	runs  int
}

// TestMutants lets random calls judge broken functions, for internal/test/mutants.
func TestMutants(t *testing.T) {
	cases := judge.Cases[*judgebed]{
		Database: func(t *testing.T) string {
			t.Helper()
			return postgres.Migrated(t)
		},
		Open: func(t *testing.T, url string) *judgebed {
			t.Helper()
			all := &enginetest.Engines{DB: enginetest.On(t, url)}
			for range 3 { // with few connections: there are many beds
				on := enginetest.OpenStore(t, storepostgres.Config{DatabaseURL: url, ConnectionsMax: 3})
				all.All = append(all.All, enginetest.Run(t, on, enginetest.NoPoll))
			}
			b := &judgebed{engines: &engines{all}}
			b.queue = b.target(t)
			b.queue.Limit = 3 * time.Second
			return b
		},
		Clean: func(ctx context.Context, b *judgebed) error {
			for _, table := range []string{"waiters", "leases", "sessions", "fences", "policies"} {
				if _, err := b.SQL.Exec(ctx, "delete from fence."+table); err != nil {
					return err
				}
			}
			return nil
		},
		ByHand: func(*testing.T) []judge.Mutant { return nil },
	}
	for title, calls := range map[string]spec.Generator{"flat": flatWaits, "trees": treeWaits, "wide": wideWaits} {
		for seed := range uint64(12) {
			cases.All = append(cases.All, judge.Case[*judgebed]{Name: fmt.Sprint(title, seed), Broad: true,
				Run: func(ctx context.Context, b *judgebed) error {
					if seed%2 == 1 {
						if err := drive.Strangers(ctx, b.SQL, seed%4 == 1); err != nil {
							return err
						}
					}
					b.runs++
					return drive.Random(ctx, b.queue, calls, fmt.Sprint("run-", b.runs), seed, 40)
				}})
		}
	}
	for seed := range uint64(40) {
		cases.All = append(cases.All, judge.Case[*judgebed]{Name: fmt.Sprint("waits ", seed),
			Run: func(ctx context.Context, b *judgebed) error {
				return judge.Run(ctx, func(t testing.TB) { b.randomWaits(t, seed) })
			}})
	}
	judge.Judge(t, cases)
}

// randomWaits looks at random states of the queues, in which no engine has a part.
func (b *judgebed) randomWaits(t testing.TB, seed uint64) {
	t.Helper()
	s := &randomWaits{DB: b.DB, Rand: rand.New(rand.NewPCG(seed, 0))}
	s.gateways(t)
	t.Cleanup(func() {
		for _, table := range []string{"waiters", "leases", "fences"} {
			s.Exec(t, "delete from fence."+table)
		}
		s.Exec(t, "delete from fence.gateways where gateway_id in ($1, $2)", crowdGateway, goneGateway)
	})
	for round := range 4 {
		s.expectExact(t, round)
		for range 30 {
			s.expectConflicts(t)
		}
	}
	s.refuseAll(t)
}
