package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

func expectSwept(t *testing.T, sweeper *postgres.Sweeper, want store.Swept) {
	t.Helper()
	got, err := sweeper.Sweep(t.Context())
	if err != nil || got != want {
		t.Errorf("the sweep did %+v (%v), want %+v", got, err, want)
	}
}

// TestSweepEndsExpiredLeases checks that a sweep ends the leases that have expired, at the time of their expiry, and no
// others.
func TestSweepEndsExpiredLeases(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{})
	expectSwept(t, sweeper, store.Swept{})
	for i, steps := range []given{
		{acquire}, {acquire, release}, {acquire, breakLock}, {acquire, expire}, {acquire, expire},
	} {
		b.given(t, store.Name(fmt.Sprint("lock", i)), steps...)
	}
	expectSwept(t, sweeper, store.Swept{Expired: 2})
	expectSwept(t, sweeper, store.Swept{})
	expectSQL(t, b, "running, released, broken, expired in time, expired in time", `
		select string_agg(coalesce(end_reason, 'running') || case when ended_at = expires_at then ' in time' else '' end, ', '
			order by lock)
		from fence.leases`)
}

// TestSweepCountsEachExpiryOnce checks that sweeps count each lease that has expired once: also one that the next grant
// has ended before a sweep, of whatever kind the two are.
func TestSweepCountsEachExpiryOnce(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	provided := func(ctx context.Context, s *fixture) error {
		lease, err := s.GrantElsewhere(ctx, store.ElsewhereGrant{
			Lock: s.lock, OwnerID: "w", LeaseID: store.NewLeaseID(store.ProviderRedis), TTL: time.Hour,
		})
		s.leases = append(s.leases, lease)
		return err
	}
	gone := func(ctx context.Context, s *fixture) error {
		return s.SettleLeases(ctx, []store.LeaseStatus{{LeaseRef: s.newest().Ref()}})
	}
	const bySQL = "select fence.acquire($1, 'another')"
	ways := []given{
		{acquire, expire, acquire},
		{share, expire, acquire},
		{acquire, expire, acquireSubtree},
		{acquireSubtree, expire, onBelow("/x", acquire)},
		{acquire, expire, execute(bySQL)},
		{acquire, expire, func(ctx context.Context, s *fixture) error {
			tx, err := s.SQL.Begin(ctx)
			if err == nil {
				_, err = tx.Exec(ctx, bySQL, s.lock)
				err = errors.Join(err, tx.Rollback(ctx))
			}
			return err
		}},
		{holdAnHour, acquire, holdOut, acquire},
		{provided, provided},
		{provided, gone},
		{openSession, inSession(acquire), expireSession, acquire},
	}
	for i, steps := range ways {
		b.given(t, store.Name(fmt.Sprint("lock", i)), steps...)
	}
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{})
	expectSwept(t, sweeper, store.Swept{Expired: int64(len(ways)), SessionsExpired: 1})
	expectSwept(t, sweeper, store.Swept{})
}

// seedLeases gives a lock a history of leases that ended days ago, one a day, of which the newest holds the fence; none
// runs.
const seedLeases = `
	insert into fence.fences (resource, granted_token, open) select 'lock' || n, $2, true from generate_series(1, $1) n;`

func seedEnded(t *testing.T, b *testbed, locks, leasesEach int) {
	t.Helper()
	b.Exec(t, seedLeases, locks, leasesEach)
	b.Exec(t, `
		insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at, ended_at,
			end_reason, request_id)
		select 'lock' || n, token, gen_random_uuid(), 'w', 1000, ended - interval '1 second', ended, ended, 'expired', token
		from generate_series(1, $1) n, generate_series(1, $2) token,
			lateral (select clock_timestamp() - ($2 - token + 1) * interval '1 day' as ended) e`, locks, leasesEach)
}

// TestSweepForgetsOldLeases checks that the sweep deletes old leases except the newest of each lock, so that a late
// renewal still returns the reason for the loss; and of that what identifies its request.
func TestSweepForgetsOldLeases(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	seedEnded(t, b, 2, 5)
	expectSwept(t, newSweeper(t, b.Store, postgres.SweeperConfig{LeaseRetention: 3*24*time.Hour + time.Hour}),
		store.Swept{LeasesForgotten: 4})
	expectSwept(t, newSweeper(t, b.Store, postgres.SweeperConfig{LeaseRetention: time.Second}),
		store.Swept{LeasesForgotten: 4})
	expectSQL(t, b, "lock1 5, lock2 5",
		"select string_agg(lock || ' ' || fencing_token, ', ' order by lock) from fence.leases where request_id is null")
}

