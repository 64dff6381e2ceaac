package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// leaseCases are promises of leases that the conformance suite can't check: they look at fences, or need SQL to happen.
var leaseCases = []storeCase{
	{"P1: one holder", all(acquire, changingNothing(heldBy(acquire, "owner-1")))},
	{"P1: not even its owner again", all(acquire, changingNothing(heldBy(acquireAgain, "owner-1")))},
	{"P2: a sequence that lags behind the fence", all(acquire, release, lag, acquire, expectGreater)},
	{"P2: tokens start above those of an authority before", all(external, wrote(with(token(1<<40))),
		under(store.Policy{}), acquire, func(_ context.Context, s *fixture) error {
			if s.newest().Token <= 1<<40 {
				return fmt.Errorf("token %d was granted after a write with %d", s.newest().Token, 1<<40)
			}
			return nil
		}, wrote(with(newest)))},
	{"P3: the grant raises the fence, not the first write", all(acquire, wrote(with(newest, sequence(1))), replace,
		rejected(with(first, sequence(2)), "token_stale superseded"))},
	{"P3: a write in flight when the lock is granted", all(acquire, expire,
		whileGranted("", store.Node, rejectedMeanwhile(with(first), "superseded")))},
	{"P7: an expired lock is granted without a sweep", all(acquire, expire, acquire)},
	{"a lease begins after the one before it has ended", all(acquire, expire, grantedAfterSweep)},
	{"a renewal in time that is not committed yet", all(acquire, expire, renewedInTime)},
	{"a late release closes the fence", all(acquire, expire, sweep, release, expectOpen(false))},
	{"a lock under an external authority is not granted",
		all(external, changingNothing(func(ctx context.Context, s *fixture) error {
			if err := acquire(ctx, s); !errors.Is(err, store.ErrExternalAuthority) {
				return fmt.Errorf("the acquire returned %w, want ErrExternalAuthority", err)
			}
			return nil
		}))},
	{"a lock that was never granted", changingNothing(expectNoSuchLock)},
	{"a break closes the fence of a late holder", all(acquire, expire, breakLock, expectOpen(false))},
}

// acquireAgain is an acquire of the first owner.
func acquireAgain(ctx context.Context, s *fixture) error {
	_, err := s.Acquire(ctx, store.AcquireRequest{Lock: s.lock, OwnerID: "owner-1"})
	return err
}

// rejectedMeanwhile expects that a write is stale, for a reason. Other calls may change rows at the same time.
func rejectedMeanwhile(spec writeSpec, reason string) step {
	return func(ctx context.Context, s *fixture) error {
		result, err := bySet(ctx, s.Store, spec(s))
		if got := brief(result); err == nil && got != "token_stale "+reason {
			err = fmt.Errorf("the write is %s, want token_stale %s", got, reason)
		}
		return err
	}
}

// acquireWhileLeaseIsLocked acquires the lock, whose lease has expired and is locked, and changed, by another
// transaction. It does so by SQL: a Store would begin anew after 100 ms, and see the change.
func (s *fixture) acquireWhileLeaseIsLocked(
	ctx context.Context, meanwhile func(pgx.Tx) error,
) (status string, err error) {
	lock := executing(ctx, "select from fence.leases where lock = $1 for update", s.lock)
	err = s.whileLocked(ctx, lock, func() error {
		return s.SQL.QueryRow(ctx, "select status from fence.acquire($1, 'the next')", s.lock).Scan(&status)
	}, meanwhile)
	return status, err
}

// grantedAfterSweep grants a lock while a sweep ends its lease: the new lease begins after that.
func grantedAfterSweep(ctx context.Context, s *fixture) error {
	var ended, granted time.Time
	_, err := s.acquireWhileLeaseIsLocked(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `
			update fence.leases set expires_at = now.at, ended_at = now.at, end_reason = 'expired'
			from (select clock_timestamp() as at) now where lock = $1 returning ended_at`, s.lock).Scan(&ended)
	})
	if err == nil {
		const newest = "select granted_at from fence.leases where lock = $1 and owner_id = 'the next'"
		err = s.SQL.QueryRow(ctx, newest, s.lock).Scan(&granted)
	}
	if err == nil && granted.Before(ended) {
		err = fmt.Errorf("a lease was granted at %s, the one before it ended at %s", granted, ended)
	}
	return err
}

// renewedInTime is a renewal that had locked the lease before it ran out: an acquire must wait for it.
func renewedInTime(ctx context.Context, s *fixture) error {
	status, err := s.acquireWhileLeaseIsLocked(ctx, executing(ctx,
		"update fence.leases set expires_at = clock_timestamp() + interval '1 hour' where lock = $1", s.lock))
	if err == nil && status != "held" {
		err = fmt.Errorf("the lock is %s beside a lease that was renewed in time", status)
	}
	return err
}

