package migrations_test

import (
	"bytes"
	"errors"
	"fmt"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

// preparedScripts need max_prepared_transactions.
var preparedScripts = []script{
	{"P3: a grant waits for a prepared transaction", `
		A create table prepared (id integer); select fence.protect('prepared', 'prepared/{id}');
			select test.grant('prepared/1')  -- $t
		A begin; select fence.guard('prepared/1', $t, 1); insert into prepared values (1); prepare transaction 'one'
		A insert into prepared values (1)  -- !LF101
		B select test.grant('prepared/1')  -- waits
		A commit prepared 'one'
		B ...  -- $new
		A select count(*) from prepared  -- 1
		A begin; select fence.guard('prepared/1', $new, 1); insert into prepared values (1); prepare transaction 'two'
		A rollback prepared 'two'; begin; select fence.guard('prepared/1', $new, 1);
			insert into prepared values (1); commit`},
}

// TestPreparedAndReplicated needs a cluster with settings of its own.
func TestPreparedAndReplicated(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t, postgres.Setting("max_prepared_transactions", "4"),
		postgres.Setting("wal_level", "logical"), postgres.Setting("wal_retrieve_retry_interval", "20ms"),
		postgres.Setting("fsync", "off"))
	publisher := connect(t, cluster.URL())
	exec(t, publisher, "create database subscriber")
	url := cluster.DatabaseURL("subscriber")
	subscriber := connect(t, url)
	if err := migrations.Apply(t.Context(), subscriber); err != nil {
		t.Fatal(err)
	}
	exec(t, subscriber, scriptFunctions)
	t.Run("prepared", func(t *testing.T) { runScripts(t, url, nil, preparedScripts) })
	t.Run("replicated", func(t *testing.T) { expectAppliedRowsChecked(t, publisher, subscriber) })
}

// expectAppliedRowsChecked checks that rows that the apply worker of a subscription writes are checked like others.
func expectAppliedRowsChecked(t *testing.T, publisher, subscriber *pgx.Conn) {
	for _, conn := range []*pgx.Conn{publisher, subscriber} {
		exec(t, conn, `create table applied (id integer primary key, n integer);
			create table parts (id integer primary key) partition by list (id);
			create table part partition of parts default`)
	}
	exec(t, publisher, "create publication changes for table applied, parts")
	exec(t, publisher, "select pg_create_logical_replication_slot('changes', 'pgoutput')")
	exec(t, subscriber, `
		select fence.protect('applied', 'applied/{id}', 'observe'), fence.protect('parts', 'parts/{id}', 'observe')`)
	exec(t, subscriber, fmt.Sprintf(`
		create subscription changes connection '%s' publication changes
		with (create_slot = false, slot_name = 'changes', copy_data = false)`,
		publisher.Config().ConnString()))

	exec(t, publisher, "insert into applied values (1, 1), (2, 2); insert into parts values (1)")
	exec(t, publisher, "update applied set n = 3 where id = 1; delete from applied where id = 2")
	awaitValue(t, subscriber, "select string_agg(n::text, ' ') from applied", "3")
	awaitValue(t, subscriber, `
		select string_agg(distinct resource, ' ') || ' ' || count(*) from fence.reported`, "applied/1 applied/2 parts/1 5")

	exec(t, subscriber, "select fence.protect('applied', 'applied/{id}')")
	exec(t, publisher, "insert into applied values (5, 5)")
	awaitValue(t, subscriber, "select least(apply_error_count, 2)::text from pg_stat_subscription_stats", "2")
	awaitValue(t, subscriber, "select count(*)::text from applied where id = 5", "0")
	exec(t, subscriber, "select fence.unprotect('applied')")
	awaitValue(t, subscriber, "select count(*)::text from applied where id = 5", "1")
	exec(t, subscriber, "drop subscription changes")
}

