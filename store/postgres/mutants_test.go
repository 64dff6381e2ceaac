package postgres_test

import (
	"context"
	"testing"

	"github.com/fencegate/fencegate/internal/test/mutants/judge"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// TestMutants lets the cases judge broken functions, for internal/test/mutants.
func TestMutants(t *testing.T) {
	cases := judge.Cases[*testbed]{
		Database: func(t *testing.T) string {
			t.Helper()
			return pgtest.Migrated(t)
		},
		Open: func(t *testing.T, url string) *testbed {
			t.Helper()
			b := &testbed{enginetest.On(t, url)}
			b.forget(t)
			return b
		},
		Clean: func(ctx context.Context, b *testbed) error {
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
		cases.All = append(cases.All, judge.Case[*testbed]{Name: c.name, Run: c.check})
	}
	judge.Judge(t, cases)
}
