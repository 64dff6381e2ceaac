package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fencegate/fencegate/internal/test/mutants/judge"
	"github.com/fencegate/fencegate/internal/test/spec/drive"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store/postgres"
)

// TestMutants lets the cases judge broken functions, for internal/test/mutants.
func TestMutants(t *testing.T) {
	cases := judge.Cases[*judgebed]{
		Database: func(t *testing.T) string {
			t.Helper()
			return pgtest.Migrated(t)
		},
		Open: openJudgebed,
		Clean: func(ctx context.Context, b *judgebed) error {
			if err := b.clean(ctx); err != nil {
				return err
			}
			_, err := b.SQL.Exec(ctx, "vacuum fence.fences, fence.waiters, fence.leases, fence.sessions, "+
				"fence.records, fence.policies") // the database is used for hundreds of cases
			return err
		},
	}
	cases.ByHand = func(t *testing.T) (mutants []judge.Mutant) {
		for name, list := range mutationLists() {
			for _, m := range list {
				mutants = append(mutants, judge.Mutant{ID: name + ": " + m.name, Function: m.function, SQL: m.broken(t)})
			}
		}
		return mutants
	}
	for _, c := range allCases() {
		cases.All = append(cases.All, judge.Case[*judgebed]{Name: c.name, Run: func(ctx context.Context, b *judgebed) error {
			return c.check(ctx, b.testbed)
		}})
	}
	for title, scenario := range drive.AllScenarios("wait=") { // for which a Store does not wait
		cases.All = append(cases.All, judge.Case[*judgebed]{Name: title, Run: func(ctx context.Context, b *judgebed) error {
			return drive.Replay(ctx, b.store, scenario)
		}})
	}
	for seed := range uint64(30) {
		cases.All = append(cases.All, judge.Case[*judgebed]{Name: fmt.Sprint("random calls ", seed), Broad: true,
			Run: func(ctx context.Context, b *judgebed) error { return b.random(ctx, seed) }})
	}
	for i := range 3 {
		cases.All = append(cases.All, judge.Case[*judgebed]{Name: fmt.Sprint("inventory ", i),
			Run: func(ctx context.Context, b *judgebed) error {
				return judge.Run(ctx, func(t testing.TB) {
					b.forget(t)
					t.Cleanup(func() { b.Exec(t, "delete from fence.gateways") })
					b.countEverything(t)
				})
			}})
	}
	for seed := range uint64(40) {
		cases.All = append(cases.All, judge.Case[*judgebed]{Name: fmt.Sprint("sweeps ", seed),
			Run: func(ctx context.Context, b *judgebed) error {
				return judge.Run(ctx, func(t testing.TB) { b.sweepExactly(t, rand.New(rand.NewPCG(seed, 0))) })
			}})
	}
	judge.Judge(t, cases)
}

// judgebed is a testbed with drivers of the specification.
type judgebed struct {
	*testbed
	store, sql drive.Store
	runs       int
}

func openJudgebed(t *testing.T, url string) *judgebed {
	t.Helper()
	b := &judgebed{testbed: &testbed{enginetest.On(t, url)}}
	b.forget(t)
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{})
	b.store = drive.Store{Service: b.Store, SQL: b.SQL, HoldBatches: b.HoldBatches, Sweep: func(ctx context.Context) error {
		_, err := sweeper.Sweep(ctx)
		return err
	}}
	b.sql = b.store
	b.sql.Service = drive.NewSQL(t, url, b.Store)
	return b
}

// random makes random calls: of a Store one after the other, or of different locks at once, or by SQL; with other names
// beside these, or without.
func (b *judgebed) random(ctx context.Context, seed uint64) error {
	if seed%2 == 1 {
		if err := drive.Strangers(ctx, b.SQL, seed%4 == 1); err != nil {
			return err
		}
	}
	b.runs++
	prefix := fmt.Sprint("random-", b.runs)
	switch seed % 3 {
	case 0:
		return drive.Random(ctx, b.store, randomCalls, prefix, seed, 60)
	case 1:
		return drive.Random(ctx, b.store, togetherCalls, prefix, seed, 60)
	}
	return drive.Random(ctx, b.sql, b.sql.Service.(*drive.SQL).Calls(), prefix, seed, 60)
}
