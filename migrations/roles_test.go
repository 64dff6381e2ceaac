package migrations_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
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

var (
	// appFunctions are the functions that a role of an application may call; no others.
	appFunctions = []string{
		"acquire", "all_names", "claim", "claim_leases", "claim_query", "escape_segment", "guard", "is_allowed", "is_held",
		"lease_until", "may_use", "outcome", "protection_problem", "release", "renew", "renew_claim", "segment", "set_token",
		"try_guard",
	}
	appViews = []string{"fence.held", "fence.protected"}
	// tableOwnerFunctions are those that a role that protects its tables may call besides.
	tableOwnerFunctions = []string{"forget_protection", "make_triggers", "prepare_protection", "protect", "unprotect"}
)

// app makes a role, gives it the rights of an application, and returns a connection with that role.
func app(t *testing.T, url string) (conn *pgx.Conn, role string) {
	t.Helper()
	conn, role = connect(t, url), makeRole(t, url, `App "x"`)
	if err := migrations.Grant(t.Context(), conn, migrations.Roles{App: []string{role}}); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "set role "+quote(role))
	return conn, role
}

// TestRolesOfApplications checks that a role of an application may call the functions that are meant for it, and do
// nothing else in the schema; and that a migration does not change this.
func TestRolesOfApplications(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	owner := connect(t, url)
	application, tableOwner := makeRole(t, url, `App "x"`), makeRole(t, url, "table owner")
	roles := migrations.Roles{App: []string{application}, TableOwner: []string{tableOwner}}
	for range 2 {
		if err := migrations.Grant(t.Context(), owner, roles); err != nil {
			t.Fatal(err)
		}
	}
	for _, state := range []string{"granted", "migrated since"} {
		expectRights(t, url, state, application, rights{functions: appFunctions})
		expectRights(t, url, state, tableOwner, rights{functions: slices.Concat(appFunctions, tableOwnerFunctions)})
		exec(t, owner, "update fence.guard_revision set revision = revision - 1")
		if err := migrations.Apply(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
	}
}

// rights are what a role may do in the schema: call some functions, and read the views of applications or everything.
type rights struct {
	functions []string
	reads     bool
}

// expectRights checks that the role may do what the rights say, and nothing else.
func expectRights(t *testing.T, url, state, role string, r rights) {
	t.Helper()
	owner, conn := connect(t, url), connect(t, url)
	exec(t, conn, "set role "+quote(role))
	expect := func(allowed bool, sql string) {
		if got := stateOf(t, conn, sql); (got != insufficientPrivilege) != allowed {
			t.Errorf("%s: %s: %s: SQLSTATE %q, want that it is allowed: %v", state, role, sql, got, allowed)
		}
	}
	for _, call := range list(t, owner, callsSQL) {
		name, _, _ := strings.Cut(strings.TrimPrefix(call, "fence."), "(")
		expect(slices.Contains(r.functions, name), "select from "+call)
	}
	for _, table := range list(t, owner, tablesSQL) {
		expect(r.reads || slices.Contains(appViews, table), "table "+table)
	}
	for _, table := range list(t, owner, writableSQL) {
		if table != "fence.table_callers" { // a table owner may insert into one column
			expect(false, "insert into "+table+" default values")
		}
		expect(false, "delete from "+table)
	}
	for _, sequence := range list(t, owner, `
		select oid::regclass::text from pg_class where relnamespace = 'fence'::regnamespace and relkind = 'S'`) {
		expect(false, "select nextval('"+sequence+"')")
		expect(false, "select setval('"+sequence+"', 1)")
		expect(r.reads, "table "+sequence)
	}
	for _, sql := range []string{
		"create table fence.mine ()", "create function fence.mine() returns int language sql as 'select 1'",
		"alter function fence.rule reset all", "drop schema fence cascade",
		"create cast (text as fence.name) with inout", "create cast (fence.leases as text) with inout",
		"create cast (bigint as text) with inout as implicit",
	} {
		expect(false, sql)
	}
}

// TestRoleOfGateways checks that a role of gateways may call the functions that gateways call, and read, and do nothing
// else in the schema; and that a migration does not change this. The tests of package gateway use such a role: they show
// that the rights suffice.
func TestRoleOfGateways(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	owner, role := connect(t, url), makeRole(t, url, "gateway")
	if err := migrations.Grant(t.Context(), owner, migrations.Roles{Gateway: []string{role}}); err != nil {
		t.Fatal(err)
	}
	expectRights(t, url, "granted", role, rights{functions: migrations.GatewayFunctions, reads: true})
	exec(t, owner, "update fence.guard_revision set revision = revision - 1")
	if err := migrations.Apply(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	expectRights(t, url, "migrated since", role, rights{functions: migrations.GatewayFunctions, reads: true})
}

// TestRoleOfGatewaysIsBounded checks that a role of gateways can neither erase the audit log nor change what the rule
// decides, by what it may call. The owner of the schema decides how long the audit log is kept.
func TestRoleOfGatewaysIsBounded(t *testing.T) {
	t.Parallel()
	url := scripted(t, "grant usage on schema test to public;")
	owner, role := connect(t, url), makeRole(t, url, "gateway")
	if err := migrations.Grant(t.Context(), owner, migrations.Roles{Gateway: []string{role}}); err != nil {
		t.Fatal(err)
	}
	runScripts(t, url, map[string]string{"gateway": role}, []script{{"gateway", `
		A select fence.note_action('fence_set', 'n', '{}', 'p', ''), fence.note_action('fence_set', 'n', '{}', 'anonymous', '')
		A select test.acquire('x', 'A')  -- $a
		A select test.expire('x'); select test.acquire('x', 'B')  -- $b
		B set session authorization $gateway; select done from fence.sweep('audit', '0', null, '0', 0)  -- 0
		B select done from fence.sweep('audit', '0', null, '-1 day', -1)  -- 0
		B update fence.sweeps set age = '0'  -- !42501
		B delete from fence.audit  -- !42501
		B select test.write('x $a.1 late')  -- token_stale superseded $b 0.0
		B select test.write(format('x %s.1 made', $b + 1))  -- token_unknown $b 0.0
		B select fence.set_fence('x', 0, 0)  -- !LF004
		B update fence.fences set open = true  -- !42501
		B select setval('fence.tokens', 1)  -- !42501
		B select fence.mint(1)  -- !42501
		A select count(*) from fence.audit  -- 2
		A update fence.sweeps set age = '0', count_max = 0 where part = 'audit'
		B select done from fence.sweep('audit', '0', null, '1 day', null)  -- 1
		B select done from fence.sweep('audit', '0', null, null, null)  -- 1`}})
}

// TestGrantToMissingRole checks that no role gets rights if one of them does not exist.
func TestGrantToMissingRole(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	conn, role := connect(t, url), makeRole(t, url, "app")
	for _, roles := range []migrations.Roles{
		{App: []string{role, "nobody"}}, {App: []string{role}, TableOwner: []string{"nobody"}}, {App: []string{"public"}},
	} {
		if err := migrations.Grant(t.Context(), conn, roles); !errors.Is(err, migrations.ErrNoRole) {
			t.Errorf("the error is %v, want ErrNoRole", err)
		}
	}
	var granted bool
	err := conn.QueryRow(t.Context(), "select has_schema_privilege($1, 'fence', 'usage')", role).Scan(&granted)
	if err != nil || granted {
		t.Errorf("the role has rights: %v (%v)", granted, err)
	}
}

// protect makes the table public.accounts, which belongs to the role, and protects it with the rights of the role.
func protect(t *testing.T, url, role string) (tableOwner *pgx.Conn) {
	t.Helper()
	conn := connect(t, url)
	if err := migrations.Grant(t.Context(), conn, migrations.Roles{TableOwner: []string{role}}); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "grant usage, create on schema public to "+quote(role))
	exec(t, conn, "set role "+quote(role))
	exec(t, conn, "create table public.accounts (id bigint primary key, balance bigint)")
	exec(t, conn, "select fence.protect('public.accounts', 'accounts/{id}')")
	return conn
}

// TestFunctionsAreClosed checks that each function that runs with the rights of its owner looks names up in the
// catalog first and among temporary objects last, and that no function is open to everyone. The functions that
// fence.protect makes are among them. These, fence.guard, fence.is_allowed and fence.guard_statement have no search_path,
// because it would cost too much: all names in them are qualified, see TestShadowedNames.
func TestFunctionsAreClosed(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	protect(t, url, makeRole(t, url, "owner"))
	var open, unpinned []string
	err := connect(t, url).QueryRow(t.Context(), `
		select
			array(select oid::regprocedure::text from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
				where pronamespace = 'fence'::regnamespace and a.grantee = 0),
			array(select oid::regprocedure::text from pg_proc
				where pronamespace = 'fence'::regnamespace and prosecdef
					and ('search_path=pg_catalog, pg_temp' = any (proconfig)) is not true
					and proname !~ '^(guard|guard_statement|is_allowed|check_[0-9]+_(insert|update|delete|row))$')`).Scan(&open, &unpinned)
	if err != nil || len(open) > 0 || len(unpinned) > 0 {
		t.Errorf("open to everyone: %v; without a fixed search_path: %v (%v)", open, unpinned, err)
	}
}

// TestTableOwnersGetNoMoreRights checks that the owner of a protected table gets none of the rights of the schema's
// owner by the functions of its triggers: neither by a trigger of its own that lets them read a temporary view instead
// of the rows, nor by a column of a type with a cast to text that is a function of its own. And that a role can neither
// change the protection of another's table, nor use its trigger functions.
func TestTableOwnersGetNoMoreRights(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	role, other := makeRole(t, url, "owner"), makeRole(t, url, "other owner")
	tables := protect(t, url, role)
	exec(t, tables, `
		select fence.protect('public.accounts', 'accounts/{id}', 'observe');
		create table public.calls (by_role text);
		grant insert on public.calls to public;
		create function public.note_call() returns bigint language plpgsql as $$
		begin
			insert into public.calls values (current_user);
			return 1;
		end $$;
		create temporary view fencegate_new as select public.note_call() as id`)
	const mine = "create trigger mine after insert on public.accounts execute function fence.check_1_insert()"
	if state := stateOf(t, tables, mine); state != insufficientPrivilege {
		t.Errorf("a trigger that would read a temporary view: SQLSTATE %q, want %s", state, insufficientPrivilege)
	}
	exec(t, tables, `
		insert into public.accounts values (1, 1);
		delete from public.accounts;
		create type public.mood as enum ('good', 'bad');
		create function public.cast_mood(public.mood) returns text language plpgsql as $$
		begin
			insert into public.calls values (current_user);
			return 'good';
		end $$;
		create cast (public.mood as text) with function public.cast_mood(public.mood);
		alter table public.accounts alter column id type public.mood using 'good';
		insert into public.accounts values ('good', 1);
		update public.accounts set id = 'bad';
		delete from public.accounts`)
	exec(t, connect(t, url), "set session_replication_role = 'replica'; insert into public.accounts values ('good', 1)")
	var strangers []string
	err := tables.QueryRow(t.Context(), "select array(select by_role from public.calls where by_role <> current_user)").
		Scan(&strangers)
	if err != nil || len(strangers) > 0 {
		t.Errorf("the function of %s ran as %v (%v)", role, strangers, err)
	}

	conn := connect(t, url)
	if err := migrations.Grant(t.Context(), conn, migrations.Roles{TableOwner: []string{other}}); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "grant create on schema public to "+quote(other)+"; set role "+quote(other))
	exec(t, conn, "create table public.mine (id bigint)")
	for _, sql := range []string{
		"select fence.protect('public.accounts', 'accounts', 'observe')",
		"select fence.prepare_protection('public.accounts', 'accounts', 'observe', null)",
		"select fence.unprotect('public.accounts')",
		"select fence.make_triggers('public.accounts')",
		"select fence.forget_protection('public.accounts')",
		"create trigger mine after insert on public.mine referencing new table as fencegate_new " +
			"execute function fence.check_1_insert()",
	} {
		if state := stateOf(t, conn, sql); state != insufficientPrivilege {
			t.Errorf("%s: SQLSTATE %q, want %s", sql, state, insufficientPrivilege)
		}
	}
}

