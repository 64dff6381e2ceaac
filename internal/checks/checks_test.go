package checks_test

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fencegate/fencegate/internal/checks"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

// TestCheckFailover brings a server step by step into states in which a crash or a failover loses writes or takes long.
// The check finds each after its step, and not before.
func TestCheckFailover(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t, postgres.Setting("max_prepared_transactions", "1"), postgres.Setting("fsync", ""),
		postgres.Setting("full_page_writes", ""), postgres.Setting("synchronous_commit", ""))
	withoutChecksums(t, cluster)
	conn, err := pgx.Connect(t.Context(), cluster.URL())
	check(t, err)
	defer conn.Close(t.Context())
	check(t, migrations.Apply(await.Context(t), conn))
	findings := func() (text string) {
		t.Helper()
		found, err := checks.Run(await.Context(t), conn, checks.All)
		check(t, err)
		for _, f := range found {
			text += fmt.Sprintf("%s %s: %s %s\n", cmp.Or(string(f.Severity), string(f.State)), f.Check, f.Subject, f.Detail)
			if f.State != checks.OK && f.Cure == "" {
				t.Errorf("%s has no cure", f.Check)
			}
		}
		return text
	}
	checkAlone(t, findings(), conn.Config().User)
	replicates := func(name, slot string) func() { return func() { replicate(t, cluster.URL(), name, slot) } }
	for _, step := range failoverSteps(replicates) {
		if found := findings(); step.want != "" && strings.Contains(found, step.want) {
			t.Errorf("found before its step: %s", step.want)
		}
		if step.do != nil {
			step.do()
		} else {
			change(t, conn, step.sql)
		}
		change(t, conn, "select pg_reload_conf()")
		await.True(t, step.want+step.sql, func() bool {
			found := findings()
			return strings.Contains(found, step.want) && (step.none == "" || strings.Contains(found, "ok "+step.none+": "))
		})
	}
}

// checkAlone expects what is to be found of a server that is sound, and without a standby, a backup or a gateway.
func checkAlone(t *testing.T, alone, user string) {
	t.Helper()
	want := []string{
		"unknown max_connections:  no gateway", "unknown gateways:  no gateway", "unknown gateway_versions:  no gateway",
		"warning standby: database no standby is connected",
		"warning backup: archive_mode is off, and nobody receives the write-ahead log",
		"warning idle_in_transaction_session_timeout: idle_in_transaction_session_timeout is 0 for " + user,
		"warning gateway_role: " + user + " may act as the owner",
	}
	for _, line := range want {
		if !strings.Contains(alone, line) {
			t.Errorf("of a server that is alone check did not find %q", line)
		}
	}
	if bad := regexp.MustCompile(`(?m)^(error|warning|unknown|.* pg_rewind: \S)`).FindAllString(alone, -1); len(bad) != len(want) {
		t.Errorf("of a server that is alone check found:\n%s", alone)
	}
}

// step changes a server.
type step struct {
	sql  string
	do   func()
	want string
	none string // a check that finds nothing after the step
}

