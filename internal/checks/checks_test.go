package checks_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fencegate/fencegate/internal/checks"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
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
			text += fmt.Sprintf("%s %s: %s %s\n", f.Severity, f.Check, f.Subject, f.Detail)
		}
		return text
	}
	if found := findings(); strings.Contains(found, "error ") || strings.Contains(found, "warning ") ||
		strings.Contains(found, "pg_rewind") {
		t.Errorf("of a sound server check found:\n%s", found)
	}
	replicates := func(name, slot string) func() { return func() { replicate(t, cluster.URL(), name, slot) } }
	const (
		names   = "alter system set synchronous_standby_names = "
		gateway = `insert into fence.gateway_states select gen_random_uuid(), 'g', 'v', now(), 'infinity', 0, 0, 0, 0, %d,
			true, 0, '{}', 0, '{}'`
	)
	for _, step := range []struct {
		sql  string
		do   func()
		want string
		none string // a check that finds nothing after the step
	}{
		{sql: "alter system set fsync = off", want: "error fsync: fsync is off"},
		{sql: "alter system set full_page_writes = off", want: "warning full_page_writes: full_page_writes is off"},
		{sql: "alter system set synchronous_commit = local", want: "warning synchronous_commit: synchronous_commit is local"},
		{sql: "alter role fencegate in database fencegate set synchronous_commit = off",
			want: "warning synchronous_commit: role fencegate in database fencegate has the setting synchronous_commit=off"},
		{do: replicates("pg_basebackup", ""), want: "notice pg_rewind: wal_log_hints is off, like data checksums",
			none: "asynchronous_standbys"},
		{sql: "select pg_create_physical_replication_slot('used', true)", want: "warning idle_slot: used is read by nobody"},
		{do: replicates("a", "used"), none: "idle_slot",
			want: "warning asynchronous_standbys: synchronous_standby_names is empty, and 1 standbys are connected"},
		{sql: names + "'gone'", want: "warning no_synchronous_standby: synchronous_standby_names is 'gone', and no"},
		{sql: names + "'*'", want: "synchronous_standby_names is '*', and no", none: "quorum"},
		{do: replicates("b", ""), want: "notice quorum: synchronous_standby_names is '*': any of 2 standbys confirms"},
		{sql: "select pg_create_physical_replication_slot('idle', true)", want: "warning idle_slot: idle is read by nobody"},
		{sql: "prepare transaction 'stuck'", want: "warning prepared_transaction: stuck is prepared since"},
		{sql: "select fence.supersede(7, 8, 0)", want: "error superseded: database is on timeline 1, and a gateway has seen " +
			"timeline 8 of system 7"},
		{sql: fmt.Sprintf(gateway, 194), none: "max_connections"},
		{sql: fmt.Sprintf(gateway, 500),
			want: "warning max_connections: max_connections 197 are for all roles, and 2 gateways may use 700"},
		{sql: "alter system set max_slot_wal_keep_size = '1GB'", none: "idle_slot"},
	} {
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
			return strings.Contains(found, step.want) && (step.none == "" || !strings.Contains(found, " "+step.none+": "))
		})
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

// TestCheckPatroni finds settings of Patroni that lose writes, and a URL that names several hosts for any server.
func TestCheckPatroni(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		version, config string
		want            []string
	}{
		"as shipped": {"4.0.4", `{"synchronous_mode": true, "synchronous_mode_strict": true, "ttl": 20, "loop_wait": 5,
			"retry_timeout": 5}`, nil},
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
	for url, want := range map[string]string{
		"postgres://db-1,db-2/f?target_session_attrs=read-write": "",
		"postgres://db-1,db-2/f":                                 "target_session_attrs: --database-url names several hosts",
		"postgres://db-1/f?sslmode=prefer":                       "",
	} {
		found, err := checks.URL(url)
		check(t, err)
		if got := lines(found); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("of %s check found %q, want %q", url, got, want)
		}
	}
}

func lines(found []checks.Finding) string {
	var lines []string
	for _, f := range found {
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
