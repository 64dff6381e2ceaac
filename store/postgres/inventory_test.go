package postgres_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// makeDue has the inventory counted at the next call.
const makeDue = "update fence.inventory set due_at = '-infinity'"

func (b *testbed) recount(t testing.TB) store.Inventory {
	t.Helper()
	b.Exec(t, makeDue)
	if counted, err := b.Recount(t.Context()); err != nil || !counted {
		t.Fatalf("it was counted: %v (%v)", counted, err)
	}
	overview, err := b.Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return overview.Inventory
}

// seedAnything fills the tables with whatever can stand in them; the newest lease of a lock is there. All times, those
// at which a quarter of the TTL of 400 s is left, too, are half a minute away, so that a test may be slow.
const seedAnything = `
	with names as (
		select n, 'lock/' || n as name, random() as dice, (random() * 3)::integer as leases from generate_series(1, 300) n
	), fences as (
		insert into fence.fences (resource, granted_token, open)
		select name, case when dice < .9 then leases * 1000 + n else 0 end, random() < .5 and dice < .9 and leases > 0 from
			names where dice < .95
	), sessions as (
		insert into fence.sessions (session_id, owner_id, ttl_ms, created_at, expires_at, ended_at, end_reason)
		select ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid, 'w', 400000, now(),
			now() + (case when n % 3 = 0 then -1 else 1 end) * (case when random() < .3 then 30 + random() * 40 else 130 +
				random() * 270 end) * interval '1 second',
			case when n % 4 = 0 then now() - interval '1 minute' end, case when n % 4 = 0 then 'released' end
		from generate_series(1, 40) n
	), gateways as (
		insert into fence.gateways (gateway_id, alive_until)
		select ('00000000-0000-4000-9000-' || lpad(n::text, 12, '0'))::uuid, now() + (case when n = 1 then -1 else 1 end) *
			interval '1 hour'
		from generate_series(1, 3) n
	), waiters as (
		insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, session_id, queued_at, deadline_at)
		select name, ('00000000-0000-4000-9000-' || lpad((1 + n % 4)::text, 12, '0'))::uuid, 'w' || i, 'shared', 'node', 1000,
			case when random() < .3 then ('00000000-0000-4000-8000-' || lpad((1 + (random() * 49)::integer)::text, 12,
				'0'))::uuid end,
			now() - random() * interval '1 hour', now() + (case when random() < .2 then -1 else 1 end) * interval '1 hour'
		from names, generate_series(1, 3) i where random() < .4
	)
	insert into fence.leases (lock, fencing_token, lease_id, owner_id, mode, ttl_ms, granted_at, expires_at, session_id,
		ended_at, end_reason)
	select name, i * 1000 + n, gen_random_uuid(), 'w', 'shared', 400000, now(),
		now() + (case when random() < .3 then -1 else 1 end) * (case when random() < .3
			then 30 + random() * 40 else 130 + random() * 270 end) * interval '1 second',
		case when session then ('00000000-0000-4000-8000-' || lpad((1 + (random() * 49)::integer)::text, 12, '0'))::uuid end,
		case when ended then now() - interval '1 minute' end, case when ended then 'expired' end
	from (select *, random() < .4 as session, random() < .3 as ended from names, generate_series(1, leases) i) p`

// plainCounts counts one thing after the other, a row at a time, as the functions that decide see it.
const plainCounts = `
	select (select count(*) from fence.leases l where l.ended_at is null and l.expires_at > now()),
		(select count(*) from fence.leases l where l.ended_at is null and l.expires_at > now()
			and l.expires_at - now() < interval '100 seconds'),
		(select extract(epoch from now() - min(greatest(l.expires_at, l.granted_at))) * 1000 from fence.leases l
			where l.ended_at is null and l.expires_at <= now())::bigint,
		(select count(*) from fence.waiters w where fence.is_waiting(w)),
		(select extract(epoch from now() - min(w.queued_at)) * 1000 from fence.waiters w where fence.is_waiting(w))::bigint,
		(select count(*) from fence.sessions s where fence.session_lost(s) is null),
		(select greatest(max(f.granted_token), (select last_value from fence.tokens)) from fence.fences f)`

// TestInventoryCountsEverything checks that the inventory is equal to counts made one by one, with rows of every kind.
func TestInventoryCountsEverything(t *testing.T) {
	t.Parallel()
	for range 3 {
		newTestbed(t).countEverything(t)
	}
}

