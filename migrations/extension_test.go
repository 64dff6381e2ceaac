package migrations_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

// extensionFiles are those of this program, and of an older version, which has a function less.
func extensionFiles() map[string]string {
	files := migrations.ExtensionFiles()
	newest := len(migrations.NumberedFiles())
	version := fmt.Sprintf("%d.%d", newest, migrations.GuardRevision)
	older := strings.Replace(files["fencegate--"+version+".sql"],
		fmt.Sprintf("values (%d, %d, '%s')", migrations.GuardRevision, migrations.ServesFrom, migrations.GuardDigest()), "values (0, 0, 'older')", 1)
	files[fmt.Sprintf("fencegate--%d.0.sql", newest)] = older + "drop function fence.note_key_uses;\n"
	files[fmt.Sprintf("fencegate--%[1]d.0--%[1]d.sql", newest)] = ""
	return files
}

// extensionCluster is a PostgreSQL that has the extension, with the role plain, who may make databases.
type extensionCluster struct{ *postgres.Cluster }

func newExtensionCluster(t *testing.T) extensionCluster {
	t.Helper()
	cluster := postgres.NewCluster(t, postgres.Setting("fsync", "off"))
	cluster.InstallExtension(extensionFiles())
	exec(t, connect(t, cluster.URL()), "create role plain login")
	return extensionCluster{cluster}
}

// database makes a database of the role plain, and returns its URL for that role.
func (c extensionCluster) database(t *testing.T, name string) string {
	t.Helper()
	exec(t, connect(t, c.URL()), "create database "+name+" owner plain")
	return c.DatabaseURL(name) + "&user=plain"
}

// TestExtension checks the extension fencegate, which a role makes that only owns its database.
func TestExtension(t *testing.T) {
	t.Parallel()
	cluster := newExtensionCluster(t)
	t.Run("made", func(t *testing.T) {
		t.Parallel()
		conn := connect(t, cluster.database(t, "made"))
		exec(t, conn, "create extension fencegate")
		expectGolden(t, conn)
		expectOwnedBy(t, conn, "plain")
		expectUntouched(t, conn, func() {
			for _, err := range []error{migrations.Check(t.Context(), conn), migrations.Apply(t.Context(), conn)} {
				if err != nil {
					t.Error(err)
				}
			}
		})
	})
	t.Run("updated", func(t *testing.T) { t.Parallel(); expectUpdates(t, cluster.database(t, "updated")) })
	t.Run("dropped", func(t *testing.T) {
		t.Parallel()
		url := cluster.database(t, "dropped")
		runInTurn(t, url, `
			A create extension fencegate; create table kept (id integer); select fence.protect('kept', 'kept/{id}');
				select test.token('kept/1')  -- $before
			A drop extension fencegate  -- !2BP01 on table kept depends on function fence.check_truncate()
			A select fence.unprotect('kept'); drop extension fencegate; create extension fencegate;
				select fencing_token > $before from fence.acquire('kept/1', 'A')  -- t`)
	})
	t.Run("dumped", func(t *testing.T) {
		t.Parallel()
		expectDumped(t, cluster.database(t, "dumped"), cluster.database(t, "restored"))
	})
}

// runInTurn runs a script that makes the extension.
func runInTurn(t *testing.T, url, steps string) {
	t.Helper()
	exec(t, connect(t, url), `
		create schema test;
		create function test.token(lock text) returns bigint language plpgsql as $$
		begin
			return (select fencing_token from fence.acquire(lock, 'A'));
		end $$`)
	if err := (script{"extension", steps}).run(t.Context(), url, nil); err != nil {
		t.Error(err)
	}
}

func expectOwnedBy(t *testing.T, conn *pgx.Conn, role string) {
	t.Helper()
	var owners []string
	err := conn.QueryRow(t.Context(), `
		select array_agg(distinct o::regrole::text)
		from (select proowner from pg_proc where pronamespace = 'fence'::regnamespace
			union all select relowner from pg_class where relnamespace = 'fence'::regnamespace
			union all select nspowner from pg_namespace where nspname = 'fence') as owned (o)`).Scan(&owners)
	if err != nil || len(owners) != 1 || owners[0] != role {
		t.Errorf("the schema belongs to %v, want %s (%v)", owners, role, err)
	}
}

