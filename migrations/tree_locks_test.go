package migrations_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

// treeLockScripts are about tree locks that a transaction holds while it stays open.
var treeLockScripts = []script{
	// Its fence and its first waiter came after the release had looked for the fence.
	{"a release finds the first waiter of a lock, and no fence", `
		A insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at) values
			('new/waiter', gen_random_uuid(), 'A', 'exclusive', 'node', 1000, clock_timestamp(), 'infinity')
		A select status, outcome from fence.release_lease('new/waiter', 'B', gen_random_uuid(), 1, null, true)  -- not_found|
		A delete from fence.waiters where lock = 'new/waiter'`},
	{"a subtree request that waits for an open transaction delays no request below", `
		A select test.grant('delay/held')  -- $t
		A begin; select status from fence.acquire('delay/open', 'owner')  -- granted
		B set lock_timeout = '1min'; select status from fence.acquire('delay', 'owner', scope => 'subtree')  -- waits
		C set lock_timeout = '5s'; select test.release('delay/held', $t)  -- released
		C select status from fence.acquire('delay/other', 'owner')  -- granted
		A commit
		B ...  -- held`},
	{"a subtree request that waits for a late holder's open transaction delays no request below", `
		A select test.grant('late/x')  -- $t
		A select test.expire('late/x'); begin; select fence.guard('late/x', $t, 1)  -- t
		B set lock_timeout = '1min'; select status from fence.acquire('late', 'owner', scope => 'subtree')  -- waits
		C set lock_timeout = '5s'; select status from fence.acquire('late/other', 'owner')  -- granted
		A commit
		B ...  -- held`},
	{"a break that waits for the holder's open transaction delays no request below", `
		A select test.grant('broken', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('broken/x', $t, 1)  -- t
		B set lock_timeout = '1min'; select outcome from fence.break('broken', 'note')  -- waits
		C set lock_timeout = '5s'; select status from fence.acquire('broken/other', 'owner')  -- held
		A commit
		B ...  -- broken`},
	{"a release that waits for the holder's open transaction delays no request below", `
		A select test.grant('ended', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('ended/x', $t, 1)  -- t
		B set lock_timeout = '1min'; select test.release('ended', $t)  -- waits
		C set lock_timeout = '5s'; select status from fence.acquire('ended/other', 'owner')  -- held
		A commit
		B ...  -- released`},
	{"a subtree request waits for an open transaction no longer than lock_timeout", `
		A begin; select status from fence.acquire('bound/open', 'owner')  -- granted
		B set lock_timeout = '100ms'; select status from fence.acquire('bound', 'owner', scope => 'subtree')  -- !55P03
		B select current_setting('lock_timeout')  -- 100ms
		A commit
		B select status from fence.acquire('bound', 'owner', scope => 'subtree')  -- held`},
	{"a transaction takes 64 tree locks", `
		A begin; select count(*) from generate_series(1, 100) n,
			fence.acquire('gates/' || n, 'owner') where status = 'granted'  -- 100
		A select count(*) from generate_series(1, 100) n,
			fence.acquire('ungated-' || n, 'owner') where status = 'granted'  -- 100
		A select fence.acquire('gates-' || n || '/x', 'owner') from generate_series(1, 63) n
		A savepoint s; select fence.acquire('gates-64/x', 'owner')  -- !54000 several transactions
		A rollback to s; select status from fence.acquire('ungated-101', 'owner')  -- granted
		A commit
		A select status from fence.acquire('gates-64/x', 'owner')  -- granted`},
}

