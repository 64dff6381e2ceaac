//go:build unix

package docs_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/migrations"
)

// onOneMachine stands for what the machines of docs/production.md have: sudo, and systemd with the unit on two of them.
const onOneMachine = `
set -eu
exec 2>&1
sudo() { shift 2; if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }
chown() { :; } # there is no user fencegate
systemctl() {
	local gateway
	for gateway in $GATEWAYS; do
		(while IFS= read -r line; do export "$line"; done <etc/fencegate.env
			FENCEGATE_LISTEN=$gateway exec fencegate serve) >"$gateway.log" 2>&1 &
		echo $! >"$gateway.pid"
		until curl -sf --cacert etc/tls/ca.pem "https://$gateway/readyz" >/dev/null; do
			kill -0 $! || { cat "$gateway.log"; return 1; }
			sleep 0.1
		done
	done
}
stop() {
	kill $(jobs -p) 2>/dev/null || true
	for data in data/*/postmaster.pid; do kill -QUIT $(head -1 "$data") || true; done
	wait
}
trap stop EXIT
`

// afterProduction sees an alert: a gateway is killed.
const afterProduction = `
kill -KILL $(cat ${GATEWAYS#* }.pid)
until curl -sf http://127.0.0.1:9090/api/v1/alerts | grep -o '"alertname":"FencegateGatewayDown"'; do sleep 0.2; done
`

// TestSlow_Production follows docs/production.md from its top, on one machine: only addresses, paths and the
// supervisor differ. At its end check finds nothing, a stale write is rejected, also after a restore, and an alert is
// seen.
func TestSlow_Production(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"initdb", "curl", "openssl", "haproxy", "prometheus", "promtool"} {
		postgres.Require(t, program)
	}
	folder, err := os.MkdirTemp("/tmp", "fencegate-production-") // PostgreSQL's user reaches it
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(folder)) })
	check(t, os.Chmod(folder, 0o755))
	for _, name := range []string{"etc", "data", "run", "backup", "share"} {
		check(t, os.Mkdir(filepath.Join(folder, name), 0o755))
	}
	if account, err := user.Lookup("postgres"); err == nil && os.Geteuid() == 0 {
		uid, _ := strconv.Atoi(account.Uid)
		check(t, os.Chown(filepath.Join(folder, "run"), uid, -1))
	}
	adapted, gateways := adapt(t, folder)
	for _, name := range []string{"production/haproxy.cfg", "production/prometheus.yml", "prometheus/alerts.yml"} {
		path := filepath.Join(folder, "share", filepath.Base(name))
		text, err := os.ReadFile(filepath.Join(root, "deploy", name))
		check(t, err)
		check(t, os.WriteFile(path, []byte(adapted.Replace(string(text))), 0o644))
	}
	text := onOneMachine
	for _, b := range blocksOf(t, "docs/production.md") {
		elsewhere := strings.HasPrefix(b.text, "apt-get") || strings.HasPrefix(b.text, "bin/fencegate-bench load")
		if b.language == "sh" && !elsewhere {
			text += fmt.Sprintf("echo '<line %d>'\n", b.line) + adapted.Replace(b.text)
		}
	}
	link := filepath.Join(t.TempDir(), "fencegate")
	check(t, os.Symlink(process.Build(t), link))
	bash := exec.CommandContext(await.Context(t), "bash", "-c", text+adapted.Replace(afterProduction))
	bash.Dir = folder
	bash.Env = append(os.Environ(), "GATEWAYS="+gateways, "PATH="+strings.Join([]string{filepath.Dir(link),
		filepath.Dir(postgres.Require(t, "initdb")), os.Getenv("PATH"), "/usr/sbin"}, ":"))
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	bash.Cancel = func() error { return syscall.Kill(-bash.Process.Pid, syscall.SIGTERM) }
	printed, err := bash.CombinedOutput()
	if err != nil {
		t.Fatalf("the walk broke off: %v\n%s", err, printed)
	}
	if found := regexp.MustCompile(`(?m)^(wrong|warning|unknown) .*`).FindAllString(string(printed), -1); len(found) != 1 ||
		!strings.HasPrefix(found[0], "unknown  failover_manager") {
		t.Errorf("at the end check found %q, expected failover_manager alone:\n%s", found, printed)
	}
}

