package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// dump is all that the database holds: every row of every table, and where the tokens stand.
func (h *harness) dump(t testing.TB) string {
	t.Helper()
	rows, err := h.db.Query(t.Context(), dumpSQL(t, h))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func dumpSQL(t testing.TB, h *harness) string {
	t.Helper()
	rows, err := h.db.Query(t.Context(), "select relname from pg_class where relnamespace = 'fence'::regnamespace and relkind = 'r'")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 5 {
		t.Fatal(tables, err)
	}
	selects := []string{"select 'tokens: ' || last_value || is_called from fence.tokens"}
	for _, table := range tables {
		selects = append(selects, fmt.Sprintf("select '%[1]s: ' || r::text from fence.%[1]s r", table))
	}
	return strings.Join(selects, " union all ") + " order by 1"
}

// unchanged fails the test if what it is given to do leaves a trace in the database.
func (h *harness) unchanged(t testing.TB, do func()) {
	t.Helper()
	before := h.dump(t)
	do()
	if after := h.dump(t); after != before {
		t.Errorf("the database was changed.\nbefore:\n%s\nafter:\n%s", before, after)
	}
}