// nestedScripts are about transactions with the token of a lease that has expired, while a subtree lease is granted above
// or below. The transaction's resource is in the subtree.
var nestedScripts = []script{
	{"a grant of a subtree below waits for a transaction with the older token, which goes on", `
		A select test.grant('goes-on', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('goes-on/x', $t, 1)  -- t
		B select test.grant('goes-on/n', 'exclusive', 'subtree')  -- waits
		A select fence.guard('goes-on/n', $t, 1)  -- t
		A commit
		B ...`},
	{"a grant of a subtree above waits for a transaction with the older token, which goes on", `
		A select test.grant('goes-on-above/n', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('goes-on-above/n/x', $t, 1)  -- t
		B select test.grant('goes-on-above', 'exclusive', 'subtree')  -- waits
		A select fence.guard('goes-on-above/n', $t, 1)  -- t
		A commit
		B ...`},
	{"a grant of a subtree closes the fence of a late holder below", `
		A select test.grant('closes/x')  -- $t
		A select test.grant('closes', 'exclusive', 'subtree')  -- $new
		A select fence.guard('closes/x', $t, 1)  -- !LF103 "granted_token":$new`},
	olderSnapshot("repeatable read", "below", "nest/m", "nest/m/n"),
	olderSnapshot("serializable", "below", "nest-s/m", "nest-s/m/n"),
	olderSnapshot("repeatable read", "above", "nested/m/n", "nested/m"),
	olderSnapshot("serializable", "above", "nested-s/m/n", "nested-s/m"),
}

// olderSnapshot is about snapshots that were taken before the newer grant. The fence of one resource has adopted the older
// token; the other has no fence yet.
func olderSnapshot(level, direction, older, newer string) script {
	return script{level + ": a grant of a subtree " + direction + " since the snapshot is 40001",
		strings.NewReplacer("LEVEL", level, "OLDER", older, "NEWER", newer).Replace(`
		A select test.grant('OLDER', 'exclusive', 'subtree')  -- $t
		A select fence.guard('OLDER/n/x', $t, 1)  -- t
		A begin isolation level LEVEL; select 1
		C begin isolation level LEVEL; select 1
		B select test.grant('NEWER', 'exclusive', 'subtree')  -- $new
		A select fence.guard('OLDER/n/x', $t, 2)  -- !40001
		C select fence.guard('OLDER/n/y', $t, 2)  -- !40001
		C rollback
		A rollback; select fence.guard('OLDER/n/x', $t, 2)  -- !LF103 "granted_token":$new`)}
}

func TestTreeLocks(t *testing.T) {
	t.Parallel()
	runScripts(t, scripted(t, ""), nil, slices.Concat(treeLockScripts, orderScripts))
}

// TestSubtreeRequestDoesNotStarve checks that a subtree request gets its tree lock, although at every moment some
// transaction below holds it.
func TestSubtreeRequestDoesNotStarve(t *testing.T) {
	t.Parallel()
	url := scripted(t, "")
	ctx := await.Context(t)
	done := make(chan struct{})
	var below errgroup.Group
	for i := range 6 {
		conn := connect(t, url)
		below.Go(func() error {
			for {
				select {
				case <-done:
					return nil
				default:
				}
				_, err := conn.Exec(ctx, fmt.Sprintf("begin; select fence.take_tree_lock('busy/%d', 'node'), pg_sleep(0.003); commit", i),
					pgx.QueryExecModeSimpleProtocol)
				if err != nil {
					return err
				}
			}
		})
	}
	conn := connect(t, url)
	for range 5 {
		if _, err := conn.Exec(ctx, "select fence.take_tree_lock('busy', 'subtree')"); err != nil {
			t.Error(err)
		}
	}
	close(done)
	if err := below.Wait(); err != nil {
		t.Error(err)
	}
}

