package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/pgtest"
)

const insufficientPrivilege = "42501"

// stranger makes a role without rights, and returns a connection with that role.
func stranger(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	owner := connect(t, url)
	name := owner.Config().Database + "_stranger"
	exec(t, owner, "create role "+name)
	t.Cleanup(func() {
		for _, sql := range []string{"drop owned by " + name, "drop role " + name} {
			if _, err := owner.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	conn := connect(t, url)
	exec(t, conn, "set role "+name)
	return conn
}

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

const (
	tablesSQL = `
		select oid::regclass::text from pg_class
		where relnamespace = 'fence'::regnamespace and relkind in ('r', 'v', 'm', 'p')`
	// A call with nulls: a role with the right to call the function passes the check of rights.
	callsSQL = `
		select format('%s(%s)', p.oid::regproc, (
			select string_agg('null::' || a::regtype, ', ') from unnest(p.proargtypes) a))
		from pg_proc p where p.pronamespace = 'fence'::regnamespace and p.prorettype <> 'trigger'::regtype`
)

// TestPublicHasNoRights checks that a role without rights can neither read nor write a table, nor call a function.
func TestPublicHasNoRights(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	owner, conn := connect(t, url), stranger(t, url)
	var statements []string
	for _, table := range list(t, owner, tablesSQL) {
		statements = append(statements, "select from "+table, "delete from "+table)
	}
	for _, table := range list(t, owner, tablesSQL+" and relkind = 'r'") {
		statements = append(statements, "truncate "+table)
	}
	for _, call := range list(t, owner, callsSQL) {
		statements = append(statements, "select from "+call)
	}
	statements = append(statements, "select nextval('fence.tokens')", "select last_value from fence.tokens",
		"create table fence.mine ()", "select null::fence.name", "drop schema fence cascade")

	// The schema is closed, and so is each object in it, in case the schema is opened by mistake.
	for _, opened := range []string{"", "grant usage on schema fence to public"} {
		exec(t, owner, opened)
		for _, sql := range statements {
			if opened != "" && sql == "select null::fence.name" {
				continue // a type is no secret
			}
			_, err := conn.Exec(t.Context(), sql)
			var pgErr *pgconn.PgError
			if !errors.As(err, &pgErr) || pgErr.Code != insufficientPrivilege {
				t.Errorf("%q %s: %v, want SQLSTATE %s", opened, sql, err, insufficientPrivilege)
			}
		}
	}
}

// TestFunctionsWorkForOthers checks that the public functions work for a role that may call them but may touch no
// table. The first schema in that role's search_path does not affect them.
func TestFunctionsWorkForOthers(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t)
	owner, conn := connect(t, url), stranger(t, url)
	var role string
	if err := conn.QueryRow(t.Context(), "select current_user").Scan(&role); err != nil {
		t.Fatal(err)
	}
	exec(t, owner, fmt.Sprintf(`
		create schema astray authorization %[1]s;
		grant usage on schema fence to %[1]s;
		grant execute on function
			fence.lease_request, fence.acquire_lease, fence.write, fence.write_one, fence.release_lease to %[1]s`, role))
	exec(t, conn, `
		create table astray.fences (resource text, granted_token bigint);
		create function astray.clock_timestamp() returns timestamptz language sql as $$ select 'infinity'::timestamptz $$;
		set search_path = astray, fence, pg_catalog`)
	var outcome, verdict, status string
	var lease struct {
		id    [16]byte
		token int64
	}
	err := conn.QueryRow(t.Context(), `
		select a.outcome, (a.lease).lease_id, (a.lease).fencing_token
		from fence.acquire_lease(fence.lease_request('lock', 'owner', 'exclusive', 'node', 60000, null, null, null), 0, null) a`).
		Scan(&outcome, &lease.id, &lease.token)
	if err != nil || outcome != "granted" {
		t.Fatalf("the acquire is %s (%v)", outcome, err)
	}
	err = conn.QueryRow(t.Context(), `
		select verdict
		from fence.write_one('lock', $1, null, null, '\x00', 'put', 'key', '\x01', 'text/plain', null, null)`, lease.token).
		Scan(&verdict)
	if err != nil || verdict != "admitted" {
		t.Errorf("the write is %s (%v)", verdict, err)
	}
	var finite bool
	err = owner.QueryRow(t.Context(), `
		select isfinite(r.updated_at) and isfinite(l.granted_at) from fence.records r, fence.leases l`).Scan(&finite)
	if err != nil || !finite {
		t.Errorf("the functions of the schema astray were called (%v)", err)
	}
	err = conn.QueryRow(t.Context(), "select status from fence.release_lease('lock', 'owner', $1, $2)", lease.id,
		lease.token).Scan(&status)
	if err != nil || status != "released" {
		t.Errorf("the release is %s (%v)", status, err)
	}
}
