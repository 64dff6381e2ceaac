package postgres_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// acquireEight acquires eight locks in a batch.
const acquireEight = "select count(*) from fence.acquire_leases(array(select 'lock/' || n from generate_series(1, 8) n), " +
	"array_fill('o'::text, array[8]), array_fill(''::text, array[8]), array_fill('exclusive'::text, array[8]), " +
	"array_fill(3600000, array[8]), array(select gen_random_uuid()::text from generate_series(1, 8)), " +
	"array_fill(null::text, array[8]))"

// acquireOne acquires one of them.
const acquireOne = "select fence.acquire_one('lock/1', 'o', '', 'exclusive', 60000, gen_random_uuid()::text, null)"

// TestLeasesAreReadByKey checks that the functions that decide about leases read as many rows beside thousands of running
// leases, waiters and watched locks as beside none, though the statistics know of none of these: they may be a minute
// late.
func TestLeasesAreReadByKey(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	for _, table := range []string{"fences", "leases", "waiters", "watched"} {
		b.Exec(t, "alter table fence."+table+" set (autovacuum_enabled = off)")
		b.Exec(t, "analyze fence."+table)
	}
	b.Exec(t, "insert into fence.fences (resource) select 'lock/' || n from generate_series(1, 8) n")
	const (
		acquireAlone = "select fence.acquire_lease(fence.lease_request('lock/1', 'o', 'exclusive', 'node', 60000, null, " +
			"gen_random_uuid()::text, null), 0, null)"
		refs = "select format('%L::text[], %L::text[], %L::uuid[], %L::bigint[]', array_agg(lock), array_agg(owner_id), " +
			"array_agg(lease_id), array_agg(fencing_token)) from fence.leases where lock like 'lock/%' and ended_at is null"
		release = "select format('select fence.%s(%%L, %%L, %%L, %%L)', lock, owner_id, lease_id, fencing_token) " +
			"from fence.leases where lock = 'lock/1'"
	)
	measure := func() map[string]int64 {
		read := map[string]int64{"acquire": rowsRead(t, b, acquireEight)}
		expectSQL(t, b, 8, "select count(*) from fence.leases where lock like 'lock/%' and ended_at is null")
		of := valueOf[string](t, b, refs)
		read["renew"] = rowsRead(t, b, fmt.Sprintf(
			"select count(*) from fence.renew_leases(%s, array_fill(7200000, array[8]))", of))
		expectSQL(t, b, 8, "select count(*) from fence.leases where lock like 'lock/%' and ttl_ms = 7200000 and ended_at is null")
		read["release"] = rowsRead(t, b, fmt.Sprintf("select count(*) from fence.release_leases(%s)", of))
		expectSQL(t, b, 0, "select count(*) from fence.leases where lock like 'lock/%' and ended_at is null")
		b.Exec(t, "delete from fence.leases where lock like 'lock/%'")
		b.Exec(t, "update fence.fences set granted_token = 0, open = false")

		read["acquire alone"] = rowsRead(t, b, acquireAlone)
		read["held"] = rowsRead(t, b, acquireAlone)
		read["release alone"] = rowsRead(t, b, valueOf[string](t, b, fmt.Sprintf(release, "release_lease")))
		b.Exec(t, "delete from fence.leases where lock like 'lock/%'")
		b.Exec(t, "update fence.fences set granted_token = 0, open = false")

		read["acquire one"] = rowsRead(t, b, acquireOne)
		read["release one"] = rowsRead(t, b, valueOf[string](t, b, fmt.Sprintf(release, "release_one")))
		expectSQL(t, b, 1, "select count(*) from fence.leases where lock = 'lock/1' and end_reason = 'released'")
		b.Exec(t, "delete from fence.leases where lock like 'lock/%'")
		b.Exec(t, "update fence.fences set granted_token = 0, open = false")
		return read
	}
	few := measure()
	for _, seed := range []string{
		"insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at, request_id) " +
			"select 'other/' || n, n, gen_random_uuid(), 'o' || n, 1000, now(), now() + interval '1 hour', n::text",
		"insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at, request_id) " +
			"select 'other/' || n, gen_random_uuid(), 'w' || n, 'exclusive', 'node', 1000, now(), now() + interval '1 hour', " +
			"n::text",
		"insert into fence.watched (lock, since, until) select 'other/' || n, n, now() + interval '1 hour'",
	} {
		b.Exec(t, seed+" from generate_series(1, 3000) n")
	}
	if many := measure(); !maps.Equal(few, many) {
		t.Errorf("the rows read beside 3,000 running leases, waiters and watched locks are %v, beside none %v", many, few)
	}
}

// TestHistoryOfALockIsNotRead checks that an acquire reads as many rows beside a hundred ended leases of its lock as
// beside one, and as many beside a hundred waiters; and a reader's release beside a hundred other readers. The plans are
// made when there is one: then any index on locks seems to lead to one row, and that on locks and requests is the largest.
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
		"one":     acquireOne,
		"a release": "select fence.release_one(lock, owner_id, lease_id, fencing_token) from fence.leases " +
			"where lock = 'read/1' and fencing_token = 1001",
		"alone":    fmt.Sprintf("select fence.acquire_lease("+request+", 0, null)", "lock"),
		"in Redis": fmt.Sprintf("select fence.grant_provided("+request+", gen_random_uuid(), 0)", "lock"),
		"waits": fmt.Sprintf("select fence.acquire_lease("+request+", 1000, (select gateway_id from fence.gateways limit 1))",
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
