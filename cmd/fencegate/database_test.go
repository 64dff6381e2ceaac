package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/checks"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/migrations"
)

// TestCommandsNameTheirDatabase checks that a command that is no gateway and no demo uses no database which was not
// named; that each shows the name of its database, and no password, before all else; and that an unreachable one has the
// same exit code everywhere.
func TestCommandsNameTheirDatabase(t *testing.T) {
	t.Parallel()
	const away = "postgres://u:s3cret@127.0.0.1:1/app"
	for _, command := range []string{
		"check", "migrate", "tables", "tables observe a", "tables enforce a", "tables unprotect a",
		"keys create a --grant all:", "serve --read-only --database-timeout 1ms", "serve --database-timeout 1ms",
		"demo zombie", "demo gc-pause", "demo claim",
	} {
		words := strings.Fields(command)
		flag, variable := "--database-url", "FENCEGATE_DATABASE_URL"
		if words[0] == "keys" {
			flag, variable = "--in-database", "FENCEGATE_IN_DATABASE"
		}
		runs := func(t *testing.T, environment ...string) (got result, dataDir string) {
			dataDir = filepath.Join(t.TempDir(), "data")
			cmd := exec.Command(process.BuildChecked(t), append(words, "--log-level=info")...)
			if words[0] != "serve" && words[0] != "migrate" {
				cmd.Args = cmd.Args[:len(cmd.Args)-1]
			}
			cmd.Env = append(os.Environ(), append([]string{"FENCEGATE_DATA_DIR=" + dataDir, "FENCEGATE_LISTEN=127.0.0.1:0",
				"FENCEGATE_DATABASE_URL="}, environment...)...)
			return shell{t, "http://127.0.0.1:1"}.startCommand(strings.NewReader(""), cmd).wait(), dataDir
		}
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			got, _ := runs(t, variable+"="+away)
			first, _, _ := strings.Cut(got.errOut, "\n")
			if got.code != exitUnavailable || got.out != "" || !strings.Contains(first, "app at 127.0.0.1:1") ||
				strings.Contains(got.errOut, "s3cret") || !strings.Contains(got.errOut, flag) {
				t.Errorf("with an unreachable database it exited with %d, %q and %q", got.code, got.out, got.errOut)
			}
			if words[0] == "demo" || words[0] == "keys" || command == "serve --database-timeout 1ms" {
				return // without a database, these have one of their own, or a gateway
			}
			got, dataDir := runs(t)
			_, err := os.Stat(dataDir)
			if got.code != exitUsage || got.out != "" || !strings.Contains(got.errOut, flag) ||
				!strings.Contains(got.errOut, variable) || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("without a database it exited with %d, %q and %q; its data directory: %v", got.code, got.out, got.errOut, err)
			}
		})
	}
}