// oneMutations break the functions that decide about one acquire and one release, in the cases of togetherCases that
// call them by themselves.
var oneMutations = []mutation{
	{"one: a held lock is granted", "may_be_held", replacing("not p_newest_ended", "false"),
		[]string{"one, alone: a lock that is held", "one, alone: a lease that has expired"}},
	{"one: a writer beside readers", "may_be_held", replacing("p_mode = 'exclusive'", "false"),
		[]string{"one, alone: a writer after a reader"}},
	{"one: the newest lease may be missing", "may_be_held", replacing("p_granted_token > 0", "false"),
		[]string{"one, alone: a lease that is not the newest grant"}},
	{"one: used request_ids are overlooked", "acquire_lease",
		replacing("if v_found.again then", "if false then"),
		[]string{"one, alone: a request_id that was used"}},
	{"one: another authority", "acquire_lease", replacing(
		"v_found.policies and fence.has_external_tokens(p_request.lock)", "false"),
		[]string{"one, alone: another authority"}},
	{"one: acquires wait for fences", "acquire_lease", removing(" skip locked"), []string{"one, alone: a locked fence"}},
	{"one: acquires overlook the tree lock", "acquire_lease", replacing("elsif fence.try_tree_lock(p_request.lock) then", "else"),
		[]string{"one, alone: a subtree above that is being requested"}},
	{"one: acquires wait for an expired lease", "expire_or_blocker", replacing("if p_may_wait then", "if true then"),
		[]string{"one, alone: an expired lease that is locked"}},
	{"one: an expired lease that is locked is granted", "expire_or_blocker", replacing("            return v_lease;\n", "            return null;\n"),
		[]string{"one, alone: an expired lease that is locked"}},
	{"one: a locked lease is found again", "acquire_lease",
		replacing("not p_may_wait and not fence.try_lease", "false and not fence.try_lease"),
		[]string{"one, alone: a lease to be adopted that is locked"}},

	{"one: the owner of a release proves nothing", "release_lease",
		replacing("(l.lease_id, l.owner_id) = (p_lease_id, p_owner_id)", "l.lease_id = p_lease_id"),
		[]string{"one, alone: a release by another owner"}},
	{"one: the lease_id of a release proves nothing", "release_lease",
		replacing("(l.lease_id, l.owner_id) = (p_lease_id, p_owner_id)", "l.owner_id = p_owner_id"),
		[]string{"one, alone: a release with another lease_id"}},
	{"one: a release waits for locks", "release_lease", removing(" skip locked"),
		[]string{"one, alone: a release of a locked lease", "one, alone: a release under a locked fence"}},
	{"one: a release overlooks the tree lock", "release_lease", replacing("elsif fence.try_tree_lock(p_lock) then", "else"),
		[]string{"one, alone: a release below a subtree that is being requested"}},
	{"one: a release of a subtree under the tree lock of a name", "release_lease", removing(" and l.scope = 'node'"),
		[]string{"one, alone: a release of a subtree"}},
	{"one: a release overlooks waiters", "release_lease", replacing("if v_found.waiters and v_fence.resource is not null then", "if false then"),
		[]string{"one, alone: a release with a waiter"}},
	{"one: a release overlooks subtrees", "release_lease",
		replacing("if v_scope = 'subtree' or fence.has_subtrees(p_lock) then", "if v_scope = 'subtree' then"),
		[]string{"one, alone: a release below a subtree"}},
	{"one: a release overlooks watchers", "release_lease", replacing("v_found.watched and ", "false and "),
		[]string{"one, alone: a release that is watched"}},
	{"one: a grant overlooks watchers", "grant_lease", replacing("if p_watched then", "if false then"),
		[]string{"one, alone: a lock that is watched"}},
}

