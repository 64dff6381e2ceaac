package checks_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/checks"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

// curable has a step for each finding that SQL cures, which makes it. DB, APP and OWNER are names.
func curable(database, app string) []curableStep {
	const idle, commit = "idle_in_transaction_session_timeout", "synchronous_commit"
	return []curableStep{
		{"fsync", "fsync", "alter system set fsync = off", false},
		{"full_page_writes", "full_page_writes", "alter system set full_page_writes = off", false},
		{commit, commit, "alter system set synchronous_commit = local", false},
		{commit, "role " + app + " in database " + database, "alter role APP in database DB set synchronous_commit = off", false},
		{commit, "role " + app, "alter role APP set synchronous_commit = 'false'", false},
		{commit, "database " + database, "alter database DB set synchronous_commit = local", false},
		{commit, "all roles", "alter role all set synchronous_commit = off", false},
		{idle, idle, "", false},
		{idle, idle, "alter role APP set idle_in_transaction_session_timeout = 0", false},
		{idle, idle, "alter role APP in database DB set idle_in_transaction_session_timeout = 0", false},
		{idle, idle, "alter database DB set idle_in_transaction_session_timeout = 0", false},
		{idle, idle, "alter database DB reset all; alter role all set idle_in_transaction_session_timeout = 0", false},
		{"table_problem", `public."Off"`, `create table "Off" (id bigint); select fence.protect('"Off"', 'off/{id}', 'observe');
			alter table "Off" disable trigger user`, false},
		{"observe", `public."Off"`, "", false},
		{"partition_truncate", "public.parts_1", `create table parts (id bigint) partition by range (id);
			select fence.protect('parts', 'parts/{id}'); create table parts_1 partition of parts for values from (1) to (9)`, false},
		{"table_owner", app, `create table owned (id bigint); select fence.protect('owned', 'owned/{id}');
			alter table owned owner to APP`, false},
		{"table_owner", app, "grant owner to team; grant team to APP", false},
		{"schema_owner", app, "alter schema fence owner to owner; grant owner to APP", false},
		{"table_rights", app, `alter schema fence owner to fencegate; grant team to APP; grant truncate on owned, parts to team;
			grant truncate on owned to public; grant trigger on parts_1 to APP`, false},
		{"replication_role", app, "grant set on parameter session_replication_role to team", false},
		{"superuser", app, "alter role APP superuser", false},
		{"prepared_transaction", "it's", "begin; create table written (); prepare transaction 'it''s'", false},
		{"idle_slot", "idle", "select pg_create_physical_replication_slot('idle', true)", false},
		{"backup", "archive_mode", "", true},
		{"max_connections", "max_connections", `insert into fence.gateway_states select gen_random_uuid(), 'g', 'v', now(),
			'infinity', 0, 0, 0, 0, 500, true, 0, '{}', 0, '{}', false, false`, true},
	}
}

type curableStep struct {
	check, subject, sql string
	restart             bool
}

// TestCures runs the cure of each finding that SQL can cure, as it is printed, in psql. Then the finding is gone. Names of
// the database and of roles need quotes.
func TestCures(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t, postgres.Setting("max_prepared_transactions", "1"), postgres.Setting("fsync", ""),
		postgres.Setting("full_page_writes", ""), postgres.Setting("synchronous_commit", ""), postgres.Setting("max_connections", ""))
	const database, app = `It's "one"`, `App's "1"`
	url := cluster.DatabaseURL(database)
	named := strings.NewReplacer("DB", `"It's ""one"""`, "APP", `"App's ""1"""`, "OWNER", "owner", "'COMMAND'", "'true'", "'NAME'", "'a'")
	psql := func(url, sql string) {
		t.Helper()
		cmd := exec.CommandContext(await.Context(t), postgres.Require(t, "psql"), "-X", "-v", "ON_ERROR_STOP=1", "-d", url)
		cmd.Stdin = strings.NewReader(named.Replace(sql))
		if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "WARNING") {
			t.Fatalf("%s: %v\n%s", sql, err, out)
		}
	}
	found := func(name, subject string) (cures []string) {
		t.Helper()
		conn, err := pgx.Connect(await.Context(t), url)
		check(t, err)
		defer conn.Close(t.Context())
		findings, err := checks.Run(await.Context(t), conn, checks.All)
		check(t, err)
		for _, f := range findings {
			if f.Severity != "" && f.Check == name && f.Subject == subject {
				cures = append(cures, f.Cure)
			}
		}
		return cures
	}
	psql(cluster.URL(), "create database DB; create role APP login; create role owner; create role team")
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	check(t, migrations.Apply(await.Context(t), conn))
	check(t, conn.Close(t.Context()))
	for _, c := range curable(database, app) {
		psql(url, c.sql+"; select pg_reload_conf()")
		var cures []string
		await.True(t, c.check+" is found: "+c.sql, func() bool {
			cures = found(c.check, c.subject)
			return len(cures) > 0
		})
		for _, cure := range cures {
			psql(url, cure)
		}
		if c.restart {
			cluster.Restart()
		}
		await.True(t, fmt.Sprintf("%s is gone after %q: %q", c.check, cures, c.sql), func() bool { return found(c.check, c.subject) == nil })
	}
	replicate(t, url, "a", "")
	await.True(t, "the standby is found", func() bool { return found("asynchronous_standbys", "synchronous_standby_names") != nil })
	psql(url, found("asynchronous_standbys", "synchronous_standby_names")[0])
	await.True(t, "the standby is synchronous", func() bool { return found("asynchronous_standbys", "synchronous_standby_names") == nil })
}

// expectCured checks that a URL with the cure of each finding has it no more, and has the name of the database.
func expectCured(t *testing.T, conn *pgx.Conn, found []checks.Finding) {
	t.Helper()
	for _, f := range found {
		if f.State == checks.OK {
			continue
		}
		cured := strings.Trim(strings.TrimPrefix(f.Cure, "--database-url "), "'")
		cured = strings.Replace(cured, "/etc/fencegate/ca.pem", "system", 1)
		config, err := pgx.ParseConfig(cured)
		check(t, err)
		again, err := checks.URL(t.Context(), conn, cured)
		check(t, err)
		if config.Database != "f" || strings.Contains(lines(again), f.Check+":") {
			t.Errorf("of %s check found %q", cured, lines(again))
		}
	}
}