// TestLocksOfAGuardedWrite checks that a guarded write locks at most 16 relations and indexes: so many locks of a
// transaction need no place in the lock table that all sessions share, before PostgreSQL 18.
func TestLocksOfAGuardedWrite(t *testing.T) {
	t.Parallel()
	url := scripted(t, `
		create table accounts (id integer primary key, balance bigint);
		insert into accounts values (1, 1);
		select fence.protect('accounts', 'accounts/{id}')`)
	for name, begin := range map[string]string{
		"fence.guard":     "select fence.guard('accounts/1', $t, 1)",
		"fence.set_token": "select fence.set_token($t, 1)",
	} {
		write := script{name, `
			A select test.grant('accounts/1')  -- $t
			A begin; ` + begin + `; update accounts set balance = 3 where id = 1
			A select count(*) <= 16 from pg_locks where pid = pg_backend_pid()  -- t`}
		if err := write.run(t.Context(), url, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// planned makes tables that the planner scans as a whole if it may choose: a few rows, of which it knows. The tables of
// the application are not analyzed, so that it uses their indexes.
//
// test.scanned returns the tables and indexes of fencegate that this transaction scanned or locked as a whole. A
// serializable transaction locks a table as a whole where it scans it, or finds no row in it. That is harmless for a
// table that has no rows, because only gateways insert the first, under READ COMMITTED.
const planned = `
	create table planned (id integer primary key, n integer default 0);
	create table watched (like planned including all);
	create table leaves (like planned including all);
	create table parted (like planned including all) partition by range (id);
	create table parted_all partition of parted default;
	insert into planned select generate_series(1, 8);
	insert into watched select generate_series(1, 8);
	insert into parted select generate_series(1, 8);
	select fence.protect('planned', 'planned/{id}');
	select fence.protect('watched', 'planned/{id}', 'observe');
	select fence.protect('parted', 'planned/{id}');
	select fence.protect('leaves', 'tree/{id}');
	select test.grant('planned/' || (i - 1)) from generate_series(1, 9) i;
	create function test.scanned() returns text language sql as $$
		select coalesce(string_agg(distinct c.oid::regclass::text, ' '), 'none')
		from pg_class c
		where c.relnamespace = 'fence'::regnamespace and c.relkind in ('r', 'i') and c.relname <> 'database_identity' and (
			exists (select from pg_stat_xact_user_tables t where t.relid = c.oid and t.seq_scan > 0)
			or c.reltuples <> 0 and exists (
				select from pg_locks l
				where l.pid = pg_backend_pid() and l.relation = c.oid and l.locktype = 'relation'
					and l.mode = 'SIReadLock')) $$;`

// plannedRules make policies and subtree leases.
const plannedRules = `
	insert into fence.policies (prefix, rule, require_live_lease, require_lease_id, max_hold_ms, authority) values
		('planned/2', 'same_token', false, false, null, 'builtin'), ('planned/3', 'strict', true, true, 60000, 'builtin'),
		('outside', 'strict', false, false, null, 'external');
	select test.grant('planned/3'), test.grant('tree', 'exclusive', 'subtree'),
		test.grant('above', 'exclusive', 'subtree'),
		test.grant('above/below', 'exclusive', 'subtree');`

// A way is how a transaction of an application comes to statements of fencegate, under a lease on a lock.
type way struct{ lock, steps string }

var ways = []way{
	{"planned/1", "select fence.guard('planned/1', $t, 1); update planned set n = 1 where id = 1"},
	{"planned/1", "select fence.guard('planned/1', $t, 1, '$l')"},
	{"planned/1", `select fence.guard('planned/1', $t, 1, null, '\x01')`},
	{"planned/1", "select fence.try_guard('planned/1', $t, 1)"},
	{"planned/1", "select fence.try_guard('planned/1', $t - 1)"},
	{"planned/1", "select fence.try_guard('planned/1', $t, 1, gen_random_uuid())"},
	{"planned/1", "select fence.try_guard('planned/1', 9007199254740991), fence.try_guard('nowhere', 9007199254740991)"},
	{"planned/1", `select fence.guard('planned/1', $t, 1); update planned set n = 2 where id = 1;
		delete from planned where id = 1; insert into planned values (1)`},
	{"planned/1", `select fence.guard('planned/1', $t, 1); update parted set n = 2 where id = 1;
		delete from parted where id = 1; insert into parted values (1)`},
	{"planned/1", "update watched set n = 1 where id = 1"},
	{"planned/1", "select fence.set_token($t, 1); update planned set n = 1 where id = 1"},
	{"planned/1", `select fence.set_token($t, 1, 'planned/1');
		update planned set n = 1 where id = 1`},
	{"planned/1", `select fence.set_token($t, 1, null, '$l');
		update planned set n = 1 where id = 1`},
}

var ruledWays = []way{
	{"planned/2", "select fence.guard('planned/2', $t)"},
	{"planned/3", "select fence.guard('planned/3', $t, 1, '$l')"},
	{"planned/3", "select fence.try_guard('planned/3', $t, 1)"},
	{"planned/3", "select fence.guard('outside/1', 7), fence.try_guard('outside/1', 6)"},
	{"tree", "select fence.guard('tree/a/b', $t, 1), fence.try_guard('tree/a/b', $t - 1)"},
	{"tree", "select fence.guard('tree', $t, 1); insert into leaves values (1), (2)"},
	{"above/below", "select fence.guard('above/below/c', $t, 1)"},
}

// apart are two serializable transactions that guard and write different resources: neither makes the other fail. (A
// conflict needs both to have read before the first commit.)
const apart = `
	A select granted_token from fence.fences where resource = 'planned/7'  -- $a
	A select granted_token from fence.fences where resource = 'planned/8'  -- $b
	A begin isolation level serializable; select fence.guard('planned/7', $a); update planned set n = 1 where id = 7
	B begin isolation level serializable; select fence.guard('planned/8', $b); update planned set n = 1 where id = 8
	A commit
	B commit`

// TestApplicationsScanNoTable checks that nothing that an application calls reads a whole table of fencegate, however
// small the table is: it would fail other serializable transactions (40001), and stay slow in a session that keeps its
// plans while the table grows. Each runs in a new session, so it is planned anew.
func TestApplicationsScanNoTable(t *testing.T) {
	t.Parallel()
	url := scripted(t, planned)
	const analyze = "vacuum analyze fence.fences, fence.leases, fence.policies"
	run := func(name, steps string) {
		if err := (script{name, steps}).run(t.Context(), url, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	expectNoScan := func(w way) {
		run(w.steps, strings.NewReplacer("LOCK", w.lock, "STEPS", w.steps).Replace(`
			A select fencing_token from fence.leases where lock = 'LOCK' and ended_at is null  -- $t
			A select test.lease('LOCK', $t)  -- $l
			B begin isolation level serializable; STEPS; select test.scanned()  -- none`))
	}
	exec(t, connect(t, url), analyze)
	run("apart", apart)
	for _, w := range ways {
		expectNoScan(w)
	}
	exec(t, connect(t, url), plannedRules)
	exec(t, connect(t, url), analyze)
	for _, w := range append(ways, ruledWays...) {
		expectNoScan(w)
	}
	for i, scope := range []string{"node", "subtree"} {
		run(scope, fmt.Sprintf(`
			A begin; select lease_id from fence.acquire('leased/%[1]d', 'o', scope => '%[2]s')  -- $l
			A select test.scanned()  -- none
			A commit
			B select granted_token from fence.fences where resource = 'leased/%[1]d'  -- $t
			A begin; select fence.renew('leased/%[1]d', 'o', '$l', $t); select test.scanned()  -- none
			A select fence.release('leased/%[1]d', 'o', '$l', $t); select test.scanned()  -- none`, i, scope))
	}
}

// TestSegments checks the segment of each value, that it is valid in a name, and that the triggers compute the same.
func TestSegments(t *testing.T) {
	t.Parallel()
	conn := connect(t, scripted(t, ""))
	exec(t, conn, `
		create domain code as varchar; create domain shortcode as code check (length(value) < 1000);
		create table texts (a text, b varchar(600), c shortcode);
		select fence.protect('texts', 'texts/{a}/{b}/{c}', 'observe');
		create table parts (a text, n integer) partition by list (n); create table part partition of parts default;
		select fence.protect('parts', 'parts/{a}', 'observe')`)
	seen := map[string]string{}
	for value, want := range map[string]string{
		"": "%empty", ".": "%2E", "..": "%2E%2E", "...": "...", "/": "%2F", "%": "%25", "%null": "%25null",
		"%empty": "%25empty", "%2E": "%252E", "a/b/../c": "a%2Fb%2F..%2Fc", "a b": "a b", " ": " ", "\t\n\r": "%09%0A%0D",
		"\x01\x1f\x7f": "%01%1F%7F", "\u0080\u009f\u00a0": "%C2%80%C2%9F\u00a0", "größe": "größe", "日本/語": "日本%2F語", "x /": "x %2F",
		"😀%": "😀%25", "é": "é", "e\u0301": "e\u0301", `\`: `\`, `'"`: `'"`, "{a}": "{a}", "$body$": "$body$",
		strings.Repeat("x", 160): strings.Repeat("x", 160),
	} {
		var got string
		var valid bool
		err := conn.QueryRow(t.Context(), "select s, fence.is_name('x/' || left(s, 500)) from fence.segment($1) s", value).
			Scan(&got, &valid)
		if err != nil || got != want || !valid {
			t.Errorf("the segment of %q is %q (valid: %v, %v), want %q", value, got, valid, err, want)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q have the same segment", value, other)
		}
		seen[got] = value
		expectReported(t, conn, fmt.Sprintf("texts/%[1]s/%[1]s/%[1]s", want), "insert into texts values ($1::text, $1::text, $1::text)", value)
		expectReported(t, conn, "parts/"+want, "insert into parts values ($1::text, 0)", value)
	}
	expectReported(t, conn, "texts/%null/%null/%null", "insert into texts values ($1::text, $1::text, $1::text)", nil)
	var null string
	if err := conn.QueryRow(t.Context(), "select fence.segment(null)").Scan(&null); err != nil || null != "%null" {
		t.Errorf("the segment of null is %q (%v)", null, err)
	}
}

// expectReported runs a statement that must report one rejection, for the resource.
func expectReported(t *testing.T, conn *pgx.Conn, resource, sql string, value any) {
	t.Helper()
	exec(t, conn, "truncate fence.reported")
	exec(t, conn, sql, value)
	var got []string
	err := conn.QueryRow(t.Context(), "select array_agg(resource) from fence.reported").Scan(&got)
	if err != nil || len(got) != 1 || got[0] != resource {
		t.Errorf("%s with %q: the reported resources are %q (%v), want %q", sql, value, got, err, resource)
	}
}

// belowScripts are about transactions that are guarded for a name above the rows, by a subtree lease.
var belowScripts = []script{
	{"a subtree lease admits rows with generated keys", `
		A create table keyed (id integer generated always as identity primary key, n integer);
			select fence.protect('keyed', 'keyed/{id}'); select test.grant('keyed', 'exclusive', 'subtree')  -- $t
		A insert into keyed (n) values (1)  -- !LF101 call fence.guard('keyed/1', token) first
		A begin; select fence.guard('keyed', $t, 1); insert into keyed (n) values (1), (2);
			update keyed set n = 3 where id = 3; savepoint s; insert into keyed (n) values (4); rollback to s
		A select string_agg(resource || ':' || last_token || '.' || last_sequence, ' ' order by resource)
			from fence.admitted  -- keyed:$t.1 keyed/2:$t.1 keyed/3:$t.1
		A commit; insert into keyed (n) values (5)  -- !LF101
		A begin; select fence.guard('keyed', $t, 2); insert into keyed (n) select 0 from generate_series(1, 500);
			delete from keyed where n = 0; commit
		A begin; select fence.guard('keyed/3', $t, 7); update keyed set n = 7 where id = 3; commit
		A begin; select fence.guard('keyed', $t, 5); update keyed set n = 8  -- !LF103 the last accepted write had $t.7
		A rollback; begin; select fence.guard('keyed', $t, 8); update keyed set n = 8; delete from keyed; commit`},
	{"a lease on the name alone admits nothing below", `
		A create table alone (id integer generated always as identity primary key);
			select fence.protect('alone', 'alone/{id}'); select test.grant('alone-tree', 'exclusive', 'subtree'),
			test.grant('alone', 'exclusive', 'subtree'); select test.grant('alone')  -- $t
		A insert into alone default values  -- !LF101 protect the table with inserts => 'free', or guard a name above
		A begin; select fence.guard('alone', $t, 1); insert into alone default values  -- !LF101 scope subtree`},
	{"a guard above admits below it alone", `
		A create table branches (a integer, b integer generated always as identity);
			select fence.protect('branches', 'branches/{a}/{b}'); select test.grant('branches', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('branches/1', $t, 1); insert into branches (a) values (1); savepoint s
		A insert into branches (a) values (2)  -- !LF101
		A rollback to s; select fence.guard('branches/2', $t, 1); insert into branches (a) values (2), (1); commit
		A begin; select fence.guard('branches', $t, 4); select fence.guard('branches/1', $t, 5);
			insert into branches (a) values (1); select min(last_sequence) from fence.admitted where resource like 'branches/1/%'
			-- 5`},
	{"a subtree lease does not admit a row that a newer lease holds", `
		A create table taken (id integer primary key, n integer); insert into taken values (1, 1), (2, 2);
			select fence.protect('taken', 'taken/{id}'); select test.grant('taken', 'exclusive', 'subtree')  -- $t
		A select test.grant('taken/1')  -- $new
		A begin; select fence.guard('taken', $t, 1); savepoint s; update taken set n = 666
			-- !LF103 "resource":"taken/1","table":"public.taken","fencing_token":$t,"sequence":1,"granted_token":$new
		A rollback to s; update taken set n = 3 where id = 2
		B select test.grant('taken/2')  -- waits
		A commit
		B ...
		A begin; select fence.guard('taken', $t, 2); update taken set n = 666 where id = 2  -- !LF103 superseded
		A rollback; select test.grant('taken', 'exclusive', 'subtree')  -- $newest
		A begin; select fence.guard('taken', $newest, 1); update taken set n = 5
		B begin; select fence.guard('taken', $t, 3)  -- !LF103 superseded`},
	{"a writer below waits for a transaction that has the fence", `
		A create table waiting (id integer primary key, n integer); insert into waiting values (1, 1);
			select fence.protect('waiting', 'waiting/{id}'); select test.grant('waiting', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('waiting/1', $t, 1); select test.grant('waiting/1')
		B begin; select fence.guard('waiting', $t, 2); update waiting set n = 666  -- waits
		A commit
		B ...  -- !LF103 "resource":"waiting/1"
		B rollback; select test.grant('waiting', 'exclusive', 'subtree')  -- $t
		B begin isolation level repeatable read; select fence.guard('waiting', $t, 1)
		A select test.grant('waiting/1')
		B update waiting set n = 666  -- !40001`},
	{"the policies of the rows count below a subtree lease", `
		A insert into fence.policies (prefix, rule, require_lease_id, require_live_lease) values
			('ruled/same', 'same_token', false, false), ('ruled/id', 'strict', true, false),
			('ruled/live', 'strict', false, true), ('ids', 'strict', true, false)
		A create table ruled (kind text, id integer generated always as identity);
			select fence.protect('ruled', 'ruled/{kind}/{id}'); select test.grant('ruled', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('ruled', $t, 1); savepoint s; insert into ruled (kind) values ('id')  -- !LF104
		A rollback to s; insert into ruled (kind) values ('live'), ('same'); commit; select test.expire('ruled')
		A begin; select fence.guard('ruled', $t, 2); insert into ruled (kind) values ('live')  -- !LF105
		A rollback; begin; select fence.guard('ruled/same', $t, 3); insert into ruled (kind) values ('same'); commit
		A begin; select fence.guard('ruled/same', $t); update ruled set kind = 'same' where kind = 'same'; commit
		A create table ids (id integer generated always as identity); select fence.protect('ids', 'ids/{id}');
			select test.grant('ids', 'exclusive', 'subtree'); select test.grant('ids', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('ids', $t, 1, test.lease('ids', $t)); insert into ids default values; commit
		A select test.grant('ids/1')  -- $t
		A begin; select fence.set_token($t, 2); delete from ids  -- !LF104`},
	{"the mode observe, partitions, and a name that is too long, below a subtree lease", `
		A create table watched (id integer generated always as identity); select fence.protect('watched', 'watched/{id}', 'observe');
			select test.grant('watched', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('watched', $t, 1); insert into watched default values; commit;
			select count(*) from fence.reported where table_name = 'public.watched'  -- 0
		A create table parts (id integer, n text) partition by range (id);
			create table parts_1 partition of parts for values from (0) to (10); select fence.protect('parts', 'parts/{n}');
			select test.grant('parts', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('parts', $t, 1); insert into parts values (1, 'a'), (2, repeat('x', 506));
			insert into parts values (1, repeat('x', 600))  -- !LF101 606 bytes`},
}
