package migrations_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

// update rewrites the golden files from what the migrations and functions are now.
var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

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

// catalogSections describe the schema fence, a line per object. The owner is shown as "owner", whatever its name.
var catalogSections = []struct{ title, sql string }{
	{"owners other than the schema's", `
		select pg_describe_object(d.classid, d.objid, 0)
		from pg_namespace n
		join pg_depend d on d.refclassid = 'pg_namespace'::regclass and d.refobjid = n.oid and d.deptype = 'n'
		left join pg_class c on d.classid = 'pg_class'::regclass and c.oid = d.objid
		left join pg_proc p on d.classid = 'pg_proc'::regclass and p.oid = d.objid
		left join pg_type t on d.classid = 'pg_type'::regclass and t.oid = d.objid
		where n.nspname = 'fence' and coalesce(c.relowner, p.proowner, t.typowner, n.nspowner) <> n.nspowner
		order by 1`},

	{"domains", `
		select format('%s as %s%s%s%s', t.oid::regtype, format_type(t.typbasetype, t.typtypmod),
			' collate ' || nullif(t.typcollation, 0)::regcollation, case when t.typnotnull then ' not null' end,
			' default ' || t.typdefault)
		from pg_type t
		where t.typnamespace = 'fence'::regnamespace and t.typtype = 'd'
		order by t.typname`},

	{"checks of domains", `
		select format('%s %s %s', c.contypid::regtype, c.conname, pg_get_constraintdef(c.oid))
		from pg_constraint c
		where c.connamespace = 'fence'::regnamespace and c.contypid <> 0 and c.contype = 'c'
		order by c.contypid::regtype::text, c.conname`},

	{"composite types", `
		select format('%s (%s)', c.oid::regclass, 
			string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' order by a.attnum))
		from pg_class c
		join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
		where c.relnamespace = 'fence'::regnamespace and c.relkind = 'c'
		group by c.oid, c.relname
		order by c.relname`},

	{"sequences", `
		select line || coalesce(' x ' || nullif(count(*), 1), '')
		from (select format('%s as %s start %s increment %s from %s to %s cache %s%s%s%s',
			regexp_replace(s.seqrelid::regclass::text, '[0-9]+$', '#'), s.seqtypid::regtype, s.seqstart, s.seqincrement,
			s.seqmin, s.seqmax, s.seqcache, case when s.seqcycle then ' cycle' end,
			case c.relpersistence when 'u' then ' unlogged' end,
			(select ' of ' || pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
			 from pg_depend d where d.objid = s.seqrelid and d.deptype in ('a', 'i') 
				and d.refclassid = 'pg_class'::regclass and d.refobjsubid > 0)) as line
		from pg_sequence s
		join pg_class c on c.oid = s.seqrelid
		where c.relnamespace = 'fence'::regnamespace) numbered
		group by line
		order by line`},

	{"tables and views", `
		select format('%s %s%s%s%s', 
			case c.relkind when 'r' then 'table' when 'p' then 'partitioned table' when 'v' then 'view'
				else 'relation ' || c.relkind::text end,
			c.oid::regclass, case c.relpersistence when 'u' then ' unlogged' end,
			case when c.relrowsecurity then ' row security' end,
			' with (' || array_to_string(c.reloptions, ', ') || ')')
		from pg_class c
		where c.relnamespace = 'fence'::regnamespace and c.relkind not in ('S', 'i', 'I', 'c', 't')
		order by c.relname`},

	{"columns", `
		select format('%s.%s %s%s%s%s%s', c.oid::regclass, a.attname, format_type(a.atttypid, a.atttypmod),
			case when a.attcollation <> t.typcollation then ' collate ' || a.attcollation::regcollation end,
			case when a.attnotnull then ' not null' end,
			case a.attidentity when 'a' then ' generated always as identity'
				when 'd' then ' generated by default as identity' end,
			case a.attgenerated when 's' then ' generated as ' else ' default ' end || pg_get_expr(d.adbin, d.adrelid))
		from pg_class c
		join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
		join pg_type t on t.oid = a.atttypid
		left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
		where c.relnamespace = 'fence'::regnamespace and c.relkind in ('r', 'p', 'v', 'm')
		order by c.relname, a.attnum`},

	{"constraints", `
		select format('%s %s %s%s', c.conrelid::regclass, c.conname, pg_get_constraintdef(c.oid),
			case when not c.convalidated then ' not valid' end)
		from pg_constraint c
		where c.connamespace = 'fence'::regnamespace and c.conrelid <> 0 and c.contype <> 'n'
		order by c.conrelid::regclass::text, c.conname`},

	{"indexes", `
		select pg_get_indexdef(i.indexrelid) || case when not i.indisvalid then ' invalid' else '' end
		from pg_index i
		join pg_class c on c.oid = i.indexrelid
		where c.relnamespace = 'fence'::regnamespace
		order by c.relname`},

	{"triggers", `
		select format('%s enabled %s', pg_get_triggerdef(g.oid), g.tgenabled)
		from pg_trigger g
		join pg_class c on c.oid = g.tgrelid
		where c.relnamespace = 'fence'::regnamespace and not g.tgisinternal
		order by c.relname, g.tgname`},

	{"functions", `
		select format(E'%s.%s(%s)\n  returns %s language %s %s parallel %s%s%s%s\n  set %s\n  body %s', 
			'fence', p.proname, pg_get_function_arguments(p.oid),
			pg_get_function_result(p.oid), l.lanname,
			case p.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
			case p.proparallel when 's' then 'safe' when 'r' then 'restricted' else 'unsafe' end,
			case when p.proisstrict then ' strict' end, case when p.prosecdef then ' security definer' end,
			' rows ' || nullif(p.prorows, 0),
			coalesce(array_to_string(p.proconfig, ', '), 'nothing'), encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex'))
		from pg_proc p
		join pg_language l on l.oid = p.prolang
		where p.pronamespace = 'fence'::regnamespace
		order by p.proname, pg_get_function_identity_arguments(p.oid)`},

	{"comments", `
		select format('%s: %s', pg_describe_object(d.classoid, d.objoid, d.objsubid), d.description)
		from pg_description d
		join pg_class c on d.classoid = 'pg_class'::regclass and c.oid = d.objoid
		where c.relnamespace = 'fence'::regnamespace
		order by c.relname, d.objsubid`},

	{"rights of others than the owner", `
		with kept (kind, name, owner, acl) as (
			select 'schema', n.oid::regnamespace::text, n.nspowner, coalesce(n.nspacl, acldefault('n', n.nspowner))
			from pg_namespace n where n.nspname = 'fence'
			union all
			select case c.relkind when 'S' then 'sequence' else 'table' end, c.oid::regclass::text, c.relowner,
				coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner))
			from pg_class c where c.relnamespace = 'fence'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'S')
			union all
			select 'column', a.attrelid::regclass || '.' || a.attname, c.relowner, a.attacl
			from pg_attribute a join pg_class c on c.oid = a.attrelid
			where c.relnamespace = 'fence'::regnamespace and a.attacl is not null
			union all
			select 'function', p.oid::regprocedure::text, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner))
			from pg_proc p where p.pronamespace = 'fence'::regnamespace
		)
		select format('%s %s: %s to %s', k.kind, k.name, a.privilege_type,
			case a.grantee when 0 then 'public' else a.grantee::regrole::text end)
		from kept k, aclexplode(k.acl) a
		where a.grantee <> k.owner
		order by 1`},
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
