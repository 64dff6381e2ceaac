package postgres_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

const (
	dueUnusedSQL = "update fence.unused set check_at = '-infinity'"
	// leftSQL lists the rows that are kept of names, but for those of the lock above.
	leftSQL = `
		select coalesce(string_agg(kind || ' ' || name, ', ' order by kind, name), '') from (
			select 'fence', resource from fence.fences union all
			select 'subtree', resource from fence.fences where subtree_token is not null union all
			select 'watched', lock from fence.watched union all
			select 'unused', name from fence.unused) as t (kind, name)`
)

func (b *testbed) expectLeft(t *testing.T, want string) {
	t.Helper()
	expectSQL(t, b, want, leftSQL)
}

// TestNamesNeverUsedLeaveNothing checks that refused requests, abandoned waits, rejected writes and watches leave no
// rows of names that were never granted nor written.
func TestNamesNeverUsedLeaveNothing(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 1, noPoll)
	sweeper := newSweeper(t, s.At(0).Store, postgres.SweeperConfig{})
	s.Exec(t, "insert into fence.policies (prefix, authority) values ('external', 'external')")
	holder := s.Acquire(t, 0, store.AcquireRequest{Lock: "a/b", OwnerID: "holder", Scope: store.Subtree})
	for _, refused := range []store.AcquireRequest{
		{Lock: "a/b/c", OwnerID: "other"},
		{Lock: "a", OwnerID: "other", Scope: store.Subtree},
		{Lock: "a/b/d", OwnerID: "other", Scope: store.Subtree, Wait: 20 * time.Millisecond},
	} {
		if _, err := s.At(0).Acquire(patient(t), refused); !errors.Is(err, store.ErrLeaseHeld) {
			t.Errorf("acquire %s: %v, want it to be refused", refused.Lock, err)
		}
	}
	for resource, token := range map[store.Name]int64{"external/r": 7, "a/b/written": holder.Token,
		"a/b/not": holder.Token} {
		write := putOf(resource, "v")
		write.Token, write.Expect = token, new(int64(1))
		if result, err := byOne(patient(t), s.At(0).Store, write); err != nil ||
			!errors.Is(result.Err, store.ErrVersionMismatch) {
			t.Errorf("write to %s: %+v (%v), want it to be rejected", resource, result, err)
		}
	}
	watch, err := s.At(0).Watch(patient(t), "watched")
	if err != nil {
		t.Fatal(err)
	}
	watch.Close()

	expectSwept(t, sweeper, store.Swept{})
	s.Exec(t, "update fence.watched set until = clock_timestamp() - interval '1 hour'")
	s.Exec(t, dueUnusedSQL)
	expectSwept(t, sweeper, store.Swept{})
	s.bed.expectLeft(t, "fence a/b, subtree a/b")
}

// TestUnusedNamesThatAreNeeded checks that the rows of a name stay while it has a waiter, and when it was granted or
// written since.
func TestUnusedNamesThatAreNeeded(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 1, noPoll)
	sweeper := newSweeper(t, s.At(0).Store, postgres.SweeperConfig{})
	holder := s.Acquire(t, 0, store.AcquireRequest{Lock: "a/b", OwnerID: "holder"})
	waiting := s.Queue(t, 0, store.AcquireRequest{Lock: "a", OwnerID: "waiter", Scope: store.Subtree})
	s.Exec(t, dueUnusedSQL)
	expectSwept(t, sweeper, store.Swept{})
	s.bed.expectLeft(t, "fence a, fence a/b, subtree a, unused a")
	s.Release(t, 0, holder)
	granted(t, waiting)
	s.Exec(t, dueUnusedSQL)
	expectSwept(t, sweeper, store.Swept{})
	s.bed.expectLeft(t, "fence a, fence a/b, subtree a")
}