// TestSchemaOwnerWithoutRights checks that tables of another role can be protected where the owner of the schema fence
// is an ordinary role, and that it is shown if that role may not use the schema of the table.
func TestSchemaOwnerWithoutRights(t *testing.T) {
	t.Parallel()
	url := postgres.Empty(t)
	admin, fencegate, role := connect(t, url), makeRole(t, url, "fencegate"), makeRole(t, url, "owner")
	exec(t, admin, "grant create on database "+quote(admin.Config().Database)+" to "+quote(fencegate))
	exec(t, admin, "create schema shop authorization "+quote(role))
	conn, tables := connect(t, url), connect(t, url)
	exec(t, conn, "set role "+quote(fencegate))
	if err := migrations.Apply(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Grant(t.Context(), conn, migrations.Roles{TableOwner: []string{role}}); err != nil {
		t.Fatal(err)
	}
	exec(t, tables, "set role "+quote(role)+"; create table shop.orders (id integer)")
	const protect = "select fence.protect('shop.orders', 'orders/{id}')"
	_, err := tables.Exec(t.Context(), protect)
	var pgErr *pgconn.PgError
	usage := "usage on schema shop to " + fencegate
	if !errors.As(err, &pgErr) || pgErr.Hint != "Let the owner of the schema run: grant "+usage {
		t.Errorf("without usage, fence.protect returned %v, want a hint to grant %s", err, usage)
	}
	exec(t, tables, "grant "+usage+"; "+protect)
	const insert = "insert into shop.orders values (1)"
	if state := stateOf(t, tables, insert); state != "LF101" {
		t.Errorf("an insert without a token: SQLSTATE %q, want LF101", state)
	}
	if got := list(t, tables, "select coalesce(problem, '') from fence.protected")[0]; got != "" {
		t.Errorf("the problem is %q, want none", got)
	}
	exec(t, tables, "revoke "+strings.Replace(usage, " to ", " from ", 1))
	if got := list(t, tables, "select problem from fence.protected")[0]; got != "a right is missing: grant "+usage {
		t.Errorf("after usage was revoked, the problem is %q", got)
	}
	exec(t, tables, "select fence.unprotect('shop.orders'); "+insert)
}
