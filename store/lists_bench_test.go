package store_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
)

// manyLocksSQL makes 100,000 locks: seven of ten held exclusively, of which a seventh in 2,000 sessions, and 1,000 by
// who is late; one of ten by a reader; the others free. 3,000 have lines of 1 to 5. Each has two leases that ended
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
//	go test ./store -run '^$' -bench BenchmarkLists -benchtime 10x
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
	s, err := store.Open(b.Context(), store.Config{DatabaseURL: url})
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
	measure(b, "waits", func() error { _, err := s.Waits(ctx, "", store.WaitsMax); return err })
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