// TestUnusedNamesAreMadeAgain checks that an acquire, a subtree acquire and a write that wait for a row while the sweep
// deletes it are granted and admitted all the same.
func TestUnusedNamesAreMadeAgain(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, "insert into fence.policies (prefix, authority) values ('external', 'external')")
	write := putOf("external", "v")
	write.Token = 7
	for name, request := range map[string]func() error{
		"node": func() error {
			_, err := b.Acquire(t.Context(), store.AcquireRequest{Lock: "node", OwnerID: "owner"})
			return err
		},
		"subtree": func() error {
			_, err := b.Acquire(t.Context(), store.AcquireRequest{Lock: "subtree", OwnerID: "owner", Scope: store.Subtree})
			return err
		},
		"external": func() error {
			result, err := byOne(t.Context(), b.Store, write)
			return errors.Join(err, result.Err)
		},
	} {
		b.Exec(t, "insert into fence.fences (resource) values ($1)", name)
		b.Exec(t, "update fence.fences set subtree_token = 0 where resource = $1 and resource = 'subtree'", name)
		b.Exec(t, "insert into fence.unused (name, check_at) values ($1, '-infinity')", name)
		tx := b.begin(t)
		var swept int
		if err := tx.QueryRow(t.Context(), "select done from fence.sweep_unused(10)").Scan(&swept); err != nil ||
			swept != 1 {
			t.Fatalf("%d fences of %s were deleted (%v), want 1", swept, name, err)
		}
		answered := make(chan error, 1)
		go func() { answered <- request() }()
		if err := b.AwaitBlocked(t.Context(), answered); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-answered; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b.Exec(t, "delete from fence.unused")
	}
	if fence, err := b.Fence(t.Context(), "subtree"); err != nil || !fence.Open || fence.GrantedToken == 0 {
		t.Errorf("the fence of the subtree is %+v (%v)", fence, err)
	}
}

// TestRefusedSubtreeOfAUsedName checks that a subtree that was not granted leaves no row, also if the name itself is in
// use: as long as there is one, every grant and write looks for subtrees above.
func TestRefusedSubtreeOfAUsedName(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 1, noPoll)
	sweeper := newSweeper(t, s.At(0).Store, postgres.SweeperConfig{})
	s.Acquire(t, 0, store.AcquireRequest{Lock: "a", OwnerID: "holder"})
	_, err := s.At(0).Acquire(patient(t), store.AcquireRequest{Lock: "a", OwnerID: "other", Scope: store.Subtree})
	if !errors.Is(err, store.ErrLeaseHeld) {
		t.Fatalf("acquire: %v, want it to be refused", err)
	}
	s.Exec(t, dueUnusedSQL)
	expectSwept(t, sweeper, store.Swept{})
	s.bed.expectLeft(t, "fence a")
}

// idleStatements are what gateways run each second or two, whether there is something to do or not.
var idleStatements = []string{
	"select fence.sweep('leases', '0', 1000, null, null)", "select fence.sweep('ended leases', '0', 1000, '1 hour', null)",
	"select fence.sweep('rejections', '0', 1000, '7 days', 100000)",
	"select fence.sweep('sessions', '0', 1000, '1 hour', null)", "select fence.sweep('gateways', '0', 1000, null, null)",
	"select fence.sweep('waiting', '0', 1000, '1 hour', null)",
	"select fence.sweep('unused', '0', 1000, null, null)",
	"select fence.recount()", "select fence.check_tables()",
}

// seedIdle makes locks that were used two hours ago and released, the sessions of as many holders, settled five minutes
// ago, and as many rejections of today.
func seedIdle(t *testing.T, b *testbed, from, to int) {
	for _, sql := range []string{
		"insert into fence.fences (resource, granted_token) select 'idle/' || n, n from generate_series($1::integer, " +
			"$2::integer) n",
		`insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at, check_at, ended_at, end_reason, kept)
			select 'idle/' || n, n, gen_random_uuid(), 'w', 1000, ago, ago, ago, ago, 'released', true
			from generate_series($1::integer, $2::integer) n, lateral (select clock_timestamp() - interval '2 hours' as ago) t`,
		`insert into fence.sessions (session_id, owner_id, ttl_ms, created_at, expires_at, ended_at, end_reason, settled)
			select gen_random_uuid(), 'w', 1000, ago, ago, ago, 'released', true
			from generate_series($1::integer, $2::integer) n, lateral (select clock_timestamp() - interval '5 minutes' as ago) t`,
		`insert into fence.rejections (resource, key, code, reason, source, address, fencing_token, granted_token, last_token, last_sequence,
				count, first_at, last_at)
			select 'idle/' || n, 'k', 'token_stale', 'superseded', 'http', '', n, n, n, 0, 1, now(), now() from generate_series($1::integer, least($2::integer, 50000)) n`,
	} {
		if _, err := b.SQL.Exec(t.Context(), sql, from, to); err != nil {
			t.Fatal(err)
		}
	}
}

