package main

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

// TestMigrateRoles checks that migrate gives the roles on its command line their rights, names a role that does not
// exist, and warns of a role of an application that can get past the fence.
func TestMigrateRoles(t *testing.T) {
	t.Parallel()
	database := postgres.Migrated(t)
	conn, err := pgx.Connect(t.Context(), database)
	check(t, err)
	role := conn.Config().Database + ` App "1", 2`
	quoted := pgx.Identifier{role}.Sanitize()
	_, err = conn.Exec(t.Context(), "create role "+quoted)
	check(t, err)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "drop owned by "+quoted+"; drop role "+quoted)
		check(t, err)
		check(t, conn.Close(context.Background()))
	})

	s := shell{t: t}
	migrate := []string{"migrate", "--database-url", database, "--log-level", "warn", "--app-role", role}
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
		{"revoke trigger on owned from ROLE; alter table owned owner to ROLE", "may act as the owner of public.owned"},
		{"alter table owned owner to current_user; alter role ROLE superuser", "is a superuser"},
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