// TestReadersLeaveTheSchema checks that commands which only read, and a gateway that is read-only, neither make a schema
// nor migrate an older one, and say what does.
func TestReadersLeaveTheSchema(t *testing.T) {
	t.Parallel()
	const both = "check --database-url|serve --read-only --listen 127.0.0.1:0 --log-level error --database-url"
	for _, c := range []struct{ url, change, left, commands string }{
		{postgres.Empty(t), "select", "to_regnamespace('fence') is null",
			both + "|tables --database-url|keys create a --grant all: --in-database"},
		{postgres.Migrated(t), "update fence.guard_revision set revision = 0",
			"(select revision = 0 from fence.guard_revision)", both},
	} {
		conn, err := pgx.Connect(t.Context(), c.url)
		check(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		_, err = conn.Exec(t.Context(), c.change)
		check(t, err)
		for command := range strings.SplitSeq(c.commands, "|") {
			got := shell{t: t}.start(append(strings.Fields(command), c.url)...).wants(exitFailure, "run `fencegate migrate`")
			if got.out != "" {
				t.Errorf("%s: %s", command, got.out)
			}
		}
		var left bool
		if err := conn.QueryRow(t.Context(), "select "+c.left).Scan(&left); err != nil || !left {
			t.Errorf("the schema was changed: not %s (%v)", c.left, err)
		}
	}
}

// weaknesses make what TestCheck finds.
const weaknesses = `
	create table owned (id bigint); select fence.protect('owned', 'owned/{id}'); alter table owned owner to ROLE;
	create table seen (id bigint); select fence.protect('seen', 'seen', 'observe');
	create table parts (id bigint) partition by range (id); select fence.protect('parts', 'parts/{id}');
	create table parts_1 partition of parts for values from (1) to (9); grant trigger on parts_1 to ROLE;
	create table was (id bigint); select fence.protect('was', 'was/{id}');
	alter table was rename to retired; create table was (id bigint)`

// TestCheck finds each weakness once, and exits with 1 only if one is an error.
func TestCheck(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	app := "app-" + uuid.NewString()[:8]
	member := app + "-member"
	named := strings.NewReplacer("ROLE", pgx.Identifier{app}.Sanitize(), "MEMBER", pgx.Identifier{member}.Sanitize(),
		"DATABASE", pgx.Identifier{conn.Config().Database}.Sanitize())
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(await.Context(t), named.Replace(sql))
		check(t, err)
	}
	t.Cleanup(func() { // roles are the server's, not the database's
		exec("drop owned by ROLE cascade; drop role ROLE, MEMBER")
		check(t, conn.Close(await.Context(t)))
	})
	exec(`create role ROLE login; create role MEMBER login noinherit in role ROLE;
		create table good (id bigint); select fence.protect('good', 'good/{id}');
		alter database DATABASE set idle_in_transaction_session_timeout = '1min'`)
	quiet := shell{t: t}.do("check", "--database-url", url)
	// The server that tests share is volatile.
	if strings.Count(quiet.out, "\nwrong ") != 1 || !regexp.MustCompile(`wrong +fsync +fsync: is off +fsync = on, in the command line`).MatchString(quiet.out) ||
		strings.Contains(quiet.out, app) {
		t.Errorf("of a sound database check found: %s%s", quiet.out, quiet.errOut)
	}
	exec(weaknesses)
	found := shell{t: t}.do("check", "--database-url", url, "--output", "json")
	got := map[string]bool{}
	for line := range strings.Lines(found.out) {
		var f checks.Finding
		parseLine(t, line, &f)
		if f.Severity != "" && f.Advice == "" || f.State == "" || f.Detail == "" {
			t.Errorf("%s has no advice, state or detail", f.Check)
		}
		got[fmt.Sprintf("%s %s: %s %s", f.Severity, f.Check, f.Subject, f.Detail)] = true
	}
	for _, want := range []string{
		"error table_problem: public.parts trigger fencegate_truncate on public.parts_1 is missing",
		"error table_problem: public.retired public.was is another table now, which is not protected: " +
			"select fence.protect('public.was', 'was/{id}', 'enforce', 'guarded'); select fence.unprotect('public.retired')",
		"error partition_truncate: public.parts_1 partition of public.parts without the trigger fencegate_truncate",
		"warning table_owner: " + app + " may act as the owner of public.owned",
		"warning table_owner: " + member + " may act as the owner of public.owned",
		"warning table_rights: " + app + " has the right TRIGGER on public.parts_1",
		"notice superuser: " + conn.Config().User + " is a superuser",
		"notice observe: public.seen is observed: nothing is rejected",
	} {
		if !got[want] {
			t.Errorf("not found: %s", want)
		}
	}
	if found.code != exitFailure || !strings.Contains(found.errOut, "wrong: 4, warnings: ") {
		t.Errorf("with errors check exited with %d: %s", found.code, found.errOut)
	}
}

// TestCheckRows checks that check reads rows when it is asked to, and exits with 1 if they do not fit together.
func TestCheckRows(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	_, err = conn.Exec(t.Context(), "insert into fence.fences (resource, open) values ('open', true)")
	check(t, errors.Join(err, conn.Close(t.Context())))
	s := shell{t: t}
	without := s.do("check", "--database-url", url, "--output", "json")
	with := s.do("check", "--rows", "--database-url", url, "--output", "json")
	for _, want := range []string{`"check":"fence_open","subject":"open"`, `"check":"rows","subject":"database"`} {
		if !strings.Contains(with.out, want) || strings.Contains(without.out, want) {
			t.Errorf("check does not find %s with --rows alone: %s%s", want, with.out, with.errOut)
		}
	}
	if with.code != exitFailure {
		t.Errorf("with an open fence check --rows exited with %d: %s", with.code, with.errOut)
	}
}