// TestSweepTakesMoreThanOneStatement checks that one sweep does everything that is due, in as many statements as it
// takes.
func TestSweepTakesMoreThanOneStatement(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	seedEnded(t, b, 1, 2501)
	expectSwept(t, newSweeper(t, b.Store, postgres.SweeperConfig{}), store.Swept{LeasesForgotten: 2500})
}

// TestSweepForgetsRejections checks that the sweep deletes rejections by age and by number, by the database's clock.
func TestSweepForgetsRejections(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	// The groups 1 to 20 are of the last 20 days, the oldest first; the oldest was seen again now. The clock of the
	// gateway that saw them decides nothing: it is two weeks ahead.
	b.Exec(t, `
		insert into fence.rejections (resource, key, code, reason, source, address, fencing_token, granted_token, last_token,
			last_sequence,
			count, first_at, last_at, changed_at)
		select 'r', 'k', 'token_stale', 'superseded', 'http', '', n, 0, 0, 0, 1, seen + interval '14 days', seen + interval
			'14 days',
			case n when 1 then clock_timestamp() else seen end
		from generate_series(1, 20) n, lateral (select clock_timestamp() - (20 - n) * interval '1 day' as seen) s`)
	const left = "select string_agg(fencing_token::text, ' ' order by id) from fence.rejections"
	expectSwept(t, newSweeper(t, b.Store, postgres.SweeperConfig{RejectionsMax: 20}), store.Swept{RejectionsForgotten: 12})
	expectSQL(t, b, "1 14 15 16 17 18 19 20", left)
	expectSwept(t, newSweeper(t, b.Store, postgres.SweeperConfig{RejectionsMax: 3}), store.Swept{RejectionsForgotten: 5})
	expectSQL(t, b, "18 19 20", left)
}

// TestManySweepAtOnce checks that several sweeps at once end and delete each lease once, and that none waits or fails.
func TestManySweepAtOnce(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	seedEnded(t, b, 200, 10)
	b.Exec(t, "update fence.leases set ended_at = null, end_reason = null where fencing_token = 10")
	var mu sync.Mutex
	var total store.Swept
	var sweepers sync.WaitGroup
	for range 6 {
		sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{})
		sweepers.Go(func() {
			swept, err := sweeper.Sweep(t.Context())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			total.Expired += swept.Expired
			total.LeasesForgotten += swept.LeasesForgotten
		})
	}
	sweepers.Wait()
	swept, err := newSweeper(t, b.Store, postgres.SweeperConfig{}).Sweep(t.Context()) // what all others skipped
	total.Expired += swept.Expired
	total.LeasesForgotten += swept.LeasesForgotten
	if want := (store.Swept{Expired: 200, LeasesForgotten: 1800}); err != nil || total != want {
		t.Errorf("together they did %+v (%v), want %+v", total, err, want)
	}
}

