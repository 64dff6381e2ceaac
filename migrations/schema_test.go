package migrations_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

// update rewrites the golden files from what the migrations and functions are now.
var update = flag.Bool("update", false, "rewrite the golden files")

// TestMain halves the number of random runs, which the command line can raise.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "50"); err != nil {
		panic(err)
	}
	os.Exit(postgres.Main(m))
}

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

func printed(t *testing.T, script migrations.Script) string {
	t.Helper()
	var text bytes.Buffer
	if err := script.Print(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// psql runs a text as a role, in one transaction if flags say -1.
func psql(t *testing.T, url, role, text string, flags ...string) (output string, err error) {
	t.Helper()
	run := command(t, postgres.Require(t, "psql"), slices.Concat(flags, []string{
		"--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--quiet", "--dbname", url, "--file", "-"})...)
	run.Stdin = strings.NewReader(text)
	run.Env = append(os.Environ(), "PGOPTIONS=-c role="+role)
	printed, err := run.CombinedOutput()
	return string(printed), err
}

// ownedDatabase returns an empty database and its owner, who is no superuser.
func ownedDatabase(t *testing.T) (url, owner string) {
	t.Helper()
	url = postgres.Empty(t)
	owner = makeRole(t, url, "plain_owner")
	admin := connect(t, url)
	exec(t, admin, "alter database "+quote(admin.Config().Database)+" owner to "+quote(owner))
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), "alter database "+quote(admin.Config().Database)+" owner to current_user")
		if err != nil {
			t.Error(err)
		}
	})
	return url, owner
}

// expectGolden checks that the schema is the reviewed one.
func expectGolden(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	want, err := os.ReadFile(schemaGolden)
	if err != nil {
		t.Fatal(err)
	}
	if got := describeSchema(t, conn); got != string(want) {
		t.Errorf("the schema is not the one of %s (- golden, + database):\n%s", schemaGolden, difference(string(want), got))
	}
}

// TestPrintedSchema checks that psql makes the schema of Apply from the printed text, as a role that only owns the
// database; that the text is the same each time; and that it upgrades older functions, and changes nothing where the
// schema is not what it is for.
func TestPrintedSchema(t *testing.T) {
	t.Parallel()
	url, owner := ownedDatabase(t)
	conn := connect(t, url)
	app := makeRole(t, url, "app")
	roles := migrations.Roles{App: []string{app}, AppNames: []string{"it's"}}
	text := printed(t, migrations.Script{Roles: roles})
	if again := printed(t, migrations.Script{Roles: roles}); again != text {
		t.Error("the text is another one the second time")
	}
	if output, err := psql(t, url, owner, text); err == nil || !strings.Contains(output, "transaction block") {
		t.Errorf("outside of a transaction: %v %s", err, output)
	}
	if output, err := psql(t, url, owner, text, "-1"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	exec(t, conn, "set role "+quote(app))
	exec(t, conn, "select fence.acquire('job', 'A'); reset role")
	if names := list(t, conn, "select unnest(prefixes) from fence.sql_roles"); !slices.Equal(names, roles.AppNames) {
		t.Errorf("the role may use %q, want %q", names, roles.AppNames)
	}
	exec(t, conn, "reset role; drop owned by "+quote(app))
	expectGolden(t, conn)
	expectUntouched(t, conn, func() {
		for _, err := range []error{migrations.Check(t.Context(), conn), migrations.Apply(t.Context(), conn)} {
			if err != nil {
				t.Error(err)
			}
		}
	})

	for _, older := range []string{"0", "1"} { // of the same revision, too
		exec(t, conn, "update fence.guard_revision set revision = revision - 1 + "+older+`;
			drop function fence.admit; alter view fence.held reset (security_barrier); alter function fence.break reset all;
			create or replace view fence.admitted as select resource, last_token, last_sequence from fence.fences`)
		output, err := psql(t, url, owner, printed(t, migrations.Script{Version: len(migrations.NumberedFiles())}), "-1")
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		expectGolden(t, conn)
	}
	if err := migrations.Check(t.Context(), conn); err != nil {
		t.Error(err)
	}
}

// TestPrintedSchemaDoesNotFit checks that the printed text changes nothing where the schema is not what it is for, or
// the database does not suit, and says why.
func TestPrintedSchemaDoesNotFit(t *testing.T) {
	t.Parallel()
	newest := len(migrations.NumberedFiles())
	for name, c := range map[string]struct {
		before string
		script migrations.Script
		want   string
	}{
		"it is there":     {"", migrations.Script{}, fmt.Sprintf("has version %d, and this text is for version 0", newest)},
		"none is there":   {"drop schema fence cascade", migrations.Script{Version: newest}, "has version 0, and this text"},
		"newer functions": {"update fence.guard_revision set revision = 99", migrations.Script{Version: newest}, "newer functions"},
		"other functions": {"update fence.guard_revision set digest = ''", migrations.Script{Version: newest}, "newer functions"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := postgres.Migrated(t)
			conn := connect(t, url)
			exec(t, conn, c.before)
			expectUntouched(t, conn, func() {
				output, err := psql(t, url, conn.Config().User, printed(t, c.script), "-1")
				if err == nil || !strings.Contains(output, c.want) {
					t.Errorf("psql says %v: %s", err, output)
				}
			})
		})
	}
	if err := (migrations.Script{Version: newest + 1}).Print(&bytes.Buffer{}); err == nil {
		t.Error("a version that is not known was printed")
	}
}