// TestMigrateRoles checks that migrate gives the roles on its command line their rights, and restricts them to names, which
// they keep; that it names a role that does not exist, and warns of one that can get past the fence.
func TestMigrateRoles(t *testing.T) {
	t.Parallel()
	database := postgres.Migrated(t)
	conn, err := pgx.Connect(t.Context(), database)
	check(t, err)
	role := conn.Config().Database + ` App "1"=2`
	quoted := pgx.Identifier{role}.Sanitize()
	_, err = conn.Exec(t.Context(), "create role "+quoted)
	check(t, err)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "drop owned by "+quoted+"; drop role "+quoted)
		check(t, err)
		check(t, conn.Close(context.Background()))
	})

	s := shell{t: t}
	migrate := []string{"migrate", "--database-url", database, "--log-level", "warn"}
	s.fails(exitUsage, "--app-names needs --app-role", append(migrate, "--app-names", "a")...)
	migrate = append(migrate, "--app-role", role)
	s.fails(exitFailure, "it must be a name", append(migrate, "--app-names", "a//b")...)
	s.fails(exitFailure, `create role "nobody"`, append(migrate, "--app-role", "nobody")...)
	granted := func() (acquire, protect bool) {
		check(t, conn.QueryRow(t.Context(), `
			select has_schema_privilege(r.oid, 'fence', 'usage') and has_function_privilege(r.oid, a.oid, 'execute'),
				has_function_privilege(r.oid, p.oid, 'execute')
			from pg_roles r, pg_proc a, pg_proc p
			where r.rolname = $1 and a.proname = 'acquire' and p.proname = 'protect'`, role).Scan(&acquire, &protect))
		return acquire, protect
	}
	if acquire, protect := granted(); acquire || protect {
		t.Error("a migrate that failed has granted rights")
	}
	s.must(migrate...)
	if acquire, protect := granted(); !acquire || protect {
		t.Errorf("with --app-role, the role may acquire: %v, protect: %v", acquire, protect)
	}

	for _, c := range []struct{ sql, warning string }{
		{"create table owned (id bigint); select fence.protect('owned', 'owned/{id}')", ""},
		{"grant trigger on owned to ROLE", "has the right TRIGGER on public.owned"},
		{"revoke trigger on owned from ROLE; alter role ROLE superuser", "is a superuser"},
		{"alter role ROLE nosuperuser", ""},
	} {
		_, err := conn.Exec(t.Context(), strings.ReplaceAll(c.sql, "ROLE", quoted))
		check(t, err)
		want := c.warning
		if want != "" {
			want = "warning: " + role + " " + want + ". "
		}
		if got := s.do(migrate...); got.code != exitOK || !strings.HasPrefix(got.errOut, want) ||
			strings.Count(got.errOut, "\n") != min(len(want), 1) {
			t.Errorf("after %s, migrate --app-role exited with %d and warned %q, want %q", c.sql, got.code, got.errOut, want)
		}
	}
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--app-names", "a,b=c", "--app-names", "tenants/7"}, "a,b=c, tenants/7, and all names below"},
		{nil, "a,b=c, tenants/7, and all names below"},
		{[]string{"--app-names", ""}, "all names"},
	} {
		s.must(append(migrate, c.flags...)...)
		if out := s.do("check", "--database-url", database).out; !strings.Contains(out, role+": may use "+c.want+"  ") {
			t.Errorf("after migrate %q, check found %s, want that the role may use %s", c.flags, out, c.want)
		}
	}
	s.must(append(migrate, "--table-owner-role", role)...)
	if acquire, protect := granted(); !acquire || !protect {
		t.Errorf("with --table-owner-role, the role may acquire: %v, protect: %v", acquire, protect)
	}
}