// TestSweepSkipsWhatIsLocked checks that each part of a sweep skips the rows that another session has locked, however
// many, does everything else, and does those later.
func TestSweepSkipsWhatIsLocked(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	config := postgres.SweeperConfig{AuditAnonymousMax: 1}
	b.Exec(t, "update fence.sweeps set count_max = 1 where part = 'audit'")
	expectSwept(t, newSweeper(t, b.Store, config), store.Swept{})
	var unlock func()
	// The locked ones come first in the order of the sweep, and are more than one statement does.
	for _, of := range []string{"locked", "free"} {
		count, seconds := 1, 1
		if of == "locked" {
			count, seconds = 1100, 2
		}
		b.Exec(t, "delete from fence.unused")
		for _, sql := range []string{
			"insert into fence.fences (resource, granted_token, open) select $1 || n, 1, true " + eachOf,
			`insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at, check_at)
				select $1 || n, 1, gen_random_uuid(), 'w', 1000, at - interval '9 s', at, at ` + eachOf,
			"insert into fence.sessions (session_id, owner_id, ttl_ms, created_at, expires_at, check_at) " +
				"select gen_random_uuid(), $1, 1000, at, at, at " + eachOf,
			`insert into fence.gateway_states (gateway_id, name, version, started_at, seen_at, waiting, streams, queue,
					connections_busy, connections_max, listening, accepted, rejected, failed, durations)
				select gen_random_uuid(), $1, '', old, old, 0, 0, 0, 0, 0, true, 0, '{}', 0, '{}' ` + eachOf,
			"insert into fence.audit (at, principal, address, action, name, details) select now(), 'anonymous', '', 'x', $1, '{}' " +
				eachOf + " and n <= 900", // the sweep reads as many from the oldest on
		} {
			b.Exec(t, sql, of, count, seconds)
		}
		if of == "free" {
			continue
		}
		unlock = b.hold(t, `do $$ begin
			perform from fence.leases for update;
			perform from fence.sessions for update;
			perform from fence.gateway_states for update;
			perform from fence.audit for update;
		end $$`)
	}
	expectSwept(t, newSweeper(t, b.Store, config), store.Swept{Expired: 1, SessionsExpired: 1})
	expectSQL(t, b, "locked", "select string_agg(distinct name, ' ') from fence.gateway_states")
	unlock()
	expectSwept(t, newSweeper(t, b.Store, config), store.Swept{Expired: 1100, SessionsExpired: 1100, AuditForgotten: 900})
}

// eachOf are rows of two kinds: $2 of each, that were due $3 seconds ago.
const eachOf = `from generate_series(1, $2::integer) n,
	lateral (select clock_timestamp() - $3::integer * interval '1 s' as at, clock_timestamp() - interval '40 days' as old) t
	where $1::text <> ''`

// TestSweeperRuns checks that a running sweeper reports what it did and its failures, and goes on after a failure.
func TestSweeperRuns(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.given(t, "lock", acquire, expire)
	swept, failed, ended := make(chan store.Swept), make(chan error), make(chan struct{})
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{Interval: 10 * time.Millisecond})
	go func() {
		defer close(ended)
		sweeper.Run(ctx, func(s store.Swept) { swept <- s }, func(err error) { failed <- err })
	}()
	// A sweep that finds nothing is not reported: the next report is the failure.
	if got := <-swept; got != (store.Swept{Expired: 1}) {
		t.Errorf("the sweep did %+v, want one expired", got)
	}
	b.Exec(t, "alter table fence.leases rename to hidden")
	select {
	case err := <-failed:
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("the sweep failed with %v, want ErrUnavailable", err)
		}
	case again := <-swept:
		t.Errorf("the sweep did %+v, want a failure", again)
	}
	b.Exec(t, "alter table fence.hidden rename to leases")
	cancel()
	for running := true; running; {
		select {
		case err := <-failed: // of the time when the table was hidden
			if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("the sweep failed with %v, want ErrUnavailable", err)
			}
		case <-ended:
			running = false
		}
	}
}

// TestSweepMovesRejectionsBySQL checks that rejections which a committed transaction reported become rejections of the
// source "sql": one for each group, with the table and the holder of the token.
// Of a resource that is too long for a name, the begin is kept.
func TestSweepMovesRejectionsBySQL(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	lock, _ := store.ParseName("lock", "reported/1")
	lease := b.granted(t, store.AcquireRequest{Lock: lock, OwnerID: "holder"})
	b.Exec(t, `create table reported (id text)`)
	b.Exec(t, `select fence.protect('reported', 'reported/{id}', 'observe')`)
	b.Exec(t, `insert into reported values (1), (2)`)
	b.Exec(t, `insert into reported values (1)`)
	b.Exec(t, `insert into reported select string_agg(chr(65536 + i), '') from generate_series(1, 3000) i`)
	if _, err := b.SQL.Exec(t.Context(), "select fence.try_guard('reported/1', $1, 1, gen_random_uuid())",
		lease.Token); err != nil {
		t.Fatal(err)
	}
	if _, err := newSweeper(t, b.Store, postgres.SweeperConfig{}).Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	var moved string
	err := b.SQL.QueryRow(t.Context(), `
		select string_agg(concat_ws(' ', case when length(resource) = 512 then 'long' else resource end,
				key, code, source, address, fencing_token > 0, owner_id, count), ', '
				order by resource, code) || ', left: ' || (select count(*) from fence.reported)
		from fence.rejections`).Scan(&moved)
	const want = "reported/1  lease_mismatch sql local t holder 1, reported/1 public.reported token_required sql local f 2, " +
		"reported/2 public.reported token_required sql local f 1, " +
		"long public.reported token_required sql local f 1, left: 0"
	if err != nil || moved != want {
		t.Errorf("the rejections are %q (%v), want %q", moved, err, want)
	}
}