func (b *testbed) countEverything(t testing.TB) {
	t.Helper()
	b.Exec(t, seedAnything)
	b.Exec(t, "select setval('fence.tokens', 4000)")
	// An exclusive lease is granted where none runs, and a shared one closes the fence.
	b.Exec(t, `update fence.fences f set open = false where exists (
		select from fence.leases l where l.lock = f.resource and l.fencing_token < f.granted_token
			and l.ended_at is null and l.expires_at > now())`)
	// Locks that are waited for but were never granted are locks only where their waiters count: the list shows them a
	// moment longer.
	b.Exec(t, `delete from fence.waiters w using fence.fences f where f.resource = w.lock and f.granted_token = 0 and not fence.is_waiting(w)`)
	got := b.recount(t)
	want := store.Inventory{At: got.At}
	var overdueMS, oldestMS int64
	if err := b.SQL.QueryRow(t.Context(), plainCounts).
		Scan(&want.Held, &want.Expiring, &overdueMS, &want.Waiting, &oldestMS, &want.Sessions, &want.NewestToken); err != nil {
		t.Fatal(err)
	}
	locks, err := b.Locks(t.Context(), store.LockQuery{Limit: store.PageMax})
	if err != nil {
		t.Fatal(err)
	}
	want.Locks, want.LeasesOf = int64(len(locks)), map[string]int64{}
	for _, lock := range locks {
		if lock.State == store.LockExpired {
			want.Expired++
		}
	}
	overdue, oldest := time.Duration(overdueMS)*time.Millisecond, time.Duration(oldestMS)*time.Millisecond
	for _, late := range []time.Duration{overdue - got.Overdue, oldest - got.OldestWait} {
		if late < 0 || late > time.Minute || got.Overdue == 0 {
			t.Errorf("a lease is overdue for %s, by another count %s; the oldest has waited %s, by another count %s",
				got.Overdue, overdue, got.OldestWait, oldest)
		}
	}
	want.Overdue, want.OldestWait = got.Overdue, got.OldestWait
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the inventory is\n%+v, want\n%+v", got, want)
	}
	if min(want.Locks, want.Held, want.Expiring, want.Expired, want.Waiting, want.Sessions) == 0 {
		t.Errorf("a count of nothing shows nothing: %+v", want)
	}
}

// TestInventoryIsCountedByOne checks that of many gateways that would count at once, one does; and not again before it
// is due.
func TestInventoryIsCountedByOne(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	for range 10 {
		b.Exec(t, makeDue)
		counted := make(chan bool, 8)
		var running sync.WaitGroup
		for range cap(counted) {
			running.Go(func() {
				did, err := b.Recount(t.Context())
				if err != nil {
					t.Error(err)
				}
				counted <- did
			})
		}
		running.Wait()
		close(counted)
		times := 0
		for did := range counted {
			if did {
				times++
			}
		}
		if times != 1 {
			t.Fatalf("it was counted %d times", times)
		}
	}
	expectSQL(t, b, true, "select due_at - at >= interval '1.9 seconds' from fence.inventory")
}