func failoverSteps(replicates func(name, slot string) func()) []step {
	const (
		names   = "alter system set synchronous_standby_names = "
		gateway = `insert into fence.gateway_states select gen_random_uuid(), 'g', '%s', now(), 'infinity', 0, 0, 0, 0, %d,
			true, 0, '{}', 0, '{}', false, %t`
	)
	return []step{{sql: "alter system set fsync = off", want: "error fsync: fsync is off"},
		{sql: "alter system set full_page_writes = off", want: "warning full_page_writes: full_page_writes is off"},
		{sql: "select setval('fence.audit_id_seq', 7); insert into fence.audit (principal, address, action, name, details) " +
			"values ('', '', '', '', '{}'); select setval('fence.audit_id_seq', 1, false)",
			want: "error sequence_behind: fence.audit_id_seq continues at or below 8, which a row has"},
		{sql: "select setval('fence.audit_id_seq', 8)", none: "sequence_behind"},
		{sql: "alter system set synchronous_commit = local", want: "warning synchronous_commit: synchronous_commit is local"},
		{sql: "alter role fencegate in database fencegate set synchronous_commit = off",
			want: "warning synchronous_commit: role fencegate in database fencegate has the setting synchronous_commit=off"},
		{sql: "alter database fencegate set idle_in_transaction_session_timeout = '1min'",
			none: "idle_in_transaction_session_timeout"},
		{sql: "create role forgetful login; alter role forgetful set idle_in_transaction_session_timeout = 0",
			want: "warning idle_in_transaction_session_timeout: idle_in_transaction_session_timeout is 0 for forgetful\n"},
		{sql: fmt.Sprintf(gateway, "ended", 9, true)},
		{sql: fmt.Sprintf(gateway, "v", 1, false), want: "warning gateways: gateways one serves",
			none: "max_connections"},
		{sql: fmt.Sprintf(gateway, "v", 1, false), none: "gateways"},
		{sql: fmt.Sprintf(gateway, "w", 1, false),
			want: "warning gateway_versions: gateways are of the versions v, w"},
		{sql: "delete from fence.gateway_states", want: "unknown max_connections:"},
		{do: replicates("pg_basebackup", ""), want: "notice pg_rewind: wal_log_hints is off, like data checksums",
			none: "asynchronous_standbys"},
		{do: replicates("pg_receivewal", ""), none: "backup"},
		{sql: "select pg_create_physical_replication_slot('used', true)", want: "warning idle_slot: used is read by nobody"},
		{do: replicates("a", "used"), none: "standby",
			want: "warning asynchronous_standbys: synchronous_standby_names is empty, and 1 standbys are connected"},
		{sql: names + "'gone'", want: "warning no_synchronous_standby: synchronous_standby_names is 'gone', and no"},
		{sql: names + "'*'", want: "synchronous_standby_names is '*', and no", none: "quorum"},
		{do: replicates("b", ""), want: "notice quorum: synchronous_standby_names is '*': any of 2 standbys confirms"},
		{sql: "select pg_create_physical_replication_slot('idle', true)", want: "warning idle_slot: idle is read by nobody"},
		{sql: "prepare transaction 'stuck'", want: "warning prepared_transaction: stuck is prepared since"},
		{sql: "select fence.supersede(7, 8, 0)", want: "error superseded: database is on timeline 1, and a gateway has seen " +
			"timeline 8 of system 7"},
		{sql: fmt.Sprintf(gateway, "v", 194, false), none: "max_connections"},
		{sql: fmt.Sprintf(gateway, "v", 500, false),
			want: "warning max_connections: max_connections 197 are for all roles, and 2 gateways may use 700"},
		{sql: "alter system set max_slot_wal_keep_size = '1GB'", none: "idle_slot"},
	}
}

// change runs a statement, in a transaction if it prepares that.
func change(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	ctx := await.Context(t)
	if strings.HasPrefix(sql, "prepare transaction") {
		_, err := conn.Exec(ctx, "begin; create table written ()")
		check(t, err)
	}
	_, err := conn.Exec(ctx, sql)
	check(t, err)
}

// withoutChecksums turns data checksums off, which servers of the tests have.
func withoutChecksums(t *testing.T, cluster *postgres.Cluster) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), cluster.URL())
	check(t, err)
	var dataDir string
	check(t, conn.QueryRow(t.Context(), "show data_directory").Scan(&dataDir))
	check(t, conn.Close(t.Context()))
	cluster.Stop()
	output, err := exec.CommandContext(t.Context(), postgres.Require(t, "pg_checksums"), "--disable", dataDir).CombinedOutput()
	if err != nil {
		t.Fatalf("pg_checksums: %v\n%s", err, output)
	}
	cluster.Restart()
}

// replicate connects as a standby does, until the test ends, by a slot if it has a name.
func replicate(t *testing.T, url, application, slot string) {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	check(t, err)
	config.RuntimeParams["replication"], config.RuntimeParams["application_name"] = "true", application
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(await.Context(t), config)
	check(t, err)
	t.Cleanup(func() { _ = conn.PgConn().Conn().Close() })
	if slot != "" {
		slot = "SLOT " + slot
	}
	conn.PgConn().Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION " + slot + " PHYSICAL 0/1000000"})
	check(t, conn.PgConn().Frontend().Flush())
}

// TestCheckPatroni finds settings of Patroni that lose writes.
func TestCheckPatroni(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		version, config string
		want            []string
	}{
		"as shipped": {"4.0.4", `{"synchronous_mode": true, "synchronous_mode_strict": true, "ttl": 20, "loop_wait": 1,
			"retry_timeout": 5}`, nil},
		"quorum": {"4.0.0", `{"synchronous_mode": "quorum", "synchronous_mode_strict": true}`, nil},
		"quorum of an older one": {"3.3.2", `{"synchronous_mode": "quorum", "synchronous_mode_strict": true}`, []string{
			"patroni_synchronous: synchronous_mode is quorum, which Patroni 3.3.2 takes for off"}},
		"defaults": {"3.0.3", `{}`, []string{"patroni_synchronous: synchronous_mode is off"}},
		"bad": {"3.0.2", `{"synchronous_mode": true, "ttl": 25}`, []string{"patroni_version: version is 3.0.2",
			"patroni_synchronous: synchronous_mode_strict is off", "patroni_ttl: ttl is 25, less than loop_wait + 2 * " +
				"retry_timeout (30)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := test.config
				if r.URL.Path == "/patroni" {
					answer = `{"patroni": {"version": "` + test.version + `", "scope": "fencegate"}}`
				}
				_, _ = w.Write([]byte(answer))
			}))
			defer api.Close()
			found, err := checks.Patroni(t.Context(), api.Client(), api.URL)
			check(t, err)
			if got, want := lines(found), strings.Join(test.want, "\n"); got != want {
				t.Errorf("found %q, want %q", got, want)
			}
		})
	}
}