// TestMigratePrerelease checks that the commands in the refusal of a prerelease database, run as they are, give tokens
// above all former ones: the writes of a former holder stay rejected. The former tokens are ahead of the clock, as after
// many restarts.
func TestMigratePrerelease(t *testing.T) {
	t.Parallel()
	database := postgres.Migrated(t)
	conn, err := pgx.Connect(t.Context(), database)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	acquire := func() (token int64) {
		check(t, conn.QueryRow(t.Context(), "select a.fencing_token from fence.acquire('job', 'worker') a").Scan(&token))
		return token
	}
	_, err = conn.Exec(t.Context(), "select setval('fence.tokens', 1::bigint << 52)")
	check(t, err)
	former := acquire()
	_, err = conn.Exec(t.Context(), "update fence.guard_revision set digest = 'that of a prerelease'")
	check(t, err)

	s := shell{t: t}
	flags := []string{"--database-url", database, "--log-level", "warn"}
	refused := s.do(append([]string{"migrate"}, flags...)...)
	if refused.code != exitFailure || !strings.Contains(refused.errOut, "before its first release") {
		t.Fatalf("migrate exited with %d and %q, want a refusal", refused.code, refused.errOut)
	}
	for _, command := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(refused.errOut, -1) {
		if arguments, ok := strings.CutPrefix(command[1], "fencegate "); ok {
			s.must(append(strings.Fields(arguments), flags...)...)
		} else if _, err := conn.Exec(t.Context(), command[1]); err != nil {
			t.Fatalf("%s: %v", command[1], err)
		}
	}
	if token := acquire(); token <= former {
		t.Errorf("after %q the first token is %d, want more than %d", refused.errOut, token, former)
	}
	if _, err := conn.Exec(t.Context(), "select fence.guard('job', $1, 5)", former); err == nil {
		t.Errorf("the former holder's write %d.5 was admitted", former)
	}
}

// TestSweepDefaults checks that the gateway's flags have the ages and limits that fence.sweep_all uses without a
// gateway.
func TestSweepDefaults(t *testing.T) {
	t.Parallel()
	p, err := newProgram()
	check(t, err)
	_, err = p.parser.Parse([]string{"serve"})
	check(t, err)
	c := p.commands.Serve
	conn, err := pgx.Connect(t.Context(), postgres.Migrated(t))
	check(t, err)
	defer conn.Close(t.Context())
	for part, want := range map[string]struct {
		age time.Duration
		max int64
	}{
		"sessions": {c.LeaseRetention, 0}, "ended leases": {c.LeaseRetention, 0},
		"rejections": {c.RejectionAge, c.RejectionsMax}, "audit": {c.AuditRetention, c.AuditAnonymousMax},
	} {
		got := want
		check(t, conn.QueryRow(t.Context(),
			"select extract(epoch from age)::bigint * 1000000000, coalesce(count_max, 0) from fence.sweeps where part = $1", part).
			Scan(&got.age, &got.max))
		if got != want {
			t.Errorf("fence.sweeps keeps the %s for %v, serve for %v", part, got, want)
		}
	}
}

// TestMigratePrints checks that migrate prints the SQL without a database, with the roles' rights,
// that it writes the extension, and that it refuses a flag that would do nothing.
func TestMigratePrints(t *testing.T) {
	t.Parallel()
	s := shell{t: t}
	all := s.must("migrate", "--print", "--app-role", "an app", "--tokens-above", "7")
	for _, want := range []string{
		"create table fence.fences", "create or replace function fence.guard(", "select fence.accept_database(7);",
		"\ngrant execute on function fence.guard to \"an app\";\n",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("migrate --print has no %q", want)
		}
	}
	if upgrade := s.must("migrate", "--print", "--from", "1"); strings.Contains(upgrade, "create table fence.fences") {
		t.Error("migrate --print --from 1 makes the tables of version 1")
	}
	if got := s.do("migrate", "--from", "1"); got.code != exitUsage {
		t.Errorf("migrate --from 1 exited with %d, want %d", got.code, exitUsage)
	}
	dir := t.TempDir()
	s.must("migrate", "--extension", dir)
	for name, want := range migrations.ExtensionFiles() {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("migrate --extension wrote %d bytes of %s (%v), want %d", len(got), name, err, len(want))
		}
	}
}