// expectUpdates checks that a gateway leaves an older version of the extension to "alter extension", which brings it up
// to date, with the functions of protected tables.
func expectUpdates(t *testing.T, url string) {
	t.Helper()
	conn := connect(t, url)
	exec(t, conn, fmt.Sprintf(`
		create extension fencegate version '%d.0';
		create table kept (id integer); select fence.protect('kept', 'kept/{id}');
		do $$ declare f text; begin
			foreach f in array array(select proname from pg_proc where proname ~ '^check_[0-9]+_') loop
				execute format('create or replace function fence.%%s() returns trigger language plpgsql '
					'as ''begin raise ''''of an older version''''; end''', f);
			end loop; end $$`, len(migrations.NumberedFiles())))
	expectUntouched(t, conn, func() {
		for _, err := range []error{migrations.Check(t.Context(), conn), migrations.Apply(t.Context(), conn)} {
			if !errors.Is(err, migrations.ErrNotMigrated) || !strings.Contains(err.Error(), "alter extension fencegate update") {
				t.Errorf("the error is %v, want ErrNotMigrated and what to do", err)
			}
		}
	})
	exec(t, conn, "alter extension fencegate update")
	if err := migrations.Check(t.Context(), conn); err != nil {
		t.Error(err)
	}
	expectOwnedBy(t, conn, "plain")
	if state := stateOf(t, conn, "insert into kept values (1)"); state != "LF101" {
		t.Errorf("after the update, a write without a token got SQLSTATE %q, want LF101", state)
	}
	exec(t, conn, "select fence.unprotect('kept')")
	expectGolden(t, conn)
}

// expectDumped checks that a dump keeps leases, tokens, fences and protected tables, and that tokens rise above all that
// were granted after it.
func expectDumped(t *testing.T, from, to string) {
	t.Helper()
	dump, restore := postgres.RequireDump(t, "psql")
	runInTurn(t, from, `
		A create extension fencegate; create table kept (id integer); select fence.protect('kept', 'kept/{id}');
			select fence.put_policy('other', 'same_token', 'builtin', false, false, null, null, false, 100, null);
			select fence.try_guard('kept/9', 1); select from fence.sweep_all(); select test.token('kept/1')  -- $t
		A begin; select fence.guard('kept/1', $t, 7); insert into kept values (1); commit`)
	source := connect(t, from)
	kept := func(conn *pgx.Conn) string {
		var rows string
		err := conn.QueryRow(t.Context(), `
			select format('%s %s %s %s', (select f from fence.fences f), (select l from fence.leases l),
				(select p from fence.policies p), (select p from fence.protected p))`).Scan(&rows)
		if err != nil {
			t.Error(err)
		}
		return rows
	}
	var text, complaints bytes.Buffer
	dumping := command(t, dump, "--dbname", from)
	dumping.Stdout, dumping.Stderr = &text, &complaints
	if err := dumping.Run(); err != nil {
		t.Fatalf("%v: %s", err, &complaints)
	}
	var later int64 // a grant that the dump lacks
	if err := source.QueryRow(t.Context(), "select test.token('kept/2')").Scan(&later); err != nil {
		t.Fatal(err)
	}
	restoring := command(t, restore, "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--quiet", "--dbname", to)
	restoring.Stdin = &text
	if output, err := restoring.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	restored := connect(t, to)
	exec(t, source, "delete from fence.fences where resource = 'kept/2'; delete from fence.leases where lock = 'kept/2'")
	if want, got := kept(source), kept(restored); got != want {
		t.Errorf("dumped were\n%s\nand restored\n%s", want, got)
	}
	after := script{"after", `
		A insert into kept values (2)  -- !LF101 kept/2
		A select fencing_token from fence.leases where lock = 'kept/1'  -- $t
		A begin; select fence.guard('kept/1', $t, 7)  -- !LF106
		A rollback; begin; select fence.guard('kept/1', $t, 8); delete from kept where id = 1; commit
		A select test.token('kept/2') > ` + fmt.Sprint(later) + `  -- t
		A select count(*) from fence.sweep_all() where more  -- 0
		A select fence.unprotect('kept')`}
	if err := after.run(t.Context(), to, nil); err != nil {
		t.Error(err)
	}
	expectGolden(t, restored)
	if err := migrations.Check(t.Context(), restored); err != nil {
		t.Error(err)
	}
}