// TestCheckURL finds what the connection URL of a gateway lacks, with and without a standby.
func TestCheckURL(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t)
	conn, err := pgx.Connect(t.Context(), cluster.URL())
	check(t, err)
	defer conn.Close(t.Context())
	for _, test := range []struct{ url, want string }{
		{"postgres://db-1,db-2/f?target_session_attrs=read-write&sslmode=verify-full", ""},
		{"postgres://db-1,db-2/f?sslmode=verify-full", "target_session_attrs: --database-url names several hosts, and not " +
			"target_session_attrs"},
		{"postgres:///f?host=/run/postgresql", ""},
		{"postgres://u:p@db-1/f?sslmode=prefer&application_name=a", "sslmode: --database-url db-1 may be reached without TLS"},
		{"postgres://db-1/f?sslmode=require", "sslmode: --database-url the name in the certificate of db-1 is not verified"},
		{"postgres://db-1/f?sslmode=verify-ca", "sslmode: --database-url the name in the certificate of db-1 is not verified"},
	} {
		found, err := checks.URL(t.Context(), conn, test.url)
		check(t, err)
		if got := lines(found); got != test.want {
			t.Errorf("of %s check found %q, want %q", test.url, got, test.want)
		}
		expectCured(t, conn, found)
	}
	replicate(t, cluster.URL(), "standby", "")
	await.True(t, "one host is found", func() bool {
		found, err := checks.URL(await.Context(t), conn, "postgres://db-1/f?sslmode=verify-full")
		check(t, err)
		return lines(found) == "target_session_attrs: --database-url names one host, and 1 standbys are connected"
	})
	found, err := checks.URL(t.Context(), conn, "postgres://db-1/f?sslmode=verify-full")
	check(t, err)
	expectCured(t, conn, found)
}

// TestCheckUnknown shows what a role may not see as unknown, with the reason, and not as sound.
func TestCheckUnknown(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t, postgres.Setting("archive_mode", "on"), postgres.Setting("synchronous_standby_names", "a"))
	conn, err := pgx.Connect(t.Context(), cluster.URL())
	check(t, err)
	defer conn.Close(t.Context())
	replicate(t, cluster.URL(), "a", "")
	for _, sql := range []string{
		"set synchronous_commit = local", "create schema fence",
		"create table fence.gateway_states (ended boolean, seen_at timestamptz)", "create role few login",
		"grant usage on schema fence to few", "set role few",
	} {
		change(t, conn, sql)
	}
	find := func() string {
		found, err := checks.Run(await.Context(t), conn, checks.All)
		check(t, err)
		var text string
		for _, f := range found {
			text += fmt.Sprintf("%s %s: %s %s\n", f.State, f.Check, f.Subject, f.Detail)
		}
		return text
	}
	await.True(t, "the standby is connected", func() bool { return strings.Contains(find(), "ok standby: ") })
	for _, want := range []string{
		"unknown gateways:  permission denied for table gateway_states",
		"unknown no_synchronous_standby:  the role is no member of pg_read_all_stats",
		"unknown backup:  nothing was archived yet", "ok fsync: ", "ok gateway_role: ",
	} {
		if found := find(); !strings.Contains(found, want) {
			t.Errorf("check did not find %q:\n%s", want, found)
		}
	}
	change(t, conn, "reset role")
	change(t, conn, "alter system set archive_command = 'false'")
	change(t, conn, "select pg_reload_conf()")
	change(t, conn, "select pg_switch_wal()")
	await.True(t, "a command that fails is found", func() bool {
		return strings.Contains(find(), "warning backup: archive_command fails: ")
	})
	change(t, conn, "alter system set archive_command = 'true'")
	change(t, conn, "select pg_reload_conf()")
	await.True(t, "what is archived is found", func() bool { return strings.Contains(find(), "ok backup: ") })
	if found := find(); !strings.Contains(found, "warning no_synchronous_standby: ") { // it has not caught up
		t.Errorf("a superuser does not see the state of the standby:\n%s", found)
	}
}

