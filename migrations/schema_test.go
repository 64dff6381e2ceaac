package migrations_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

const schemaGolden = "testdata/schema.golden"

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

func describeSchema(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("The schema of fencegate, as the catalogs show it. Rewritten by `make golden`.\n")
	for _, section := range catalogSections {
		rows, err := conn.Query(t.Context(), section.sql)
		if err != nil {
			t.Fatalf("%s: %v", section.title, err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", section.title, err)
		}
		text.WriteString("\n== " + section.title + "\n")
		for _, line := range lines {
			text.WriteString(line + "\n")
		}
	}
	return text.String()
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