// replacedScripts are about protected tables in whose place another one is written: its child, its parent, or a table that
// has taken its name. They are as protectScripts.
var replacedScripts = []script{
	{"a protected table that gets children, or becomes a partition", `
		A create table alone_2 (id integer); select fence.protect('alone_2', 'alone/{id}');
			create table heir () inherits (alone_2);
			select problem from fence.protected where table_name = 'alone_2'
			-- public.alone_2 inherits or is inherited from, so statements on the other table would not be checked: alter table public.heir no inherit public.alone_2; select fence.protect('public.alone_2', 'alone/{id}', 'enforce', 'guarded')
		A select fence.protect('alone_2', 'alone/{id}', 'observe'); select fence.protect('alone_2', 'alone/{id}');
			select test.cure('alone/{id}')  -- $cure
		A $cure; select problem is null from fence.protected where template = 'alone/{id}'  -- t
		A create table legacy (id integer, n integer); create table joined (id integer, n integer);
			insert into joined values (1, 1); select fence.protect('joined', 'joined/{id}');
			alter table joined inherit legacy  -- !0A000 "fencegate_unprotect_first" prevents table "joined"
		A create table joining (id integer, n integer) partition by list (id);
			alter table joining attach partition joined default  -- !0A000 "fencegate_unprotect_first" prevents
		A alter table joined disable trigger user; alter table joining attach partition joined default  -- !0A000
		A select fence.protect('joined', 'joined/{id}', inserts => 'free'); drop trigger fencegate_unprotect_first on joined;
			select problem from fence.protected where template = 'joined/{id}'
			-- trigger fencegate_unprotect_first on public.joined is missing
		A alter table joined inherit legacy; select fence.protect('joined', 'joined/{id}', 'observe');
			select fence.protect('joined', 'joined/{id}'); update joined set n = 2  -- !LF101 joined/1
		A select test.cure('joined/{id}')  -- $cure
		A $cure; select problem is null from fence.protected where template = 'joined/{id}'  -- t
		A drop trigger fencegate_unprotect_first on joined; alter table joined inherit legacy; select fence.unprotect('joined');
			alter table joined no inherit legacy; select fence.protect('joined', 'joined/{id}', inserts => 'free');
			drop trigger fencegate_unprotect_first on joined; alter table joining attach partition joined default;
			select problem from fence.protected where template = 'joined/{id}'
			-- public.joined is a partition of public.joining, which must be protected instead: select fence.protect('public.joining', 'joined/{id}', 'enforce', 'free'); select fence.unprotect('public.joined')
		A select fence.protect('joined', 'joined/{id}', 'observe'); update joined set n = 3;
			select fence.protect('joined', 'joined/{id}'); update joined set n = 4  -- !LF101 joined/1
		A select test.cure('joined/{id}')  -- $cure
		A $cure; update joining set n = 4  -- !LF101 joined/1
		A truncate joined  -- !LF107
		A select problem is null, inserts from fence.protected where template = 'joined/{id}'  -- t|free
		A select fence.unprotect('joining'); truncate joined; insert into joined values (1, 1);
			alter table joining detach partition joined; select fence.protect('joined', 'joined/{id}');
			drop trigger fencegate_unprotect_first on joined; alter table joining attach partition joined default;
			select fence.protect('joining', 'joining/{id}'); select fence.unprotect('joining');
			update joined set n = 4  -- !LF101 joined/1
		A truncate joined  -- !55000
		A select fence.protect('joining', 'joining/{id}'); select test.cure('joined/{id}')
			-- select fence.unprotect('public.joined')
		A select fence.unprotect('joined'); truncate joined  -- !LF107
		A update joined set n = 4  -- !LF101 joining/1
		A select problem is null from fence.protected where template = 'joining/{id}'  -- t`},
	{"the triggers of a protected table that inherits from another one since are made again", `
		A create table elders (id integer); create table heirs (id integer); insert into heirs values (1);
			select fence.protect('heirs', 'heirs/{id}'); drop trigger fencegate_unprotect_first on heirs;
			alter table heirs inherit elders
		A alter table heirs disable trigger fencegate_update; update heirs set id = 1; select fence.protect('heirs', 'heirs/{id}')
		A update heirs set id = 2  -- !LF101 heirs/1`},
	{"the name of a protected table that another table has", `
		A create table swapped (id integer primary key, n integer); insert into swapped values (1, 1);
			select fence.protect('swapped', 'swapped/{id}', inserts => 'free'); create table incoming (like swapped including all);
			insert into incoming table swapped
		A begin; alter table swapped rename to retired;
			select problem is null from fence.protected where template = 'swapped/{id}'  -- t
		A alter table incoming rename to swapped; commit;
			select problem from fence.protected where template = 'swapped/{id}'
			-- public.swapped is another table now, which is not protected: select fence.protect('public.swapped', 'swapped/{id}', 'enforce', 'free'); select fence.unprotect('public.retired')
		A select fence.protect('retired', 'swapped/{id}', 'observe'); select fence.protect('retired', 'swapped/{id}');
			update retired set n = 2  -- !LF101 swapped/1
		A select test.cure('swapped/{id}')  -- $cure
		A $cure; update swapped set n = 2  -- !LF101 swapped/1
		A update retired set n = 2; select count(*), count(problem) from fence.protected where template = 'swapped/{id}'  -- 1|0
		A create table incoming (like swapped including all); select fence.protect('incoming', 'swapped/{id}');
			alter table swapped rename to retired_2; alter table incoming rename to swapped;
			select count(*), count(problem) from fence.protected where template = 'swapped/{id}'  -- 2|0
		A select fence.unprotect('retired_2'); select fence.unprotect('swapped'); create schema "Ar.chive";
			create schema "Ne""w"; create table "Ne""w"."Or.ders" (id integer);
			create table "Ar.chive"."Or.ders" (id integer); select fence.protect('"Ar.chive"."Or.ders"', 'Or/{id}', 'observe');
			alter schema "Ar.chive" rename to older;
			select problem is null from fence.protected where template = 'Or/{id}'  -- t
		A alter schema "Ne""w" rename to "Ar.chive"; select problem from fence.protected where template = 'Or/{id}'
			-- "Ar.chive"."Or.ders" is another table now, which is not protected: select fence.protect('"Ar.chive"."Or.ders"', 'Or/{id}', 'observe', 'guarded'); select fence.unprotect('older."Or.ders"')
		A select fence.unprotect('older."Or.ders"'); select fence.protect('older."Or.ders"', 'Or/{id}');
			select problem is null from fence.protected where template = 'Or/{id}'  -- t
		A create table recreated (id integer); select fence.protect('recreated', 'recreated/{id}');
			select 'recreated'::regclass::oid  -- $oid
		A drop table recreated; create table restored (id integer); alter table restored rename to recreated;
			select problem from fence.protected where template = 'recreated/{id}'
			-- public.recreated is another table now, which is not protected: select fence.protect('public.recreated', 'recreated/{id}', 'enforce', 'guarded'); select fence.unprotect('$oid')
		A select fence.protect($oid::regclass, 'recreated/{id}', 'observe')  -- !42809 there is no such table
		A select test.cure('recreated/{id}')  -- $cure
		A $cure; insert into recreated values (1)  -- !LF101 recreated/1
		A select count(*), count(problem) from fence.protected where template = 'recreated/{id}'  -- 1|0
		A alter table recreated rename to recreated_2; create table recreated (id integer) partition by list (id);
			create table leaf partition of recreated default; alter table recreated rename to trunk;
			alter table leaf rename to recreated; select test.cure('recreated/{id}')
			-- select fence.protect('public.trunk', 'recreated/{id}', 'enforce', 'guarded'); select fence.unprotect('public.recreated_2')
		A select fence.protect('public.trunk', 'recreated/{id}'); insert into recreated values (1)  -- !LF101 recreated/1
		A select count(*), count(problem) from fence.protected where template = 'recreated/{id}'  -- 2|0
		A create table viewed (id integer); select fence.protect('viewed', 'viewed/{id}');
			alter table viewed rename to viewed_2; create view viewed as select * from viewed_2;
			select problem is null from fence.protected where template = 'viewed/{id}'  -- t
		A create table looked_at (id integer); create or replace view viewed as select * from looked_at;
			select problem from fence.protected where template = 'viewed/{id}'
			-- public.viewed is another table now, which is not protected: select fence.unprotect('public.viewed_2')`},
}
