package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/checks"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

// TestCheck finds each weakness once, and exits with 1 only if one is an error.
func TestCheck(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	app := "app-" + uuid.NewString()[:8]
	owner, member := app+"-owner", app+"-member"
	named := strings.NewReplacer("ROLE", pgx.Identifier{app}.Sanitize(), "OWNER", pgx.Identifier{owner}.Sanitize(),
		"MEMBER", pgx.Identifier{member}.Sanitize())
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(await.Context(t), named.Replace(sql))
		check(t, err)
	}
	t.Cleanup(func() { // roles are the server's, not the database's
		exec("reset role; drop owned by ROLE, OWNER cascade; drop role ROLE, OWNER, MEMBER")
		check(t, conn.Close(await.Context(t)))
	})
	exec(`create role ROLE login; create role OWNER login; create role MEMBER login noinherit in role ROLE, OWNER;
		create table good (id bigint); select fence.protect('good', 'good/{id}')`)
	s := shell{t: t}
	quiet := s.do("check", "--database-url", url)
	// The server that tests share is volatile.
	if strings.Count(quiet.out, "error: ") != 1 || !strings.Contains(quiet.out, "error: fsync") ||
		strings.Contains(quiet.out, app) {
		t.Errorf("of a sound database check found: %s%s", quiet.out, quiet.errOut)
	}
	exec(`
		create table owned (id bigint); select fence.protect('owned', 'owned/{id}'); alter table owned owner to ROLE;
		grant trigger, truncate on good to ROLE;
		create table seen (id bigint); select fence.protect('seen', 'seen', 'observe');
		create table parts (id bigint) partition by range (id); select fence.protect('parts', 'parts/{id}');
		create table parts_1 partition of parts for values from (1) to (9); grant trigger on parts_1 to ROLE;
		create table more (id bigint) partition by range (id);
		create table more_1 partition of more for values from (1) to (2);
		create table more_2 partition of more for values from (2) to (3); select fence.protect('more', 'more/{id}');
		alter table more_1 disable trigger fencegate_truncate; alter table more_2 enable trigger fencegate_truncate;
		create table off (id bigint); select fence.protect('off', 'off/{id}'); alter table off disable trigger user;
		alter schema fence owner to OWNER; grant set on parameter session_replication_role to ROLE`)
	found := s.do("check", "--database-url", url, "--output", "json")
	got := map[string]bool{}
	for line := range strings.Lines(found.out) {
		var f checks.Finding
		parseLine(t, line, &f)
		if f.Advice == "" {
			t.Errorf("%s has no advice", f.Check)
		}
		got[fmt.Sprintf("%s %s: %s %s", f.Severity, f.Check, f.Subject, f.Detail)] = true
	}
	for _, want := range []string{
		"error table_problem: public.off trigger fencegate_delete on public.off is disabled",
		"error table_problem: public.parts trigger fencegate_truncate on public.parts_1 is missing",
		"error partition_truncate: public.parts_1 partition of public.parts without the trigger fencegate_truncate",
		"error table_problem: public.more trigger fencegate_truncate on public.more_1 is disabled",
		"error partition_truncate: public.more_1 partition of public.more without the trigger fencegate_truncate",
		"error partition_truncate: public.more_2 partition of public.more without the trigger fencegate_truncate",
		"warning table_owner: " + app + " may act as the owner of public.owned",
		"warning table_owner: " + member + " may act as the owner of public.owned",
		"warning table_rights: " + app + " has the right TRIGGER on public.good, public.parts_1",
		"warning table_rights: " + app + " has the right TRUNCATE on public.good",
		"warning schema_owner: " + owner + " may act as the owner of the schema fence",
		"warning schema_owner: " + member + " may act as the owner of the schema fence",
		"notice replication_role: " + app + " may set session_replication_role",
		"notice superuser: " + conn.Config().User + " is a superuser",
		"notice observe: public.seen is observed: nothing is rejected",
	} {
		if !got[want] {
			t.Errorf("not found: %s", want)
		}
	}
	if found.code != exitFailure || !strings.Contains(found.errOut, "errors: 8, other findings: ") {
		t.Errorf("with errors check exited with %d: %s", found.code, found.errOut)
	}
}