// TestCheckSchema finds a schema of another version that is served, and each object that is not as this program makes it.
func TestCheckSchema(t *testing.T) {
	t.Parallel()
	const guard = "fence.guard(text, bigint, bigint, uuid, bytea)"
	for _, changed := range []struct{ sql, want string }{
		{"select 1", ""},
		{"update fence.guard_revision set revision = revision + 1", "warning schema: fence the database was migrated by a newer"},
		{"do $$ begin execute replace(pg_get_functiondef('" + guard + "'::regprocedure), 'begin', 'begin return true;'); end $$",
			"error schema_changed: function fence.guard(text,bigint,bigint,uuid,bytea) has another body than in revision 1"},
		{"alter function " + guard + " reset all", "error schema_changed: function fence.guard(text,bigint,bigint,uuid,bytea) " +
			"has: set nothing; it should be: set enable_seqscan=off"},
		{"alter function " + guard + " security invoker", "error schema_changed: function fence.guard(text,bigint,bigint,uuid,bytea) has: language"},
		{"drop function fence.is_held", "error schema_changed: function fence.is_held("},
		{"create function fence.guard(text, integer) returns boolean return true",
			"error schema_changed: function fence.guard(text,integer) is not of fencegate: "},
		{"create function fence.mine() returns boolean return true", "notice schema_added: function fence.mine() is not of"},
		{"create or replace function fence.rule(token bigint, sequence bigint, same_token boolean, external boolean, " +
			"granted_token bigint, open boolean, last_token bigint, last_sequence bigint) returns text immutable return 'admitted'",
			"error schema_changed: function fence.rule(bigint,bigint,boolean,boolean,bigint,boolean,bigint,bigint) has another body"},
		{"drop index fence.leases_running", "error schema_changed: index fence.leases_running is missing; it is CREATE UNIQUE"},
		{"update pg_index set indisvalid = false where indexrelid = 'fence.leases_running'::regclass",
			"error schema_changed: index fence.leases_running has: CREATE"},
		{"create index mine on fence.leases (granted_at)", "notice schema_added: index fence.mine is not of fencegate: CREATE INDEX"},
		{"create table fence.mine (id integer primary key check (id > 0)); create trigger own before insert on fence.mine " +
			"for each row execute function suppress_redundant_updates_trigger()", "notice schema_added: table fence.mine is not of fencegate: logged\nnotice schema_added: index fence.mine_pkey"},
		{"alter table fence.policies drop constraint policies_rule_check", "error schema_changed: constraint policies_rule_check on fence.policies is missing"},
		{"alter table fence.leases add check (ttl_ms > 9)", "error schema_changed: constraint leases_ttl_ms_check on fence.leases is not of"},
		{"alter table fence.fences alter open set default true", "error schema_changed: column fence.fences.open has: boolean not null default true"},
		{"alter table fence.fences add note text", "notice schema_added: column fence.fences.note is not of fencegate: text"},
		{"alter table fence.fences enable row level security", "error schema_changed: table fence.fences has: logged row security"},
		{"create trigger none before update on fence.fences for each row execute function suppress_redundant_updates_trigger()",
			"error schema_changed: trigger none on fence.fences is not of fencegate: "},
		{"create rule none as on update to fence.fences do instead nothing", "error schema_changed: rule none on fence.fences is not of"},
		{"alter view fence.held reset (security_barrier)", "error schema_changed: view fence.held has: logged with (); it should be"},
		{"create or replace view fence.admitted as select resource, last_token, last_sequence from fence.fences",
			"error schema_changed: view fence.admitted has another body"},
		{"alter domain fence.token drop constraint token_is_exact", "error schema_changed: constraint token_is_exact of domain fence.token"},
		{"alter table fence.leases set (fillfactor = 90); comment on table fence.leases is 'mine'; create table kept (id integer); " +
			"select fence.protect('kept', 'kept/{id}'); grant select on fence.leases to public", ""},
	} {
		conn, err := pgx.Connect(t.Context(), postgres.Migrated(t))
		check(t, err)
		_, err = conn.Exec(await.Context(t), changed.sql)
		check(t, err)
		found, err := checks.Schema(await.Context(t), conn, migrations.Compare(t.Context(), conn))
		check(t, err)
		check(t, conn.Close(await.Context(t)))
		var shown string
		for _, f := range found {
			if f.Severity != "" {
				shown += fmt.Sprintf("%s %s: %s %s\n", f.Severity, f.Check, f.Subject, f.Detail)
			}
		}
		if changed.want == "" && shown != "" || !strings.HasPrefix(shown, changed.want) {
			t.Errorf("%s: check found %q, want %q", changed.sql, shown, changed.want)
		}
	}
}

func lines(found []checks.Finding) string {
	var lines []string
	for _, f := range found {
		if f.State == checks.OK {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s %s", f.Check, f.Subject, f.Detail))
	}
	return strings.Join(lines, "\n")
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