// TestAuditText checks the text of an entry and the hashes of a seal, which must stay the same: exports have them.
func TestAuditText(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.Exec(t, `insert into fence.audit (id, at, principal, address, action, name, details) overriding system value
		values (7, '2026-01-02 03:04:05.000006+02', 'p', '::1', 'policy_set', E'é <b>\u2028', '{"b": 1.50, "aa": [null, "\n"]}'),
			(8, '2026-01-02 03:04:05.000006+02', 'anonymous', '::1', 'policy_set', '', '{}')`)
	b.Exec(t, `set timezone = 'Asia/Tokyo'; set datestyle = 'SQL, DMY'; select fence.sweep('audit', '0', null, null, null)`)
	expectSQL(t, b, `{"at": "2026-01-02T01:04:05.000006Z", "id": 7, "name": "é <b>`+"\u2028"+`", "action": "policy_set", `+
		`"address": "::1", "details": {"b": 1.50, "aa": [null, "\n"]}, "principal": "p"}`,
		"select fence.audit_text(a) from fence.audit a where id = 7")
	expectSQL(t, b, "7 1767315845000006 a454bc28325a73ad\n8 - edd26c74b087c850",
		`select regexp_replace(entries, '(\w{16})\w{48}', '\1', 'g') from fence.audit_seals`)
}

// TestSealWaitsForNone checks that a transaction that is left open keeps no other entry from being sealed, and that its
// own is in the next seal.
func TestSealWaitsForNone(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	const note = "select fence.note_action('fence_set', 'n', '{}', 'p', '')"
	open := b.begin(t)
	if _, err := open.Exec(t.Context(), note); err != nil {
		t.Fatal(err)
	}
	b.Exec(t, note)
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{})
	sealed := func(want string) {
		t.Helper()
		if _, err := sweeper.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		expectSQL(t, b, want, "select string_agg(concat_ws(' ', id, seal), ', ' order by id) from fence.audit")
	}
	sealed("2 1")
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	sealed("1 2, 2 1")
	sealed("1 2, 2 1")
}

// TestSweepSealsBeforeItDeletes checks that the sweep deletes no entry that is in no seal.
func TestSweepSealsBeforeItDeletes(t *testing.T) {
	t.Parallel()
	for principal, sweep := range map[string]string{
		"p": "fence.sweep('audit', '0', null, '0', null)", "anonymous": "fence.sweep('audit', '0', null, null, 1)",
	} {
		b := newTestbed(t)
		b.Exec(t, "update fence.sweeps set age = '0', count_max = 1 where part = 'audit'")
		b.Exec(t, "select fence.note_action('fence_set', '', '{}', $1, '') from generate_series(1, 150)", principal)
		expectSQL(t, b, "100 deleted", "select done || ' deleted' from "+sweep)
		expectSQL(t, b, "50 in no seal", "select count(*) || ' in no seal' from fence.audit where seal is null")
	}
}

// TestSealsAreDurable checks that a sweep which has made a seal waits for the disk, and another one does not.
func TestSealsAreDurable(t *testing.T) {
	t.Parallel()
	for sweep, want := range map[string]string{
		"fence.sweep_all()": "on", "fence.sweep('audit', '0', null, null, null)": "on", "fence.sweep('leases', '0', null, null, null)": "off",
	} {
		b := newTestbed(t)
		b.Exec(t, "select fence.note_action('fence_set', 'n', '{}', 'p', '')")
		for _, want := range []string{want, "off"} {
			tx := b.begin(t)
			var setting string
			if err := tx.QueryRow(t.Context(), "select current_setting('synchronous_commit') from "+
				"(select count(*) from "+sweep+") swept where count > 0").Scan(&setting); err != nil || setting != want {
				t.Errorf("after %s synchronous_commit is %s (%v), want %s", sweep, setting, err, want)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
