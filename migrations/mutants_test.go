package migrations_test

import (
	"context"
	"maps"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/mutants/judge"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

// TestMutants lets the scripts judge broken functions, for internal/test/mutants.
func TestMutants(t *testing.T) {
	template := sync.OnceValues(func() (url string, variables map[string]string) { return protectedDatabase(t) })
	cases := judge.Cases[string]{
		Database: func(t *testing.T) string {
			t.Helper()
			url, _ := template()
			return postgres.Copied(t, url)
		},
		Open: func(_ *testing.T, url string) string { return url },
	}
	cases.ByHand = func(*testing.T) (mutants []judge.Mutant) {
		for _, m := range sqlMutations {
			source, _ := migrations.GuardSource(m.function)
			mutants = append(mutants, judge.Mutant{ID: "sql: " + m.old + " → " + m.broken, Function: m.function,
				SQL: strings.Replace(source, m.old, m.broken, 1)})
		}
		return mutants
	}
	apart := apartScripts()
	for i, s := range append(apart, allScripts()...) {
		cases.All = append(cases.All, judge.Case[string]{
			Name: s.name, Apart: i < len(apart),
			Run: func(ctx context.Context, url string) error {
				config, err := pgx.ParseConfig(url)
				if err != nil {
					return err
				}
				// The copies share roles, but not those that a script makes.
				own := script{s.name, regexp.MustCompile(`\$\{(app|some)\}_`).ReplaceAllString(s.steps, "$${database}_")}
				_, shared := template()
				variables := maps.Clone(shared)
				variables["database"] = config.Database
				return own.run(ctx, url, variables)
			},
		})
	}
	judge.Judge(t, cases)
}