// TestGiveBackAfterTheRequestWasSentAgain checks that a gateway that gives back a lease whose client is gone does not
// take it from the client, if the client has sent its request again through another gateway. If the client does so
// later, it gets another lease.
func TestGiveBackAfterTheRequestWasSentAgain(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	gateway := uuid.New()
	b.Exec(t, "select fence.heartbeat($1, 60000)", gateway)
	for _, before := range []bool{false, true} { // the lease is given back before the request is sent again
		lock := store.Name(fmt.Sprint("before ", before))
		request := store.AcquireRequest{Lock: lock, OwnerID: "waiter", Mode: store.Exclusive, Scope: store.Node,
			TTL: time.Minute, RequestID: "request", Wait: time.Minute}
		holder := b.granted(t, store.AcquireRequest{Lock: lock, OwnerID: "holder"})
		if acquired, err := b.Enqueue(t.Context(), request, gateway, store.ToQueue{}); err != nil || acquired.Ticket == 0 {
			t.Fatalf("the request is not in the queue: %+v (%v)", acquired, err)
		}
		if err := b.Release(t.Context(), holder.Ref()); err != nil {
			t.Fatal(err)
		}
		granted, err := b.GrantNext(t.Context(), gateway, lock, store.Node, time.Second)
		if err != nil || len(granted) == 0 || !granted[0].Done || granted[0].Err != nil {
			t.Fatalf("the lock is not granted to the waiter: %+v (%v)", granted, err)
		}
		giveBack := func() {
			if err := b.GiveBack(t.Context(), granted[0].Lease); err != nil {
				t.Error(err)
			}
		}
		if before {
			giveBack()
		}
		request.Wait = 0
		lease := b.granted(t, request)
		if !before {
			giveBack()
		}
		if (lease.Ref() != granted[0].Lease.Ref()) != before {
			t.Errorf("given back before: %v; sent again the request was granted %+v, after %+v", before, lease, granted[0])
		}
		if _, err := b.Renew(t.Context(), lease.Ref(), 0); err != nil {
			t.Errorf("given back before: %v; the client can't renew its lease: %v", before, err)
		}
	}
}

// acquireEight acquires eight locks in a batch.
const acquireEight = "select count(*) from fence.acquire_leases(array(select 'lock/' || n from generate_series(1, 8) n), " +
	"array_fill('o'::text, array[8]), array_fill(''::text, array[8]), array_fill('exclusive'::text, array[8]), " +
	"array_fill(3600000, array[8]), array(select gen_random_uuid()::text from generate_series(1, 8)), " +
	"array_fill(null::text, array[8]), array_fill(0, array[8]), '{}')"

// TestLeasesAreReadByKey checks that the functions that decide about leases read as many rows beside thousands of
// running leases, waiters and watched locks as beside none, though the statistics know of none of these: they may be a
// minute late.
func TestLeasesAreReadByKey(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	for _, table := range []string{"fences", "leases", "waiters", "watched"} {
		b.Exec(t, "alter table fence."+table+" set (autovacuum_enabled = off)")
		b.Exec(t, "analyze fence."+table)
	}
	b.Exec(t, "insert into fence.fences (resource, last_token) select 'lock/' || n, 1 from generate_series(1, 8) n")
	const (
		acquireAlone = "select fence.acquire_lease(fence.lease_request('lock/1', 'o', 'exclusive', 'node', 60000, null, " +
			"gen_random_uuid()::text, null), 0, null, %t)"
		refs = "select format('%L::text[], %L::text[], %L::uuid[], %L::bigint[]', array_agg(lock), array_agg(owner_id), " +
			"array_agg(lease_id), array_agg(fencing_token)) from fence.leases where lock like 'lock/%' and ended_at is null"
		release = "select format('select fence.release_lease(%%L, %%L, %%L, %%L, null, %t)', lock, owner_id, lease_id, fencing_token) " +
			"from fence.leases where lock = 'lock/1'"
	)
	measure := func() map[string]int64 {
		read := map[string]int64{"acquire": rowsRead(t, b, acquireEight)}
		expectSQL(t, b, 8, "select count(*) from fence.leases where lock like 'lock/%' and ended_at is null")
		of := valueOf[string](t, b, refs)
		read["renew"] = rowsRead(t, b, fmt.Sprintf(
			"select count(*) from fence.renew_leases(%s, array_fill(7200000, array[8]), false)", of))
		expectSQL(t, b, 8, "select count(*) from fence.leases where lock like 'lock/%' and ttl_ms = 7200000 and ended_at is null")
		read["release"] = rowsRead(t, b, fmt.Sprintf("select count(*) from fence.release_leases(%s)", of))
		expectSQL(t, b, 0, "select count(*) from fence.leases where lock like 'lock/%' and ended_at is null")
		b.Exec(t, "delete from fence.leases where lock like 'lock/%'")
		b.Exec(t, "update fence.fences set granted_token = 0, open = false")

		for _, mayWait := range []bool{false, true} {
			acquire, suffix := fmt.Sprintf(acquireAlone, mayWait), fmt.Sprintf(" (%t)", mayWait)
			read["acquire alone"+suffix] = rowsRead(t, b, acquire)
			read["held"+suffix] = rowsRead(t, b, acquire)
			read["release alone"+suffix] = rowsRead(t, b, valueOf[string](t, b, fmt.Sprintf(release, mayWait)))
			expectSQL(t, b, 1, "select count(*) from fence.leases where lock = 'lock/1' and end_reason = 'released'")
			b.Exec(t, "delete from fence.leases where lock like 'lock/%'")
			b.Exec(t, "update fence.fences set granted_token = 0, open = false")
		}
		return read
	}
	few := measure()
	for _, seed := range []string{
		"insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at, request_id) " +
			"select 'other/' || n, n, gen_random_uuid(), 'o' || n, 1000, now(), now() + interval '1 hour', n::text",
		"insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at, request_id) " +
			"select 'other/' || n, gen_random_uuid(), 'w' || n, 'exclusive', 'node', 1000, now(), now() + interval '1 hour', " +
			"n::text",
		"insert into fence.watched (lock, until) select 'other/' || n, now() + interval '1 hour'",
	} {
		b.Exec(t, seed+" from generate_series(1, 3000) n")
	}
	if many := measure(); !maps.Equal(few, many) {
		t.Errorf("the rows read beside 3,000 running leases, waiters and watched locks are %v, beside none %v", many, few)
	}
}

