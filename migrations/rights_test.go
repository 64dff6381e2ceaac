package migrations_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

const insufficientPrivilege = "42501"

// stranger makes a role without rights, and returns a connection with that role.
func stranger(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn := connect(t, url)
	exec(t, conn, "set role "+quote(makeRole(t, url, "stranger")))
	return conn
}

// makeRole makes a role without rights. Roles belong to all databases of the server, so its name has the database's.
func makeRole(t *testing.T, url, name string) string {
	t.Helper()
	owner := connect(t, url)
	name = owner.Config().Database + "_" + name
	exec(t, owner, "create role "+quote(name))
	t.Cleanup(func() {
		for _, sql := range []string{"drop owned by " + quote(name) + " cascade", "drop role " + quote(name)} {
			if _, err := owner.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	return name
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func list(t *testing.T, conn *pgx.Conn, sql string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Fatalf("nothing is listed by %s", sql)
	}
	return names
}

// stateOf returns the SQLSTATE of a statement; "" if it succeeds.
func stateOf(t *testing.T, conn *pgx.Conn, sql string, args ...any) string {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql, args...)
	var pgErr *pgconn.PgError
	if err != nil && !errors.As(err, &pgErr) {
		t.Fatalf("%s: %v", sql, err)
	}
	if pgErr == nil {
		return ""
	}
	return pgErr.Code
}

const (
	tablesSQL = `
		select oid::regclass::text from pg_class
		where relnamespace = 'fence'::regnamespace and relkind in ('r', 'v', 'm', 'p')`
	writableSQL = tablesSQL + " and pg_relation_is_updatable(oid, false) > 0"
	// A call with nulls: a role with the right to call the function passes the check of rights.
	callsSQL = `
		select format('%s(%s)', p.oid::regproc, (
			select string_agg('null::' || a::regtype, ', ') from unnest(p.proargtypes) a))
		from pg_proc p where p.pronamespace = 'fence'::regnamespace and p.prorettype <> 'trigger'::regtype`
)

// TestPublicHasNoRights checks that a role without rights can neither read nor write a table, nor call a function.
func TestPublicHasNoRights(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	owner, conn := connect(t, url), stranger(t, url)
	var statements []string
	for _, table := range list(t, owner, tablesSQL) {
		statements = append(statements, "select from "+table)
	}
	for _, table := range list(t, owner, writableSQL) {
		statements = append(statements, "delete from "+table)
	}
	for _, table := range list(t, owner, tablesSQL+" and relkind = 'r'") {
		statements = append(statements, "truncate "+table)
	}
	for _, call := range list(t, owner, callsSQL) {
		statements = append(statements, "select from "+call)
	}
	statements = append(statements, "select nextval('fence.tokens')", "select last_value from fence.tokens",
		"create table fence.mine ()", "create temporary table mine (mine fence.fences)",
		"create temporary table mine (mine fence.name)", "select null::fence.name", "drop schema fence cascade")

	// The schema is closed, and so is each object in it, in case the schema is opened by mistake.
	for _, opened := range []string{"", "grant usage on schema fence to public"} {
		exec(t, owner, opened)
		for _, sql := range statements {
			if opened != "" && sql == "select null::fence.name" {
				continue // a type is no secret
			}
			if state := stateOf(t, conn, sql); state != insufficientPrivilege {
				t.Errorf("%q %s: SQLSTATE %s, want %s", opened, sql, state, insufficientPrivilege)
			}
		}
	}
}
