package migrations_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

// TestSettingsOfTheDatabase checks that settings of the database that change how SQL is parsed do not change the
// schema.
func TestSettingsOfTheDatabase(t *testing.T) {
	t.Parallel()
	url := postgres.Empty(t)
	for _, setting := range []string{
		"standard_conforming_strings = off", "transform_null_equals = on",
		"default_transaction_isolation = ''serializable''",
	} {
		exec(t, connect(t, url),
			"do $$ begin execute format('alter database %I set "+setting+"', current_database()); end $$")
	}
	conn := connect(t, url)
	if err := migrations.Apply(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "set standard_conforming_strings = on") // it also changes how the catalogs show the schema
	expectMigrated(t, conn)
	for name, valid := range map[string]bool{
		"ab": true, "a/bc": true, "a//b": false, "a/../b": false, ".": false, "a\u0001b": false, `a\b`: true, "u001f": true,
	} {
		err := conn.QueryRow(t.Context(), "select $1::fence.name::text", name).Scan(new(string))
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr); (err == nil) != valid || err != nil && pgErr.Code != "23514" {
			t.Errorf("the name %q: %v, want that it is valid: %v", name, err, valid)
		}
	}
}

// TestFunctionsHaveNoBackslashes checks that the functions mean the same in every session: a session parses their
// bodies by its own standard_conforming_strings.
func TestFunctionsHaveNoBackslashes(t *testing.T) {
	t.Parallel()
	var names []string
	err := connect(t, postgres.Migrated(t)).QueryRow(context.Background(), `
		select coalesce(array_agg(proname::text), '{}') from pg_proc
		where pronamespace = to_regnamespace('fence') and position(chr(92) in prosrc) > 0`).Scan(&names)
	if err != nil || len(names) > 0 {
		t.Errorf("these functions have a backslash: %v (%v)", names, err)
	}
}