// TestHistoryOfALockIsNotRead checks that an acquire reads as many rows beside a hundred ended leases of its lock as
// beside one, and as many beside a hundred waiters; and a reader's release beside a hundred other readers. The plans
// are made when there is one: then any index on locks seems to lead to one row, and that on locks and requests is the
// largest.
func TestHistoryOfALockIsNotRead(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	const (
		locks  = "generate_series(1, 200) n, generate_series(1, $1) i"
		leases = "insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at, " +
			"ended_at, end_reason, request_id) select 'lock/' || n, n + 1000 * i, gen_random_uuid(), 'o', 1000, now(), now(), " +
			"now(), 'released', gen_random_uuid()::text from " + locks
		waiters = "insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at, " +
			"request_id) select 'busy/' || n, gateway_id, 'w', 'exclusive', 'node', 1000, now(), now() + interval '1 hour', " +
			"gen_random_uuid()::text from fence.gateways, " + locks
		readers = "insert into fence.leases (lock, fencing_token, lease_id, owner_id, mode, ttl_ms, granted_at, expires_at) " +
			"select 'read/' || n, n + 1000 * i, gen_random_uuid(), 'o', 'shared', 3600000, now(), " +
			"now() + interval '1 hour' from " + locks
		request = "fence.lease_request('%s/1', 'o', 'exclusive', 'node', 60000, null, gen_random_uuid()::text, null)"
	)
	b.Exec(t, "insert into fence.fences (resource, granted_token) select l || n, n + 1000 from generate_series(1, 200) n, "+
		"(values ('lock/'), ('busy/'), ('read/')) l (l)")
	for _, table := range []string{"leases", "waiters"} {
		b.Exec(t, "alter table fence."+table+" set (autovacuum_enabled = off)")
	}
	b.Exec(t, "insert into fence.gateways (gateway_id, alive_until) values (gen_random_uuid(), now() + interval '1 hour')")
	b.Exec(t, leases, 1)
	b.Exec(t, waiters, 1)
	b.Exec(t, readers, 1)
	statements := map[string]string{
		"a batch": acquireEight,
		"a release": "select fence.release_lease(lock, owner_id, lease_id, fencing_token, null, false) from fence.leases " +
			"where lock = 'read/1' and fencing_token = 1001",
		"alone":    fmt.Sprintf("select fence.acquire_lease("+request+", 0, null, false)", "lock"),
		"in Redis": fmt.Sprintf("select fence.grant_elsewhere("+request+", gen_random_uuid(), 0)", "lock"),
		"waits": fmt.Sprintf("select fence.acquire_lease("+request+", 1000, (select gateway_id from fence.gateways limit 1), false)",
			"busy"),
	}
	measure := func() map[string]int64 {
		read := map[string]int64{}
		for name, sql := range statements {
			read[name] = rowsReadUndone(t, b, sql)
		}
		return read
	}
	one := measure()
	b.Exec(t, strings.Replace(leases, "1000 * i", "1000 * (i + 1)", 1), 100)
	b.Exec(t, waiters, 100)
	b.Exec(t, strings.Replace(readers, "1000 * i", "1000 * (i + 1)", 1), 100)
	if hundred := measure(); !maps.Equal(one, hundred) {
		t.Errorf("the rows read beside a hundred leases, waiters and readers of each lock are %v, beside one %v", hundred, one)
	}
}
