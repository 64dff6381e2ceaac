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

// beforeUninstall makes a database with tables of the role shop, and dumps it. Then it installs fencegate, and protects
// the tables: a program without a token is refused.
const beforeUninstall = `
set -eu
exec 2>&1
as() { psql "$APP_URL&user=$1" -X -v ON_ERROR_STOP=1 -qAt; }
psql "$SERVER_URL" -X -v ON_ERROR_STOP=1 -q <<END
create role fence_owner login; create role fence_gateway login; create role shop login; create role app login;
create database app;
END
as fencegate <<END
grant create on database app to fence_owner;
grant create on schema public to shop;
END
as shop <<END
create table accounts (id bigint primary key, balance integer not null check (balance >= 0));
insert into accounts select n, 100 from generate_series(1, 1000) n;
create table events (on_day date, id bigint generated always as identity, primary key (on_day, id))
	partition by range (on_day);
create table events_2026 partition of events for values from ('2026-01-01') to ('2027-01-01');
create table gone (id bigint primary key);
grant select, insert, update, delete on accounts, events to app;
create view rich as select * from accounts where balance > 1000;
END
pg_dump --exclude-table gone --dbname "$APP_URL" --file before.sql
[ "$INSTALLED" = schema ] || as fence_owner <<<'create extension fencegate'
fencegate migrate --database-url "$APP_URL&user=fence_owner" --app-role app --table-owner-role shop \
	--gateway-role fence_gateway
as shop <<END
select fence.protect('accounts', 'accounts/{id}'), fence.protect('gone', 'gone/{id}'),
	fence.protect('events', 'events/{id}', inserts => 'free');
drop table gone;
create view locks as select * from fence.held;
END
as app <<END
select fencing_token from fence.acquire('accounts/1', 'worker-1', 600000) \gset
begin;
select fence.guard('accounts/1', :fencing_token, 1);
update accounts set balance = 90 where id = 1;
update accounts set balance = 100 where id = 1;
commit;
END
as app <<<'update accounts set balance = 0' && exit 1
`

// writes is what the application can do after each step, without a token.
const writes = "as app <<<'update accounts set balance = balance'\n"

// afterUninstall compares the database with the dump, and writes to the tables as the application.
const afterUninstall = `
pg_dump --dbname "$APP_URL" --file after.sql
as app <<END
update accounts set balance = balance + 1;
insert into accounts values (1001, 0);
insert into events (on_day) values ('2026-11-27');
delete from events;
END
as fencegate <<<'select count(*), sum(balance) from accounts' | grep -x '1001|101000'
as fencegate <<<"select count(*) from pg_roles where rolname in ('fence_owner', 'fence_gateway')" | grep -x 0
as fencegate <<<"select count(*) from pg_depend where pg_describe_object(classid, objid, objsubid) ~ 'fence'" | grep -x 0
diff <(sort before.sql | grep -v restrict) <(sort after.sql | grep -v restrict)
echo done
`

// TestUninstall follows docs/uninstall.md in a database with protected tables, one of which was dropped, and a view of a
// user that reads fencegate's. At the end the dump of the database is that from before the installation, and the
// application writes as it did then.
func TestUninstall(t *testing.T) {
	t.Parallel()
	pgDump, _ := postgres.RequireDump(t, "psql")
	roles := map[string]string{"the owner of the tables": "shop", "the owner of the schema": "fence_owner",
		"the owner of the extension": "fence_owner", "a superuser": "fencegate"}
	for _, installed := range []string{"schema", "extension"} {
		t.Run(installed, func(t *testing.T) {
			t.Parallel()
			cluster := postgres.NewCluster(t)
			cluster.InstallExtension(migrations.ExtensionFiles())
			text := beforeUninstall
			for _, b := range blocksOf(t, "docs/uninstall.md") {
				role := roles[strings.TrimPrefix(b.first(), "-- as ")]
				if role == "" {
					t.Fatalf("docs/uninstall.md:%d: the block does not say who runs it", b.line)
				}
				if strings.Contains(b.text, "\ndrop ") && role == "fence_owner" && !strings.HasSuffix(b.first(), installed) {
					continue
				}
				text += fmt.Sprintf("echo '<line %d>'\nas %s <<'END'\n%sEND\n%s", b.line, role, b.text, writes)
				if strings.Contains(b.text, "uses_fencegate") {
					text += "as shop <<<'drop view locks'\n"
				}
			}
			folder := t.TempDir()
			check(t, os.Symlink(process.Build(t), filepath.Join(folder, "fencegate")))
			bash := exec.CommandContext(await.Context(t), "bash", "-c", text+afterUninstall)
			bash.Dir = folder
			bash.Env = append(os.Environ(), "INSTALLED="+installed, "SERVER_URL="+cluster.URL(),
				"APP_URL="+cluster.DatabaseURL("app"),
				"PATH="+strings.Join([]string{folder, filepath.Dir(pgDump), os.Getenv("PATH")}, ":"))
			printed, err := bash.CombinedOutput()
			if err != nil || !strings.HasSuffix(string(printed), "done\n") {
				t.Errorf("the walk broke off: %v\n%s", err, printed)
			}
			if !strings.Contains(string(printed), "\nrule _RETURN on view locks\n") {
				t.Errorf("the page does not show the view that uses the schema:\n%s", printed)
			}
		})
	}
}
