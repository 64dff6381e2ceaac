package waitqueue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

// TestHandOver checks that a release grants the lock to the next waiter of the process in the same transaction: the
// engine does not run, so nothing else could wake the waiter.
func TestHandOver(t *testing.T) {
	t.Parallel()
	b := enginetest.New(t)
	e := enginetest.Serve(t, b.Store, engine.Config{})
	ctx := await.Context(t)
	request := store.AcquireRequest{Lock: "lock", OwnerID: "holder", TTL: time.Hour}
	held, err := e.Acquire(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	waiters := make([]chan store.Lease, 2)
	for i := range waiters {
		waiters[i] = make(chan store.Lease, 1)
		request := request
		request.OwnerID, request.Wait = "waiter", store.WaitMax
		go func() {
			lease, err := e.Acquire(ctx, request)
			if err != nil {
				t.Error(err)
			}
			waiters[i] <- lease
		}()
		await.True(t, "the acquire is in the queue", func() bool {
			return b.Count(t, "select count(*) from fence.waiters") == i+1
		})
	}
	for i := range waiters {
		if err := e.Release(ctx, held.Ref()); err != nil {
			t.Fatal(err)
		}
		next := await.Receive(t, "the next waiter has the lock", waiters[i])
		sameTransaction := b.Count(t, "select count(*) from fence.leases l join fence.leases n on n.lock = l.lock "+
			"where l.fencing_token = $1 and n.fencing_token = $2 and l.xmin = n.xmin", held.Token, next.Token)
		if sameTransaction != 1 || next.Token <= held.Token {
			t.Errorf("token %d was granted after %d in another transaction", next.Token, held.Token)
		}
		held = next
	}
	// A lease that was lost is not released, and nobody gets the lock.
	stale := held.Ref()
	stale.ID[0]++
	if err := e.Release(ctx, stale); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("the release with another lease_id: %v, want ErrLeaseLost", err)
	}
}

// A caller that leaves while its acquire is sent again, and granted, gets no lease. The lock is free at once.
func TestCallerLeavesWhileItIsQueuedAgain(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{
		"it is granted then":  "select",
		"it was granted then": "select fence.grant_next(w.gateway_id, w.lock, w.scope) from fence.waiters w",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leaveWhileQueuedAgain(t, before)
		})
	}
}

func leaveWhileQueuedAgain(t *testing.T, before string) {
	t.Helper()
	b := enginetest.New(t)
	e := enginetest.Serve(t, b.Store, engine.Config{})
	if _, err := e.Acquire(t.Context(), store.AcquireRequest{Lock: "lock", OwnerID: "holder", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(await.Context(t))
	left := make(chan error, 1)
	go func() {
		_, err := e.Acquire(ctx, store.AcquireRequest{Lock: "lock", OwnerID: "leaver", Wait: store.WaitMax})
		left <- err
	}()
	await.True(t, "the acquire is in the queue", func() bool { return b.Count(t, "select count(*) from fence.waiters") == 1 })
	b.Exec(t, "update fence.leases set granted_at = granted_at - interval '1 day', "+
		"expires_at = clock_timestamp() - interval '1 millisecond' where lock = 'lock'")
	b.Exec(t, before)
	_, unlock := b.LockedBy(t, "select from fence.fences where resource = 'lock' for update")
	e.Waiters().RequeueAll()
	if err := b.AwaitBlocked(await.Context(t), left); err != nil {
		t.Fatal(err)
	}
	leave()
	unlock()
	if err := await.Receive(t, "the end of the acquire", left); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left got %v, want the error of its context", err)
	}
	if n := b.Count(t, "select count(*) from fence.leases where ended_at is null"); n != 0 {
		t.Errorf("%d leases run, want none: nobody has them", n)
	}
	if n := b.Count(t, "select count(*) from fence.leases where owner_id = 'leaver'"); n != 1 {
		t.Errorf("the caller that left was granted %d leases, want one: the test must reach its grant", n)
	}
}

// A hand-over reads the beginning of the queue only, however long it is, and so do a release and a grant.
func TestHandOverReadsLittle(t *testing.T) {
	t.Parallel()
	const waiters = 2000
	const holder = "l.lock, l.owner_id, l.lease_id, l.fencing_token"
	for name, statements := range map[string][]string{
		"a hand-over": {"select h.outcome from fence.leases l, fence.release_lease(" + holder + ", '" + crowdGateway + "', true) h " +
			"where l.lock = 'hot' and l.ended_at is null"},
		"a release, and then a grant": {"select r.status from fence.leases l, fence.release_lease(" + holder + ", null, true) r " +
			"where l.lock = 'hot'", "select g.outcome from fence.grant_next('" + crowdGateway + "', 'hot', 'node') g"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := enginetest.New(t)
			crowd(t, b.URL, waiters, "hot")
			tx, err := b.SQL.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			var outcome string
			for _, sql := range statements {
				if err := tx.QueryRow(t.Context(), sql).Scan(&outcome); err != nil {
					t.Fatal(err)
				}
			}
			var read int
			const sql = `select idx_tup_fetch + seq_tup_read from pg_stat_xact_user_tables where relid = 'fence.waiters'::regclass`
			if err := tx.QueryRow(t.Context(), sql).Scan(&read); err != nil || outcome != "granted" || read > waiters/20 {
				t.Errorf("%s: %d rows were read (%v), of %d waiters", outcome, read, err, waiters)
			}
		})
	}
}

// The queue of one lock is read without those of others, though the statistics are from a time when one queue was all
// there was.
func TestQueueIsReadByItsLock(t *testing.T) {
	t.Parallel()
	const waiters = 2000
	b := enginetest.New(t)
	crowd(t, b.URL, waiters, "cold")
	b.Exec(t, "delete from fence.waiters where lock <> 'hot'")
	b.Exec(t, "analyze fence.waiters")
	b.Exec(t, "insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at) "+
		"values ('cold', '"+crowdGateway+"', 'next', 'exclusive', 'node', 1000, now(), now() + interval '1 day')")
	tx, err := b.SQL.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	read := func() (rows int) {
		const sql = "select idx_tup_fetch + seq_tup_read from pg_stat_xact_user_tables where relid = 'fence.waiters'::regclass"
		if err := tx.QueryRow(t.Context(), sql).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	before := read()
	for _, sql := range []string{
		"select (fence.acquire_lease(fence.lease_request('cold', 'late', 'exclusive', 'node', 1000, null, null, null), " +
			"0, null, true)).outcome",
		"select h.outcome from fence.leases l, fence.release_lease(l.lock, l.owner_id, l.lease_id, l.fencing_token, '" +
			crowdGateway + "', true) h where l.lock = 'cold'",
	} {
		var outcome string
		if err := tx.QueryRow(t.Context(), sql).Scan(&outcome); err != nil {
			t.Fatal(err)
		}
	}
	if rows := read() - before; rows > waiters/20 {
		t.Errorf("%d rows were read, of %d waiters for another lock", rows, waiters)
	}
}
