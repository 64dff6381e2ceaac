package migrations_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

// update rewrites the golden files from what the migrations and functions are now.
var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

const schemaGolden = "schema.golden"

// TestGoldenSchema compares the schema that the migrations and the functions make with the reviewed one in the golden
// file. The text is made from the catalogs, so it is the same under every version of PostgreSQL.
func TestGoldenSchema(t *testing.T) {
	conn := connect(t, postgres.Migrated(t))
	got := describeSchema(t, conn)
	if *update {
		writeGolden(t, schemaGolden, got)
		return
	}
	want, err := os.ReadFile(schemaGolden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the schema is not the one of %s; if it is meant, run `make golden` (- golden, + database):\n%s",
			schemaGolden, difference(string(want), got))
	}
}

// TestTablesHaveKeys checks that a publication for all tables refuses no update and no delete of a table of fencegate.
func TestTablesHaveKeys(t *testing.T) {
	t.Parallel()
	var without []string
	err := connect(t, postgres.Migrated(t)).QueryRow(t.Context(), `
		select array_agg(c.oid::regclass::text) from pg_class c
		where c.relnamespace = 'fence'::regnamespace and c.relkind in ('r', 'p') and not exists (
			select from pg_index i where i.indrelid = c.oid and i.indisprimary)`).Scan(&without)
	if err != nil || len(without) > 0 {
		t.Errorf("%q have no primary key (%v)", without, err)
	}
}

func describeSchema(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	text, err := migrations.Describe(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// difference returns the lines that only one of the texts has.
func difference(want, got string) string {
	wanted, gotten := strings.Split(want, "\n"), strings.Split(got, "\n")
	var text strings.Builder
	for _, line := range wanted {
		if !slices.Contains(gotten, line) {
			text.WriteString("- " + line + "\n")
		}
	}
	for _, line := range gotten {
		if !slices.Contains(wanted, line) {
			text.WriteString("+ " + line + "\n")
		}
	}
	return text.String()
}

func writeGolden(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// connect opens a connection that is closed when the test ends.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(t.Context()) }) //nolint:errcheck // the database is dropped next
	return conn
}