// rowsRead runs a statement and returns how many rows it read of the tables of fencegate.
func rowsRead(t *testing.T, b *testbed, sql string) (rows int64) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), b.SQL, func(tx pgx.Tx) (err error) {
		rows, err = rowsReadIn(t.Context(), tx, sql)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// rowsReadUndone is rowsRead of a statement whose changes are undone.
func rowsReadUndone(t *testing.T, b *testbed, sql string) int64 {
	t.Helper()
	tx, err := b.SQL.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows, err := rowsReadIn(t.Context(), tx, sql)
	if err := errors.Join(err, tx.Rollback(t.Context())); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return rows
}

func rowsReadIn(ctx context.Context, tx pgx.Tx, sql string, args ...any) (int64, error) {
	if _, err := tx.Exec(ctx, makeDue); err != nil {
		return 0, err
	}
	const read = "select coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::bigint from " +
		"pg_stat_xact_user_tables where schemaname = 'fence'"
	var before, after int64
	if err := tx.QueryRow(ctx, read).Scan(&before); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, sql, args...); err != nil {
		return 0, err
	}
	err := tx.QueryRow(ctx, read).Scan(&after)
	return after - before, err
}

// TestIdleCostIsFlat checks that the statements that gateways run each second read as many rows beside 20,000 idle
// locks, ended sessions and rejections as beside 1,000. Only the count of locks reads up to 10,000 of them.
func TestIdleCostIsFlat(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	// Statistics that come in between change plans, by a row or two.
	for _, table := range []string{"fences", "leases", "sessions", "rejections"} {
		b.Exec(t, "alter table fence."+table+" set (autovacuum_enabled = off)")
	}
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{})
	measure := func() map[string]int64 {
		expectSwept(t, sweeper, store.Swept{})
		read := map[string]int64{}
		for _, sql := range idleStatements {
			read[sql] = rowsRead(t, b, sql)
		}
		return read
	}
	seedIdle(t, b, 1, 1000)
	few := measure()
	seedIdle(t, b, 1001, 20000)
	many := measure()
	const recount = "select fence.recount()"
	if many[recount] > few[recount]+9000 {
		t.Errorf("to count read %d rows beside 20,000 idle locks, %d beside 1,000", many[recount], few[recount])
	}
	delete(few, recount)
	delete(many, recount)
	if !maps.Equal(few, many) {
		t.Errorf("the rows read beside 20,000 idle locks are %v, beside 1,000 %v", many, few)
	}
}

// TestSweepKeepsTheNewest checks that a lease that is kept as the newest of its lock is deleted when the next one is old
// enough; and that one is deleted at once that was not kept because a grant was under way during the sweep.
func TestSweepKeepsTheNewest(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{LeaseRetention: time.Second})
	after, during := b.given(t, "after", acquire, release), b.given(t, "during", acquire, release)
	b.Exec(t, "update fence.leases set ended_at = ended_at - interval '1 hour'")
	tx := b.begin(t)
	const grant = "select (fence.acquire_lease(fence.lease_request($1, 'next', 'exclusive', 'node', 60000, null, null, null), " +
		"0, null, true)).outcome"
	var outcome string
	if err := tx.QueryRow(t.Context(), grant, during.lock).Scan(&outcome); err != nil || outcome != "granted" {
		t.Fatalf("the lock was %s (%v)", outcome, err)
	}
	expectSwept(t, sweeper, store.Swept{})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectSwept(t, sweeper, store.Swept{LeasesForgotten: 1})
	if err := after.do(t.Context(), acquire, release); err != nil {
		t.Fatal(err)
	}
	b.Exec(t, "update fence.leases set ended_at = ended_at - interval '1 hour'")
	expectSwept(t, sweeper, store.Swept{LeasesForgotten: 1})
	expectSQL(t, b, 2, "select count(*) from fence.leases where ended_at is null and not kept or lock = 'after' and kept")
}

