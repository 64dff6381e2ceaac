package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

// TestTables checks that the owner of a table takes it out of enforcement beside an open transaction that has written to
// it, which has the new mode in its next statement; that a change which has to wait for that transaction names it; and
// what the commands say where they can't change a table.
func TestTables(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	connect := func(role string) *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), asRole(url, role))
		check(t, err)
		t.Cleanup(func() { check(t, conn.Close(context.Background())) })
		return conn
	}
	admin := connect("")
	exec := func(conn *pgx.Conn, sql string, args ...any) {
		t.Helper()
		_, err := conn.Exec(await.Context(t), sql, args...)
		check(t, err)
	}
	owner, other := "owner_"+uuid.NewString()[:8], "other_"+uuid.NewString()[:8]
	exec(admin, fmt.Sprintf(`create role %[1]s; create role %[2]s; create table accounts (id bigint, n bigint default 0);
		alter table accounts owner to %[1]s; create table plain ()`, owner, other))
	t.Cleanup(func() { exec(admin, fmt.Sprintf("drop owned by %[1]s, %[2]s; drop role %[1]s, %[2]s", owner, other)) })
	s := shell{t: t}
	run := func(role string, args ...string) []string {
		return append([]string{"tables"}, append(args, "--database-url", asRole(url, role), "--lock-timeout", "1ms")...)
	}
	s.fails(exitNotAllowed, "--table-owner-role", run(owner, "observe", "accounts")...)
	check(t, migrations.Grant(t.Context(), admin, migrations.Roles{TableOwner: []string{owner, other}}))
	s.fails(exitNotFound, "not protected", run(owner, "observe", "accounts")...)
	s.fails(exitNotFound, "no such table: nowhere", run(owner, "observe", "nowhere")...)
	s.fails(exitUsage, "--lock-timeout", append(run(owner, "observe", "accounts"), "--lock-timeout", "0s")...)
	exec(connect(owner), "select fence.protect('accounts', 'accounts/{id}')")
	for _, change := range []string{"observe", "enforce", "unprotect"} {
		s.fails(exitNotAllowed, "Connect as the owner", run(other, change, "accounts")...)
	}

	writer := connect("")
	var token int64
	check(t, admin.QueryRow(t.Context(), "select fencing_token from fence.acquire('accounts/1', 'a')").Scan(&token))
	exec(writer, "set application_name = 'worker-7'")
	exec(writer, "begin")
	exec(writer, "select fence.guard('accounts/1', $1, 1)", token)
	exec(writer, "insert into accounts values ($1)", 1)
	if out := s.must(run(owner, "observe", "accounts")...); fields(out)["mode"] != "observe" {
		t.Errorf("observe printed %q", out)
	}
	exec(writer, "insert into accounts select 2") // one that is prepared already gets the mode in the next transaction
	list := []string{"tables", "--database-url", asRole(url, owner)}
	if out := s.must(list...); !strings.Contains(out, "public.accounts  accounts/{id}  observe") {
		t.Errorf("listed: %s", out)
	}
	pid := fmt.Sprintf("select pg_terminate_backend(%d)", writer.PgConn().PID())
	for _, change := range []string{"enforce", "unprotect"} {
		for role, words := range map[string]string{owner: `application "worker-7"` + "\n", "": "idle in transaction"} {
			got := s.do(run(role, change, "accounts")...)
			if got.code != exitUnavailable || !strings.Contains(got.errOut, pid) || !strings.Contains(got.errOut, words) {
				t.Errorf("%s by %q exited with %d: %s, want %d, %q and %q", change, role, got.code, got.errOut,
					exitUnavailable, pid, words)
			}
		}
	}
	exec(writer, "commit")
	s.must(run(owner, "enforce", "accounts")...)
	if _, err := writer.Exec(t.Context(), "insert into accounts values ($1)", 3); err == nil {
		t.Error("the table is not enforced")
	}
	if out := s.must(run(owner, "unprotect", "accounts")...); out != "unprotected  public.accounts\n" {
		t.Errorf("unprotect printed %q", out)
	}
	exec(writer, "insert into accounts values ($1)", 3)
	s.fails(exitFailure, "fencegate migrate", "tables", "--database-url", postgres.Empty(t))
}

// asRole returns the URL of a database for sessions that have the rights of a role; "": those of the user.
func asRole(url, role string) string {
	switch {
	case role == "":
		return url
	case strings.Contains(url, "?"):
		return url + "&role=" + role
	case strings.Contains(url, "://"):
		return url + "?role=" + role
	}
	return url + " role=" + role
}