// TestStandby checks that what applications call says on a standby that it needs the primary.
func TestStandby(t *testing.T) {
	t.Parallel()
	primary := postgres.NewCluster(t)
	conn := connect(t, primary.URL())
	if err := migrations.Apply(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	acquire(t, conn, "here")
	standby := primary.Standby()
	standby.CatchUp()
	conn = connect(t, standby.URL())
	for _, call := range []string{
		"fence.guard('here', 1, 1)", "fence.guard('here', 1, 1, null, 'digest')", "fence.guard('nowhere', 1)",
		"fence.try_guard('here', 1)", "fence.acquire('here', 'a')", "fence.renew('here', 'a', gen_random_uuid(), 1)",
		"fence.release('here', 'a', gen_random_uuid(), 1)",
	} {
		_, err := conn.Exec(t.Context(), "select "+call)
		failed, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || failed.Code != "25006" || !strings.Contains(failed.Message, "this server is a standby") ||
			!strings.Contains(failed.Hint, "primary") {
			t.Errorf("%s on a standby: %v, want 25006 and the advice", call, err)
		}
	}
}

// awaitValue waits until a query returns the text.
func awaitValue(t *testing.T, conn *pgx.Conn, sql, want string) {
	t.Helper()
	await.True(t, fmt.Sprintf("%s is %q", sql, want), func() bool {
		var got *string
		if err := conn.QueryRow(t.Context(), sql).Scan(&got); err != nil {
			t.Fatal(err)
		}
		return got != nil && *got == want
	})
}

// TestDump checks that a restored dump protects its tables, and that the admissions in it admit nothing.
func TestDump(t *testing.T) {
	t.Parallel()
	dump, restore := postgres.RequireDump(t, "psql")
	from, to := scripted(t, ""), postgres.Empty(t)
	before := script{"before", `
		A create table dumped (id integer primary key); create table parts (id integer) partition by list (id);
			create table part partition of parts for values in (1, 2); create table dropped (id integer)
		A select fence.protect('dumped', 'dumped/{id}'); select fence.protect('parts', 'parts/{id}', 'observe');
			select fence.protect('dropped', 'dropped'); drop table dropped; select test.grant('dumped/1')  -- $t
		A begin; select fence.guard('dumped/1', $t, 1); insert into dumped values (1);
			insert into parts values (1); commit`}
	if err := before.run(t.Context(), from, nil); err != nil {
		t.Fatal(err)
	}
	restoring := command(t, restore, "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--quiet", "--dbname", to)
	restoring.Stdin = dumped(t, dump, "--dbname", from)
	if output, err := restoring.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	after := script{"after", `
		A select string_agg(concat_ws(' ', table_name, template, mode, problem), ',
			' order by template) from fence.protected where template <> 'dropped'
			-- dumped dumped/{id} enforce, parts parts/{id} observe
		A insert into dumped values (2)  -- !LF101
		A delete from dumped  -- !LF101 dumped/1
		A set session_replication_role = replica; delete from dumped  -- !LF101 dumped/1
		A reset session_replication_role; insert into part values (2);
			select count(*) from fence.reported where resource = 'parts/2'  -- 1
		A truncate part; select fence.protect('parts', 'parts/{id}');
			select fence.protect('dumped', 'dumped/{id}'); select count(*) from fence.protected_tables  -- 3
		A create table dropped (id integer); select fence.protect('dropped', 'dropped');
			select count(*) from fence.protected_tables  -- 3
		A truncate part  -- !LF107
		A select test.grant('dumped/1')  -- $t
		A begin; select fence.guard('dumped/1', $t, 1); delete from dumped; commit`}
	if err := after.run(t.Context(), to, nil); err != nil {
		t.Error(err)
	}
}

// dumped returns what pg_dump writes.
func dumped(t *testing.T, dump string, arguments ...string) *bytes.Buffer {
	t.Helper()
	var text, complaints bytes.Buffer
	dumping := command(t, dump, arguments...)
	dumping.Stdout, dumping.Stderr = &text, &complaints
	if err := dumping.Run(); err != nil {
		t.Fatalf("%v: %s", err, &complaints)
	}
	return &text
}

// TestDumpOfTables checks what becomes of a dump of protected tables without the schema fence. A restore that stops at
// errors restores nothing, unless other tables have protected it: and what is restored is shown as a problem.
func TestDumpOfTables(t *testing.T) {
	t.Parallel()
	dump, restore := postgres.RequireDump(t, "psql")
	from := scripted(t, "create table first (id integer); select fence.protect('first', 'first/{id}')")
	restored := func(t *testing.T, to string, options ...string) string {
		restoring := command(t, restore, append(options, "--no-psqlrc", "--quiet", "--dbname", to)...)
		restoring.Stdin = dumped(t, dump, "--dbname", from, "--table", "first")
		output, err := restoring.CombinedOutput()
		return fmt.Sprintf("%s%v", output, err)
	}
	strict := []string{"--single-transaction", "--set", "ON_ERROR_STOP=1"}
	const shown = `
		A select problem from fence.protected where table_name = 'first' and mode is null
			-- first has triggers of a protected table, but is not protected, as after a restore without the schema fence or a detach: call fence.protect or fence.unprotect
		A select fence.check_tables(); select tables_with_problems from fence.inventory  -- 1
		A select fence.protect('first', 'first/{id}'); insert into first values (1)  -- !LF101 first/1
		A select count(*), count(problem) from fence.protected where table_name = 'first'  -- 1|0
		A select fence.check_tables(); select tables_with_problems from fence.inventory  -- 0`
	for _, c := range []struct {
		name, to, complaint string
		script
	}{
		{"without fencegate", postgres.Empty(t), `schema "fence" does not exist`, script{}},
		{"into another fencegate", scripted(t, ""), "function fence.check_1_delete() does not exist", script{steps: shown}},
		{"among other tables", scripted(t, "create table other (n integer); select fence.protect('other', 'other/{n}')"), "",
			script{steps: shown}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, c.to)
			if c.complaint != "" {
				if output := restored(t, c.to, strict...); !strings.Contains(output, c.complaint) {
					t.Errorf("the restore in a transaction ended with %s, want %s", output, c.complaint)
				}
				if stateOf(t, conn, "select 'first'::regclass") != "42P01" {
					t.Error("the restore in a transaction has restored the table")
				}
			}
			if output := restored(t, c.to); !strings.HasSuffix(output, "<nil>") || !strings.Contains(output, c.complaint) {
				t.Errorf("the restore ended with %s, want success and %s", output, c.complaint)
			}
			if c.steps == "" {
				exec(t, conn, "insert into first values (1)")
				return
			}
			if err := c.run(t.Context(), c.to, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func command(t *testing.T, program string, arguments ...string) *osexec.Cmd {
	t.Helper()
	return osexec.CommandContext(await.Context(t), program, arguments...)
}

// scenarios are of grants, writes and ends that come at the same time. Each runs in a database of its own.
var scenarios = []script{
	{"a policy demands a live lease, by the clock after the wait for the fence", `
		A select test.policy('x', p_live => true); select test.acquire('x', 'A')  -- $a
		A begin; select test.write('x $a.1 one')  -- admitted 1 created
		B select test.expire('x')
		A select test.write('x $a.2 two')  -- lease_expired $a $a.1
		A commit; select test.record('x')  -- one 1 $a.1
		A select test.fence('x')  -- open $a $a.1
		A select test.release('x', $a)  -- released
		A select test.acquire('x', 'A')  -- $b
		A begin; select test.write('x $b.1 three')  -- admitted 2
		B select test.write('x $b.2 four')  -- waits for A
		C select test.expire('x')
		A commit
		B ...  -- lease_expired $b $b.1
		A select test.record('x')  -- three 2 $b.1`},
	// D guesses the token of the first grant on y. A write that would be admitted under a fence that the set has not locked
	// has the whole set begun anew.
	{"a set of writes waits for one fence, and another one is made meanwhile", `
		A select test.acquire('x', 'A')  -- $a
		A begin; select test.write('x $a.1 by-A')  -- admitted 1 created
		D select test.write('x $a.2 by-D if -1', format('y %s.1 by-D', $a + 1))  -- waits for A
		B select test.acquire('y', 'B')  -- $b
		B select $b - $a  -- 1
		B select test.expire('y')
		C begin; select test.acquire('y', 'C')  -- $c
		A commit
		D ...  -- !40001 a fence was granted while the write waited
		D select test.write('x $a.2 by-D if -1', 'y $b.1 by-D')  -- waits for C
		C commit
		D ...  -- admitted 2, token_stale superseded $c 0.0
		A select test.record('y')  -- none
		A select test.fence('y')  -- open $c 0.0`},
	{"a set of writes waits for one fence, and another service's token makes another one meanwhile", `
		A select test.acquire('x', 'A')  -- $a
		A begin; select test.write('x $a.3 by-A')  -- admitted 1 created
		D select test.write('x $a.4 by-D if -1', 'y 7 by-7')  -- waits for A
		B select test.policy('y', 'external'); select test.write('y 5 by-5')  -- admitted 1 created
		C begin; select test.write('y 9 by-9')  -- admitted 2
		A commit
		D ...  -- !40001 a fence was granted while the write waited
		D select test.write('x $a.4 by-D if -1', 'y 7 by-7')  -- waits for C
		C commit
		D ...  -- admitted 2, token_stale superseded 0 9.0
		A select test.record('y')  -- by-9 2 9
		A select test.fence('y')  -- closed 0 9.0
		D select test.write('y 7 by-7')  -- token_stale superseded 0 9.0`},
	{"two ask at once for a name that was never used", `
		A begin; select test.acquire('x', 'A')  -- $a
		B select test.acquire('x', 'B')  -- waits for A
		C select test.acquire('x', 'C')  -- waits for A
		A commit
		B ...  -- held by A
		C ...  -- held by A
		A select test.leases('x')  -- A $a live
		A begin; select test.acquire('y', 'A')
		B select test.acquire('y', 'B')  -- waits for A
		A rollback
		B ...  -- $b
		A select test.leases('y')  -- B $b live
		A select test.fence('y')  -- open $b 0.0`},
}

// onCopies are scripts of copies by logical replication, in each of which another call comes first. All numbers that the
// calls draw are new there.
func onCopies() (scripts []script) {
	for _, first := range []string{
		"select fence.protect('copied', 'copied/{id}', 'enforce')",
		"select fence.unprotect('copied')",
		"create table more (id integer); select fence.protect('more', 'more/{id}')",
		"select test.policy('p')",
		"select fence.try_guard('x', 1)",
		"insert into copied values (3)",
		"select outcome from fence.break('x', 'ordered')",
		"select test.acquire('z', 'C')",
		"select fence.begin_watch(array['x'], 60000); select test.release('x', $a)",
		"select fence.accept_database()",
		"select count(*) from fence.sweep_all()",
	} {
		scripts = append(scripts, script{"a copy by logical replication, and first " + first, `
			A create table copied (id integer); select fence.protect('copied', 'copied/{id}', 'observe');
				select test.acquire('x', 'A')  -- $a
			A select fence.begin_watch(array['x', 'y'], 60000), test.acquire('y', 'B'); select fence.try_guard('x', 1);
				insert into copied values (1), (2)
			A select test.copy(); select count(*) > 2 from fence.sequences_behind()  -- t
			A ` + first + `
			A select test.acquire('late', 'C')::bigint > $a + (1::bigint << 32), fence.note_jump()  -- t|
			A select count(*) from fence.sweep_all();
				select count(*) from fence.sequences_behind()  -- 0`})
	}
	return scripts
}

// apartScripts need a database of their own.
func apartScripts() []script {
	return slices.Concat(onCopies(), scenarios, accessScripts, sessionScripts, rowsScripts)
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, s := range apartScripts() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if err := s.run(t.Context(), scripted(t, ""), nil); err != nil {
				t.Error(err)
			}
		})
	}
}