// TestSweepFollowsRenewals checks that a renewed lease is ended at the time to which it was renewed, be that earlier or
// later.
func TestSweepFollowsRenewals(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{})
	for _, ttl := range []time.Duration{time.Hour, 100 * time.Millisecond} {
		lock := store.Name("to " + ttl.String())
		lease := b.granted(t, store.AcquireRequest{Lock: lock, OwnerID: "w", TTL: 10 * time.Minute})
		if _, err := b.Renew(t.Context(), lease.Ref(), ttl); err != nil {
			t.Fatal(err)
		}
	}
	b.Exec(t, "update fence.leases set check_at = clock_timestamp() where lock = 'to 1h0m0s'")
	b.Exec(t, "select pg_sleep(extract(epoch from expires_at - clock_timestamp())) from fence.leases where lock = 'to "+
		"100ms'")
	expectSwept(t, sweeper, store.Swept{Expired: 1})
	expectSQL(t, b, true, "select check_at = expires_at from fence.leases where ended_at is null")
}

// sweptSQL shows what sweeps change.
const sweptSQL = `
	select concat_ws('; ',
		(select string_agg(concat_ws(' ', l.lock, l.end_reason, l.kept), ', ' order by l.lock, l.fencing_token)
			from fence.leases l),
		(select string_agg(f.resource || ' ' || f.open, ', ' order by f.resource) from fence.fences f),
		(select string_agg(s.settled::text, ', ') from fence.sessions s),
		(select string_agg(concat_ws(' ', r.resource, r.code, r.count), ', ' order by r.resource) from fence.rejections r),
		(select count(*) from fence.expiries) + (select count(*) from fence.reported)
			+ (select count(*) from fence.audit))`

// prepareSweep leaves something to do to the parts of a sweep.
func prepareSweep(t *testing.T, b *testbed) {
	t.Helper()
	for name, steps := range map[store.Name]given{
		"live": {acquire}, "expired": {acquire, expire}, "replaced": {acquire, expire, acquire},
		"in a session": {openSession, inSession(acquire), expireSession}, "forgotten": {acquire, release},
	} {
		b.given(t, name, steps...)
	}
	b.Exec(t, "select fence.try_guard('expired', 1000000)")
	b.Exec(t, "update fence.leases set ended_at = ended_at - interval '11 minutes' where lock = 'forgotten'")
	b.Exec(t, "insert into fence.audit (at, principal, address, action, name, details) values "+
		"(clock_timestamp() - interval '401 days', 'old', '', '', '', '{}')")
}

// TestSweepAll checks that fence.sweep_all does what the sweep of a gateway does, and says so; that it does nothing
// when its time is over; and that it leaves a part to another caller that is doing it.
func TestSweepAll(t *testing.T) {
	t.Parallel()
	byGateway, bySQL := newTestbed(t), newTestbed(t)
	prepareSweep(t, byGateway)
	prepareSweep(t, bySQL)
	before := valueOf[string](t, bySQL, sweptSQL)
	expectSQL(t, bySQL, "11 parts, 11 with more to do",
		"select format('%s parts, %s with more to do', count(*), count(*) filter (where more)) from fence.sweep_all(0)")
	expectSQL(t, bySQL, before, sweptSQL)

	if _, err := newSweeper(t, byGateway.Store, postgres.SweeperConfig{}).Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	other, err := pgx.Connect(t.Context(), bySQL.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.WithoutCancel(t.Context()))
	if _, err := other.Exec(t.Context(), "begin; select from fence.sweeps where part = 'leases' for update"); err != nil {
		t.Fatal(err)
	}
	const done = "select string_agg(part || ' ' || done, ', ' order by part) from fence.sweep_all() where done > 0 or more"
	expectSQL(t, bySQL, "audit 1, expiries 1, reported 1, sessions 1", done)
	if _, err := other.Exec(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	expectSQL(t, bySQL, "expiries 1, leases 1", done) // the first sweep has ended the session after it counted expiries
	expectSQL(t, bySQL, valueOf[string](t, byGateway, sweptSQL), sweptSQL)
	if after := valueOf[string](t, bySQL, sweptSQL); after == before {
		t.Errorf("the sweeps changed nothing: %s", after)
	}
}
