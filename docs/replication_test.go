//go:build unix

package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/migrations"
)

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