// TestInventoryFindsStuckQueues checks since when the first waiter of a queue could have been granted its lock, where no
// gateway grants; and that a waiter for whom something is in the way does not count, however long it waits.
func TestInventoryFindsStuckQueues(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, "insert into fence.gateways values ($1, 'infinity'), ($2, '-infinity')", uuid.Nil, uuid.Max)
	wait := func(gateway uuid.UUID, mode store.Mode, scope store.Scope) step {
		return func(ctx context.Context, s *fixture) error {
			_, err := s.SQL.Exec(ctx, `insert into fence.waiters
					(lock, gateway_id, owner_id, mode, scope, ttl_ms, session_id, queued_at, deadline_at)
				values ($1, $2, 'w', $3, $4, 1000, $5, clock_timestamp() - interval '1 day', 'infinity')`,
				s.lock, gateway, mode, scope, pgtype.UUID{Bytes: s.sessionID, Valid: s.sessionID != uuid.Nil})
			return err
		}
	}
	writer, reader := wait(uuid.Nil, store.Exclusive, store.Node), wait(uuid.Nil, store.Shared, store.Node)
	tree := wait(uuid.Nil, store.Exclusive, store.Subtree)
	leave := execute("delete from fence.waiters where lock = $1")
	age := func() {
		b.Exec(t, `update fence.inventory c set grantable = (
			select coalesce(jsonb_agg(jsonb_set(g, '{since}', to_jsonb(clock_timestamp() - interval '1 hour'))), '[]')
			from jsonb_array_elements(c.grantable) g)`)
	}
	for i, c := range []struct {
		steps given
		stuck bool  // an hour after these
		later given // what happens then
		still bool  // whether that hour still counts
	}{
		{given{acquire, expire, writer}, true, given{leave}, false},
		{given{acquire, expire, writer}, true, given{leave, reader}, true},
		{given{acquire, expire, writer}, true, given{leave, acquire, expire, writer}, false},
		{given{writer, reader}, true, given{onBelow("/x", writer)}, true},
		{given{share, reader, writer}, true, given{expire}, true},
		{given{wait(uuid.Max, store.Exclusive, store.Node), writer}, true, nil, true},
		{given{wait(uuid.Max, store.Exclusive, store.Node)}, false, given{writer}, false},
		{given{acquire, writer}, false, given{release}, false},
		{given{share, writer, reader}, false, nil, false},
		{given{acquireSubtree, onBelow("/x", reader)}, false, nil, false},
		{given{onBelow("/x", acquire), tree, onBelow("/y", writer)}, false, given{onBelow("/x", expire)}, false},
		{given{openSession, inSession(writer)}, true, given{expireSession}, false},
		{given{writer, execute("update fence.waiters set deadline_at = '-infinity'")}, false, nil, false},
	} {
		lock := b.given(t, store.Name(fmt.Sprint("lock", i)), c.steps...)
		expectStuck := func(want bool) {
			t.Helper()
			if inventory := b.recount(t); inventory.Stuck >= time.Hour != want {
				t.Errorf("case %d: a queue is stuck for %s, want an hour or more: %v", i, inventory.Stuck, want)
			}
		}
		expectStuck(false)
		age()
		expectStuck(c.stuck)
		if err := lock.do(t.Context(), c.later...); err != nil {
			t.Fatal(err)
		}
		expectStuck(c.still)
		b.Exec(t, "delete from fence.waiters")
		expectStuck(false)
	}
}

// TestInventoryFindsOverdueLeases checks since when a lease has expired that no sweep can end, alone or of a session, since
// a transaction has its row locked; and that sweeps end it after the transaction.
func TestInventoryFindsOverdueLeases(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	const overdue = "expires_at = clock_timestamp() - interval '1 hour', check_at = '-infinity'"
	granted := execute("update fence.leases set granted_at = granted_at - interval '1 day' where lock = $1")
	for i, steps := range []given{
		{acquire, granted, execute("update fence.leases set " + overdue + " where lock = $1")},
		{openSession, inSession(acquire), granted, execute("update fence.sessions set " + overdue), execute("update fence.leases set " + overdue + " where lock = $1")},
	} {
		lock := b.given(t, store.Name(fmt.Sprint("lock", i)), steps...)
		letGo := b.hold(t, "select from fence.leases where lock = $1 for update", lock.lock)
		_ = lock.do(t.Context(), sweep) // it passes over the row, and fails for a session
		if overdue := b.recount(t).Overdue; overdue < time.Hour || overdue > 2*time.Hour {
			t.Errorf("case %d: a lease is overdue for %s, want an hour", i, overdue)
		}
		letGo()
		await(t, "a sweep has ended the lease", func() bool {
			return lock.do(t.Context(), sweep) == nil && b.recount(t).Overdue == 0
		})
	}
}

const lockFencesTableSQL = "lock table fence.fences in access exclusive mode"