// TestPrintedTextIsPlain checks that the text has nothing that tools replace: placeholders of Flyway, directives of
// dbmate and goose, delimiters on a line of their own, and backslashes of psql.
func TestPrintedTextIsPlain(t *testing.T) {
	text := printed(t, migrations.Script{})
	for _, special := range []string{`\$\{`, `(?m)^--\s*(migrate:|changeset |liquibase|\+goose|name:)`, `(?m)^\s*(/|GO)\s*$`, `(?m)^\\`} {
		if found := regexp.MustCompile(special).FindString(text); found != "" {
			t.Errorf("the text has %q", found)
		}
	}
}

// protectedOn makes a migrated database one for scripts, and returns their variables.
func protectedOn(t *testing.T, url string) (variables map[string]string) {
	t.Helper()
	admin := connect(t, scriptedOn(t, url, ""))
	defer admin.Close(t.Context())
	variables = map[string]string{"app": admin.Config().Database + "_app", "owner": admin.Config().Database + "_owner",
		"some": admin.Config().Database + "_some"}
	exec(t, admin, substitute("create role $app; create role $owner; create role $some; "+
		"grant create on schema public to $owner", variables))
	for _, roles := range []migrations.Roles{
		{App: []string{variables["app"]}, TableOwner: []string{variables["owner"]}},
		{App: []string{variables["some"]}, AppNames: []string{"some", "tenants/7"}},
		{App: []string{variables["some"]}}, // as after an upgrade: it keeps its names
	} {
		if err := migrations.Grant(t.Context(), admin, roles); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		admin, err := pgx.Connect(context.Background(), url)
		if err != nil {
			t.Error(err)
			return
		}
		defer admin.Close(context.Background())
		for _, role := range variables {
			_, err := admin.Exec(context.Background(), fmt.Sprintf("drop owned by %[1]s cascade; drop role %[1]s", role))
			if err != nil {
				t.Error(err)
			}
		}
	})
	return variables
}

// TestSweepAll checks that one call does all parts of the sweep, for databases without a gateway.
func TestSweepAll(t *testing.T) {
	t.Parallel()
	runScripts(t, scripted(t, ""), nil, []script{{"all parts", `
		A select test.grant('n'); select test.expire('n'); select fence.put_policy('p', 'strict', 'builtin', false, false,
			null, null, false, 100, null); select fence.accept_database(1);
			select string_agg(part, ' ') from fence.sweep_all() where done > 0 or more  -- leases`}})
}
