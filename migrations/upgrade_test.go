package migrations_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencegate/fencegate/migrations"
)

// TestUpgradeOfProtectedTables checks that a migration replaces the trigger functions of protected tables, and leaves
// those of a table alone whose template does not fit any more: these pass no mode.
func TestUpgradeOfProtectedTables(t *testing.T) {
	t.Parallel()
	url := scripted(t, `
		create table kept (id integer); select fence.protect('kept', 'kept/{id}');
		create table parted (id integer) partition by list (id); select fence.protect('parted', 'parted/{id}');
		create table renamed (id integer); select fence.protect('renamed', 'renamed/{id}');
		alter table renamed rename id to other;
		create table typed (id integer); select fence.protect('typed', 'typed/{id}', 'observe');
		alter table typed alter id type date using null;
		drop function fence.check_rows; create function fence.check_rows(oid, text[]) returns void language sql as '';
		create table gone (id integer); select fence.protect('gone', 'gone/{id}'); drop table gone;
		do $$ declare f text; begin
			foreach f in array array(select proname from pg_proc where proname ~ '^check_[0-9]+_(insert|row)$') loop
				execute format('create or replace function fence.%s() returns trigger language plpgsql '
					'as ''begin perform fence.check_rows(tg_relid, array[null]); return null; end''', f);
			end loop; end $$;
		insert into kept values (1);
		update fence.guard_revision set revision = revision - 1`)
	if err := migrations.Apply(t.Context(), connect(t, url)); err != nil {
		t.Fatal(err)
	}
	runScripts(t, url, nil, []script{{"after", `
		A select problem is null from fence.protected where template = 'kept/{id}'  -- t
		A select problem is null from fence.protected where template = 'parted/{id}'  -- t
		A select problem from fence.protected where template = 'renamed/{id}'
			-- the table public.renamed has no column 'id'
		A insert into kept values (2)  -- !LF101 kept/2
		A select test.grant('kept/2')  -- $t
		A begin; select fence.guard('kept/2', $t); insert into kept values (2); commit
		A insert into renamed values (2)  -- !55000 another type
		A insert into typed values (null)
		A select count(*) from pg_proc where pronamespace = 'fence'::regnamespace and proname = 'check_rows'  -- 1`}})
}

// TestUpgradeBesideOpenTransactions checks that a migration neither waits for an open transaction that has written to a
// protected table, nor makes others wait. And that it does not wait long for an open fence.protect: it returns ErrLocked
// or, if that ends in time, tries again.
func TestUpgradeBesideOpenTransactions(t *testing.T) {
	t.Parallel()
	url := scripted(t, "create table written (id integer); select fence.protect('written', 'written/{id}')")
	writer, protector, conn := connect(t, url), connect(t, url), connect(t, url)
	exec(t, writer, "begin; select fence.guard('written/1', test.grant('written/1')); insert into written values (1)")
	older := func() { exec(t, conn, "update fence.guard_revision set revision = revision - 1") }
	older()
	if err := migrations.ApplyWithin(t.Context(), conn, 5*time.Second, 1); err != nil {
		t.Error(err)
	}

	older()
	exec(t, protector, "begin; create table open (id integer); select fence.protect('open', 'open/{id}')")
	if err := migrations.ApplyWithin(t.Context(), conn, time.Millisecond, 2); !errors.Is(err, migrations.ErrLocked) {
		t.Errorf("beside an open fence.protect, Apply returned %v, want ErrLocked", err)
	}
	applied := make(chan error, 1)
	go func() { applied <- migrations.ApplyWithin(t.Context(), conn, time.Second/10, 100) }()
	awaitBlocked(t, connect(t, url), applied)
	exec(t, protector, "commit")
	if err := <-applied; err != nil {
		t.Errorf("after the end of fence.protect, Apply returned %v", err)
	}
	exec(t, writer, "commit")
	if err := migrations.Check(t.Context(), conn); err != nil {
		t.Error(err)
	}
}
