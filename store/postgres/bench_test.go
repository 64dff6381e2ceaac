package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// manyLocksSQL makes 100,000 locks: seven of ten held exclusively, of which a seventh in 2,000 sessions, and 1,000 by a
// late holder; one of ten by a reader; the others free. 3,000 have queues of 1 to 5. Each has two leases that ended
// before; 1,000 were elections.
const manyLocksSQL = `
	insert into fence.gateways values ('00000000-0000-0000-0000-000000000001', clock_timestamp() + interval '1 day');
	insert into fence.sessions (session_id, owner_id, ttl_ms, created_at, expires_at)
	select ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid, 'session-owner-' || n, 3600000, clock_timestamp(),
		clock_timestamp() + interval '20 h'
	from generate_series(1, 2000) n;
	create temp table made as
	select n, ('tenant-' || (n % 97) || '/jobs/' || md5(n::text))::text as lock, n % 10 as kind from generate_series(1,
		100000) n;
	insert into fence.fences (resource, granted_token, open, last_token) select m.lock, 200000 + n, kind < 7, 200000 + n
		from made m;
	insert into fence.leases (lock, fencing_token, lease_id, owner_id, mode, ttl_ms, granted_at, expires_at, session_id,
		metadata, ended_at, end_reason)
	select m.lock, 200000 + n, gen_random_uuid(), 'worker-' || (n % 5000), case kind when 7 then 'shared' else 'exclusive'
		end, 30000,
		clock_timestamp() - random() * interval '1 h',
		case when kind = 1 then 'infinity' when n % 100 = 2 then clock_timestamp() - interval '1 min' else clock_timestamp() +
			(9 + random()) * interval '1 h' end,
		case when kind = 1 then ('00000000-0000-4000-8000-' || lpad((1 + n % 2000)::text, 12, '0'))::uuid end,
		case when n % 100 = 3 then '{"value":"http://10.0.0.7:9000"}' else '{"host":"a7"}' end::json,
		case when kind > 7 then clock_timestamp() end, case when kind > 7 then 'released' end
	from made m;
	insert into fence.leases (lock, fencing_token, lease_id, owner_id, mode, ttl_ms, granted_at, expires_at, ended_at,
		end_reason)
	select m.lock, n + k * 100000 - 99999, gen_random_uuid(), 'worker-' || (n % 5000), 'exclusive', 30000,
		clock_timestamp(), clock_timestamp(), clock_timestamp(), 'released'
	from made m, generate_series(1, 2) k;
	insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
	select m.lock, '00000000-0000-0000-0000-000000000001', 'waiter-' || k, 'exclusive', 'node', 30000, clock_timestamp(),
		clock_timestamp() + interval '20 h'
	from made m, generate_series(1, 5) k where n <= 3000 and k <= 1 + n % 5;
	analyze`

// BenchmarkLists measures a page of each list among 100,000 locks:
//
//	go test ./store/postgres -run '^$' -bench BenchmarkLists -benchtime 10x
func BenchmarkLists(b *testing.B) {
	url := pgtest.Migrated(b)
	conn, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := conn.Exec(b.Context(), manyLocksSQL); err != nil {
		b.Fatal(err)
	}
	_ = conn.Close(context.WithoutCancel(b.Context())) // it is the server's to notice
	s, err := postgres.Open(b.Context(), postgres.Config{DatabaseURL: url})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	ctx := b.Context()
	for name, query := range map[string]store.LockQuery{
		"by name":                     {},
		"by expires_at":               {Sort: store.LocksByExpiry},
		"by expires_at, descending":   {Sort: store.LocksByExpiry, Descending: true},
		"by expires_at, page of 1000": {Sort: store.LocksByExpiry, Limit: 1000},
		"by granted_at":               {Sort: store.LocksByGrant, Descending: true},
		"by fencing_token":            {Sort: store.LocksByToken, Descending: true},
		"by queue":                    {Sort: store.LocksByWaiters, Descending: true},
		"held":                        {State: store.LockHeld},
		"expired":                     {State: store.LockExpired},
		"free by name, descending":    {State: store.LockFree, Descending: true},
		"of an owner":                 {OwnerID: "worker-17"},
		"of an owner, by expires_at":  {OwnerID: "worker-17", Sort: store.LocksByExpiry},
		"containing a name":           {Contains: "ffff"},
		"containing an owner":         {Contains: "worker-499"},
		"containing nothing":          {Contains: "no such text"},
		"prefix, by expires_at":       {Prefix: "tenant-17/", Sort: store.LocksByExpiry},
		"containing, held, by queue": {Contains: "tenant-1", State: store.LockHeld, Sort: store.LocksByWaiters,
			Descending: true},
		"by expires_at, a middle page": {Sort: store.LocksByExpiry, After: "tenant-5/jobs/x",
			AfterValue: 2_000_000_000_000_000},
	} {
		if query.Limit == 0 {
			query.Limit = 100
		}
		query.QueueMax = 10
		measure(b, "locks "+name, func() error { _, err := s.Locks(ctx, query); return err })
		if query.State != "" || query.Contains != "" {
			measure(b, "count of locks "+name, func() error { _, err := s.CountLocks(ctx, query); return err })
		}
	}
	measure(b, "count of all locks", func() error { _, err := s.CountLocks(ctx, store.LockQuery{Limit: 1}); return err })
	for name, query := range map[string]store.LeaseQuery{
		"": {}, "running": {State: store.LeaseRunning}, "ended": {State: store.LeaseEnded},
		"of an owner": {OwnerID: "worker-17"},
		"of nobody":   {OwnerID: "nobody"}, "running of an owner": {OwnerID: "worker-17", State: store.LeaseRunning},
	} {
		query.Limit = 100
		measure(b, "leases "+name, func() error { _, err := s.Leases(ctx, query); return err })
	}
	measure(b, "sessions", func() error { _, err := s.Sessions(ctx, store.SessionQuery{Limit: 100}); return err })
	measure(b, "elections", func() error { _, err := s.Elections(ctx, store.ElectionQuery{Limit: 100}); return err })
	measure(b, "elections of nothing", func() error {
		_,
			err := s.Elections(ctx, store.ElectionQuery{Prefix: "x", Limit: 100})
		return err
	})
	measure(b, "waits", func() error { _, err := s.Waits(ctx, "", store.WaitsMax, nil); return err })
}