// adapt returns what turns the addresses and paths of the page into those of this machine, and the gateways.
func adapt(t *testing.T, folder string) (adapted *strings.Replacer, gateways string) {
	t.Helper()
	port := func() string {
		_, port, err := net.SplitHostPort(network.FreeAddress(t))
		check(t, err)
		return port
	}
	first, second, trial, one, two, proxy, watch := port(), port(), port(), port(), port(), port(), port()
	old := []string{
		"/etc/fencegate", folder + "/etc", "/usr/share/fencegate", folder + "/share", "/var/lib/fencegate", folder + "/data", "/backup", folder + "/backup",
		"/run/postgresql", folder + "/run", "--host gw-2", "--host gw-2 --host localhost --host 127.0.0.1",
		"port = 5432/'", "port = " + second + "/'", "db-1:5433", "localhost:" + trial, "port = 5433", "port = " + trial,
		"db-1:5432", "localhost:" + first, "db-2:5432", "localhost:" + second, "host=db-1 port=5432", "host=localhost port=" + first,
		"port = 5432", "port = " + first, "-p 5432", "-p " + first,
		"gw-1:8443", "127.0.0.1:" + one, "gw-2:8443", "127.0.0.1:" + two, "127.0.0.1:8081", network.FreeAddress(t),
		"fence.example.net:443", "127.0.0.1:" + proxy, "bind :443", "bind 127.0.0.1:" + proxy,
		"haproxy -D -f /etc/fencegate/haproxy.cfg", "haproxy -db -f " + folder + "/etc/haproxy.cfg &",
		"127.0.0.1:9090", "127.0.0.1:" + watch,
	}
	if os.Geteuid() != 0 {
		old = append(old, "-o postgres", "")
	}
	return strings.NewReplacer(old...), "127.0.0.1:" + one + " 127.0.0.1:" + two
}

// beforeReplication fills the old server. Each audit entry, event and rejection takes a number of a sequence.
const beforeReplication = `
set -eu
exec 2>&1
old() { psql "$OLD_URL" -v ON_ERROR_STOP=1 -qAtc "$1"; }
new() { psql "$NEW_URL" -v ON_ERROR_STOP=1 -qAtc "$1"; }
psql "$OLD_URL" -v ON_ERROR_STOP=1 -qf schema.sql
old "create table accounts (id bigint primary key, balance integer); insert into accounts values (1, 0)"
old "select fence.protect('accounts', 'accounts/{id}')"
old "select fence.accept_database(1000000000000000)"
LEASE=$(old "select lease_id, fencing_token from fence.acquire('accounts/1', 'a', 600000)")
TOKEN_1=${LEASE#*|}
`

// duringReplication uses what an incident needs, under a publication for all tables.
const duringReplication = `
old "select fence.protect('accounts', 'accounts/{id}', 'observe')"
old "update accounts set balance = 1"
old "select from fence.sweep_all()"
old "select fence.unprotect('accounts')"
old "select fence.protect('accounts', 'accounts/{id}')"
old "begin; select fence.guard('accounts/1', $TOKEN_1, 1); update accounts set balance = 2; commit"
`

const afterReplication = `
new "begin; select fence.guard('accounts/1', $TOKEN_1, 2); update accounts set balance = balance + 1; commit"
new "update accounts set balance = 9" && exit 1
new "select balance from accounts" | grep -x 3
new "select fence.protect('accounts', 'accounts/{id}', 'observe')"
new "update accounts set balance = 9"
new "select fence.unprotect('accounts')"
new "select fencing_token > $TOKEN_1 from fence.acquire('other', 'b')" | grep -x t
new "select status from fence.release('accounts/1', 'a', '${LEASE%|*}', $TOKEN_1)" | grep -x released
new "select count(*) from fence.sweep_all()"
fencegate check --rows --database-url "$NEW_URL" | grep 'ok.* sequence_behind'
echo done
`

// TestReplication follows docs/replication.md from a server with a protected table, a lease and a watch to another one.
// On the old one, everything works under the publication. On the new one, the holder continues with its token.
func TestReplication(t *testing.T) {
	t.Parallel()
	_, restore := postgres.RequireDump(t, "pg_restore")
	var script strings.Builder
	check(t, migrations.Script{}.Print(&script))
	for name, sql := range map[string]string{
		"script": "begin;" + script.String() + "commit", "extension": "create extension fencegate",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from := postgres.NewCluster(t, postgres.Setting("wal_level", "logical"))
			to := postgres.NewCluster(t, postgres.Stranger())
			if name == "extension" {
				from.InstallExtension(migrations.ExtensionFiles())
				to.InstallExtension(migrations.ExtensionFiles())
			}
			text := beforeReplication
			for _, b := range blocksOf(t, "docs/replication.md") {
				if strings.Contains(b.text, "LSN=") {
					text += duringReplication
				}
				text += fmt.Sprintf("echo '<line %d>'\n", b.line) + strings.ReplaceAll(b.text, "sleep 1", "sleep 0.1")
			}
			folder := t.TempDir()
			check(t, os.Symlink(process.Build(t), filepath.Join(folder, "fencegate")))
			check(t, os.WriteFile(filepath.Join(folder, "schema.sql"), []byte(sql), 0o600))
			bash := exec.CommandContext(await.Context(t), "bash", "-c", text+afterReplication)
			bash.Dir = folder
			bash.Env = append(os.Environ(), "OLD_URL="+from.URL(), "NEW_URL="+to.URL(), "PATH="+strings.Join([]string{
				folder, filepath.Dir(restore), os.Getenv("PATH")}, ":"))
			if printed, err := bash.CombinedOutput(); err != nil || !strings.HasSuffix(string(printed), "done\n") {
				t.Errorf("the walk broke off: %v\n%s", err, printed)
			}
		})
	}
}