// TestInventoryThatTakesTooLong checks that a count under way makes no other gateway wait, and that the next count
// comes no sooner than after twenty times its duration, also if it failed.
func TestInventoryThatTakesTooLong(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	impatient := openStore(t, postgres.Config{DatabaseURL: b.URL, StatementTimeout: 2 * time.Second})
	letGo := b.hold(t, lockFencesTableSQL)
	failing := make(chan error, 1)
	b.Exec(t, makeDue)
	go func() { // Store.Recount gives its row up after a short wait for the lock, and tries again
		_, err := b.SQL.Exec(t.Context(), "select fence.recount()")
		failing <- err
	}()
	if err := b.AwaitBlocked(t.Context(), failing); err != nil {
		t.Fatal(err)
	}
	if counted, err := impatient.Recount(t.Context()); err != nil || counted {
		t.Errorf("it was counted (%v) while another counts (%v)", counted, err)
	}
	if _, err := b.SQL.Exec(t.Context(), "select pg_sleep(0.3)"); err != nil { // a count takes so long, at least
		t.Fatal(err)
	}
	letGo()
	if err := <-failing; err != nil {
		t.Fatal(err)
	}
	// The clock is read twice.
	expectSQL(t, b, true,
		"select due_at - at >= 19 * greatest(took_ms, 1) * interval '1 millisecond' from fence.inventory")

	b.Exec(t, makeDue)
	b.hold(t, lockFencesTableSQL)
	if counted, err := impatient.Recount(t.Context()); err == nil || counted {
		t.Errorf("it was counted (%v), though it can't be (%v)", counted, err)
	}
	expectSQL(t, b, true, "select due_at > clock_timestamp() + interval '2 seconds' from fence.inventory")
}

// TestInventoryOfManyTables checks that protected tables at which a look takes long, together or one alone, do not keep
// the inventory from being counted, and that all are looked at.
func TestInventoryOfManyTables(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	const tables = 12
	b.Exec(t, `create or replace function fence.protection_problem(p_id integer, p_table regclass, p_template text)
		returns text language sql as $$
			select case when pg_sleep(case p_id when 1 then 1.5 else 0.12 end) is not null then 'seen' end $$`)
	b.Exec(t, `insert into fence.protected_tables (table_id, template, mode)
		select n, 't', 'enforce' from generate_series(1, $1) n`, tables)
	impatient := openStore(t, postgres.Config{DatabaseURL: b.URL, StatementTimeout: time.Second})
	for looks := 1; looks <= tables; looks++ {
		b.Exec(t, makeDue)
		if counted, err := impatient.Recount(t.Context()); err != nil || !counted {
			t.Fatalf("it was counted: %v (%v)", counted, err)
		}
		expectSQL(t, b, looks, "select tables_with_problems from fence.inventory")
	}
	expectSQL(t, b, tables, "select tables_enforce from fence.inventory")
}

// TestInventoryOfManyLocks checks that the inventory estimates the numbers of many locks and of many expired ones, and
// counts what runs exactly. Fewer than 10,000 expired leases are counted exactly, too.
func TestInventoryOfManyLocks(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	const locks = 30_000
	b.Exec(t, "insert into fence.fences (resource, granted_token, open) select 'lock/' || n, n, n % 4 <> 0 from "+
		"generate_series(1, $1) n", locks)
	b.Exec(t, `
		insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at, ended_at,
			end_reason, principal)
		select 'lock/' || n, n, gen_random_uuid(), 'w' || n, 86400000, now(), now() + n % 2 * interval '1 day',
			case n % 2 when 0 then now() end, case n % 2 when 0 then 'expired' end,
			case when n <= 2000 then 'a' when n < 3999 then 'b' else '' end
		from generate_series(1, $1) n`, locks)
	b.Exec(t, "select setval('fence.tokens', $1)", locks)
	b.Exec(t, "vacuum analyze fence.fences")
	b.Exec(t, "vacuum analyze fence.leases")
	inventory := b.recount(t)
	about := func(got, want int64) bool { return got > want*9/10 && got < want*11/10 } // an estimate
	if !about(inventory.Locks, locks) || inventory.Held != locks/2 || !about(inventory.Expired, locks/4) ||
		inventory.Expiring != 0 || inventory.NewestToken != locks {
		t.Errorf("the inventory is %+v, want about %d locks, half of them held and a quarter expired", inventory, locks)
	}
	if want := map[string]int64{"a": store.LeasesListed}; !maps.Equal(inventory.LeasesOf, want) { // b has one less
		t.Errorf("the principals with many leases are %v, want %v", inventory.LeasesOf, want)
	}
	b.Exec(t, "delete from fence.leases where end_reason = 'expired' and fencing_token >= 2 * 10000") // 9999 are left
	if inventory := b.recount(t); inventory.Expired != 5000 {
		t.Errorf("%d locks are expired, want exactly 5000", inventory.Expired)
	}
}