func measure(b *testing.B, name string, list func() error) {
	b.Helper()
	b.Run(name, func(b *testing.B) {
		for b.Loop() {
			if err := list(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// crowdSQL makes a queue for the lock hot: of waiters of one gateway, every $2-th an exclusive one, the others shared.
// $3 owners hold it together, or the one owner of cold; the last waiter holds cold, so its wait may close a cycle.
const crowdSQL = `
	with gateway as (
		insert into fence.gateways values ('00000000-0000-0000-0000-000000000001', clock_timestamp() + interval '1 day')
		returning gateway_id
	), fences as (
		insert into fence.fences (resource, granted_token, open)
		values ('hot', 100000, $3::integer = 1), ('cold', 100001, true)
	), leases as (
		insert into fence.leases (lock, fencing_token, lease_id, owner_id, mode, ttl_ms, granted_at, expires_at)
		select 'hot', 100001 - n, gen_random_uuid(), 'holder ' || n, case $3 when 1 then 'exclusive' else 'shared' end, 1000,
			clock_timestamp(), clock_timestamp() + interval '1 day'
		from generate_series(1, $3) n
		union all
		select 'cold', 100001, gen_random_uuid(), 'waiter ' || $1::integer, 'exclusive', 1000, clock_timestamp(),
			clock_timestamp() + interval '1 day'
	)
	insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
	select 'hot', g.gateway_id, 'waiter ' || n, case n % $2 when 0 then 'exclusive' else 'shared' end, 'node', 1000,
		clock_timestamp(), clock_timestamp() + interval '1 day'
	from gateway g, generate_series(1, $1) n
	order by n`

// openCrowd returns a store with the queue of crowdSQL, and a connection.
func openCrowd(b *testing.B, waiters, writers, holders int) (*postgres.Store, *pgx.Conn) {
	b.Helper()
	url := pgtest.Migrated(b)
	conn, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(context.WithoutCancel(b.Context())) })
	if _, err := conn.Exec(b.Context(), crowdSQL, waiters, waiters/writers, holders); err != nil {
		b.Fatal(err)
	}
	if _, err := conn.Exec(b.Context(), "analyze"); err != nil {
		b.Fatal(err)
	}
	s, err := postgres.Open(b.Context(), postgres.Config{DatabaseURL: url})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	return s, conn
}

// measureSQL measures a statement whose transaction is rolled back.
func measureSQL(b *testing.B, conn *pgx.Conn, name, sql string, args ...any) {
	b.Helper()
	measure(b, name, func() error {
		tx, err := conn.Begin(b.Context())
		if err != nil {
			return err
		}
		_, err = tx.Exec(b.Context(), sql, args...)
		return errors.Join(err, tx.Rollback(b.Context()))
	})
}

// BenchmarkWaitGraph measures the wait graph around a lock, and the search for deadlocks, of 5,000 readers and 500
// writers:
//
//	go test ./store/postgres -run '^$' -bench BenchmarkWaitGraph -benchtime 10x
func BenchmarkWaitGraph(b *testing.B) {
	for name, crowd := range map[string]struct{ waiters, holders int }{
		"5,000 readers hold, 500 writers wait":   {500, 5000},
		"5,000 readers wait between 500 writers": {5500, 1},
	} {
		b.Run(name, func(b *testing.B) {
			s, conn := openCrowd(b, crowd.waiters, 500, crowd.holders)
			ctx := b.Context()
			var tickets []int64
			const sql = "select array(select ticket from fence.waiters order by ticket desc limit 500)"
			if err := conn.QueryRow(ctx, sql).Scan(&tickets); err != nil {
				b.Fatal(err)
			}
			measure(b, "waits around the lock", func() error { _, err := s.Waits(ctx, "hot", store.WaitsMax, nil); return err })
			measure(b, "deadlocks of the last wait", func() error { _, err := s.FindDeadlocks(ctx, tickets[:1]); return err })
			measure(b, "deadlocks of 500 waits", func() error { _, err := s.FindDeadlocks(ctx, tickets); return err })
		})
	}
}

// BenchmarkLongQueue measures statements about a queue of 10,000 writers:
//
//	go test ./store/postgres -run '^$' -bench BenchmarkLongQueue -benchtime 10x
func BenchmarkLongQueue(b *testing.B) {
	_, conn := openCrowd(b, 10_000, 10_000, 1)
	const gateway = "00000000-0000-0000-0000-000000000001"
	for name, sql := range map[string]string{
		"the first of live_waiters": "select from fence.live_waiters() w where w.lock = 'hot' order by w.ticket limit 1",
		"all live_waiters":          "select count(*) from fence.live_waiters() w where w.lock = 'hot'",
		"must_queue of the last":    "select fence.must_queue('hot', 'exclusive', 'node', max(ticket)) from fence.waiters",
	} {
		measureSQL(b, conn, name, sql)
	}
	measureSQL(b, conn, "grant_next while it is held", "select fence.grant_next($1, 'hot', 'node')", gateway)
	if _, err := conn.Exec(b.Context(), "delete from fence.leases where lock = 'hot'"); err != nil {
		b.Fatal(err)
	}
	measureSQL(b, conn, "grant_next of one lease", "select fence.grant_next($1, 'hot', 'node')", gateway)
}

// BenchmarkOpenTransactions measures how long acquires of free locks take while transactions of other sessions stay open:
// some that keep a fence each, with two clients that acquire each of these locks again and again; or one that requests a
// subtree, with sixty clients that acquire locks below it.
func BenchmarkOpenTransactions(b *testing.B) {
	for _, guards := range []int{0, 4, 12, 40} {
		b.Run(fmt.Sprintf("guards=%d", guards), func(b *testing.B) {
			names := make([]string, guards)
			for i := range names {
				names[i] = string(numbered("hot", i))
			}
			benchmarkAcquires(b, lockFencesSQL, names, slices.Concat(names, names))
		})
	}
	b.Run("subtree", func(b *testing.B) {
		names := make([]string, 60)
		for i := range names {
			names[i] = "hot/" + string(numbered("below", i))
		}
		benchmarkAcquires(b, lockSubtreeSQL, []string{"hot"}, names)
	})
}

// benchmarkAcquires measures acquires beside clients of the stuck locks, while a statement locks what these need.
func benchmarkAcquires(b *testing.B, lockSQL string, locked, stuck []string) {
	bed := newTestbed(b)
	acquire := func(ctx context.Context, lock store.Name) error {
		lease, err := bed.Acquire(ctx, store.AcquireRequest{Lock: lock, OwnerID: "w"})
		if err == nil {
			err = bed.Release(ctx, lease.Ref())
		}
		return err
	}
	for _, name := range slices.Concat(stuck, []string{"first"}) {
		if err := acquire(b.Context(), store.Name(name)); err != nil {
			b.Fatal(err)
		}
	}
	tx, err := bed.SQL.Begin(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(b.Context())) //nolint:errcheck // it only locks
	if _, err := tx.Exec(b.Context(), lockSQL, locked); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	var clients sync.WaitGroup
	for _, name := range stuck {
		clients.Go(func() {
			for ctx.Err() == nil {
				_ = acquire(ctx, store.Name(name))
			}
		})
	}
	time.Sleep(2 * time.Second) // until all clients have met the locks
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		begun := time.Now()
		if err := acquire(b.Context(), numbered("new", i)); err != nil { // without a fence, so no batch decides it
			b.Log(err)
		}
		took = append(took, time.Since(begun))
	}
	stop()
	clients.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
}
