package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestSweepsAreExact compares what sweeps of random leases end, keep and delete with what they say that they do, however
// few of them are swept at once.
func TestSweepsAreExact(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range uint64(20) {
		b.sweepExactly(t, rand.New(rand.NewPCG(seed, round)))
	}
}

// sweepExactly sweeps random leases in each way.
func (b *testbed) sweepExactly(t testing.TB, random *rand.Rand) {
	t.Helper()
	b.forget(t)
	b.sweepLeases(t, random)
	b.forget(t)
	b.sweepEnded(t, random)
	b.forget(t)
	b.sweepClaims(t, random)
}

// lease inserts a lease that was granted two hours ago. The others are hours from now.
func (b *testbed) lease(t testing.TB, lock string, token int, kind string, session any, expires, check, ended any, kept bool) {
	t.Helper()
	b.Exec(t, `insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, session_id, granted_at, expires_at,
			check_at, ended_at, end_reason, kept, request_id)
		select $1, $2, overlay(gen_random_uuid()::text placing $3 from 15)::uuid, 'A', 1000, $4::uuid, now - interval '9 hours',
			now + $5 * interval '1 hour', coalesce(now + $6 * interval '1 hour', 'infinity'), now + $7 * interval '1 hour',
			case when $7::integer is not null then 'released' end, $8, $9
		from (select clock_timestamp() as now) n`, lock, token, kind, session, expires, check, ended, kept, fmt.Sprint(token))
}

// swept calls a sweep until there is no more, and returns how much it has done.
func (b *testbed) swept(t testing.TB, sql string, args ...any) (all int64) {
	t.Helper()
	for range 50 {
		var done *int64
		var more *bool
		if err := b.SQL.QueryRow(t.Context(), sql, args...).Scan(&done, &more); err != nil {
			t.Fatal(err)
		}
		if done != nil {
			all += *done
		}
		if more == nil || !*more {
			return all
		}
	}
	t.Fatalf("%s says after 50 calls that there is more", sql)
	return 0
}

// expect compares lines of a query with those that there should be.
func (b *testbed) expect(t testing.TB, want []string, sql string) {
	t.Helper()
	rows, err := b.SQL.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if slices.Sort(want); err != nil || !slices.Equal(got, want) {
		t.Fatalf("%v\ngot  %s\nwant %s", err, strings.Join(got, "; "), strings.Join(want, "; "))
	}
}

func oneOf[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

func (b *testbed) sweepLeases(t testing.TB, random *rand.Rand) {
	t.Helper()
	const live, over, late, none = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002",
		"00000000-0000-4000-8000-000000000003", ""
	b.Exec(t, `insert into fence.sessions (session_id, owner_id, ttl_ms, created_at, expires_at, ended_at)
		select s::uuid, 'A', 1000, now(), now() + e * interval '1 hour', case when d then now() end
		from (values ($1, 1, false), ($2, 1, true), ($3, -1, false)) as v (s, e, d)`, live, over, late)
	var want []string
	ended := int64(0)
	for i := range 8 {
		lock, kind, session := fmt.Sprint("sweep/", i), oneOf(random, "4a", "4a", "81", "82"), oneOf(random, none, none, live, over, late)
		expires, check, gone := oneOf[any](random, -1, 1), oneOf[any](random, -2, -2, nil), oneOf[any](random, nil, nil, nil, -3)
		var in any
		if session != none {
			in = session
		}
		b.lease(t, lock, 1+i%3, kind, in, expires, check, gone, false)
		b.Exec(t, "insert into fence.fences (resource, granted_token, open) values ($1, $2, true)", lock, 1+i%3)
		state := "as it was"
		switch {
		case gone != nil, check == nil, session == over, session == late:
		case expires == -1:
			state = "expired"
			ended++
		case kind == "4a":
			state = "looked at"
		}
		want = append(want, fmt.Sprint(lock, " ", state))
	}
	if got := b.swept(t, "select done, more from fence.sweep_leases($1)", oneOf(random, 1, 3, 100)); got != ended {
		t.Fatalf("a sweep says that it has ended %d leases, want %d", got, ended)
	}
	b.expect(t, want, `select format('%s %s', lock, case when end_reason = 'expired' and ended_at = expires_at then 'expired'
		when check_at = expires_at and ended_at is null then 'looked at' else 'as it was' end) from fence.leases order by 1`)
	b.expect(t, []string{"0"}, "select count(*)::text from fence.expiries")
}

func (b *testbed) sweepEnded(t testing.TB, random *rand.Rand) {
	t.Helper()
	var want, claimed []string
	deleted := int64(0)
	for i := range 4 {
		lock, kind := fmt.Sprint("ended/", i), oneOf(random, "4a", "83")
		count := 1 + random.IntN(5)
		b.Exec(t, "insert into fence.fences (resource, granted_token) values ($1, $2)", lock, count)
		keptAt, newestOld := 0, 0 // of a lease that was kept when it was the newest; the newest that a sweep looks at
		old := make([]bool, count+1)
		for token := 1; token <= count; token++ {
			old[token] = random.IntN(3) > 0
			kept := keptAt == 0 && token < count && random.IntN(4) == 0
			ended := any(-1)
			if old[token] {
				ended = -3
			}
			if kept {
				keptAt, old[token], ended = token, false, -5
			} else if old[token] {
				newestOld = token
			}
			b.lease(t, lock, token, kind, nil, -1, -1, ended, kept)
		}
		for token := 1; token <= count; token++ {
			switch {
			case token == keptAt && newestOld > token, old[token] && token < count:
				deleted++
			case token == keptAt, old[token]:
				want = append(want, fmt.Sprintf("%s %d kept", lock, token))
				if old[token] && kind == "83" {
					claimed = append(claimed, lock)
				}
			default:
				want = append(want, fmt.Sprintf("%s %d", lock, token))
			}
		}
	}
	limit := oneOf(random, 2, 100)
	if got := b.swept(t, "select done, more from fence.sweep_ended($1, '2 hours')", limit); got != deleted {
		t.Fatalf("a sweep says that it has deleted %d leases, want %d", got, deleted)
	}
	b.expect(t, want, `select format('%s %s%s', lock, fencing_token, case when kept then ' kept' end) from fence.leases order by 1`)
	b.expect(t, claimed, "select lock from fence.claimed order by 1")
	b.Exec(t, "delete from fence.claimed")
}

func (b *testbed) sweepClaims(t testing.TB, random *rand.Rand) {
	t.Helper()
	for prefix, authority := range map[string]string{"external": "external", "builtin": "builtin"} {
		b.Exec(t, "insert into fence.policies (prefix, authority) values ($1, $2)", prefix, authority)
	}
	var want, left []string
	deleted := int64(0)
	above := random.IntN(20)
	b.Exec(t, "insert into fence.fences (resource, granted_token, subtree_token, open) values ('builtin', $1, $1, $2)", above, random.IntN(2) > 0)
	var open bool
	if err := b.SQL.QueryRow(t.Context(), "select open from fence.fences where resource = 'builtin'").Scan(&open); err != nil {
		t.Fatal(err)
	}
	want = append(want, "builtin")
	for i := range 8 {
		rarely := func(value, else_ any) any {
			if random.IntN(10) == 0 {
				return value
			}
			return else_
		}
		root := rarely("external", "builtin").(string)
		lock, token := fmt.Sprintf("%s/%d", root, i), 10+i
		isOpen, adopted := rarely(true, false).(bool), rarely(token+1, nil)
		version, last, subtree := rarely(1, 0).(int), rarely(token+1, token).(int), rarely(0, nil)
		kind, kept, waits, recent := rarely("4a", "83").(string), rarely(false, true).(bool), rarely(true, false).(bool), rarely(true, false).(bool)
		b.Exec(t, `insert into fence.fences (resource, granted_token, open, adopted_token, last_version, last_token, subtree_token)
			values ($1, $2, $3, $4, $5, $6, $7)`, lock, token, isOpen, adopted, version, last, subtree)
		b.lease(t, lock, token, kind, nil, -1, -1, -5, kept)
		b.Exec(t, "insert into fence.claimed (lock, ended_at) values ($1, clock_timestamp() - $2 * interval '1 hour')", lock,
			map[bool]int{true: 1, false: 5}[recent])
		if waits {
			b.Exec(t, `insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
				values ($1, gen_random_uuid(), 'A', 'exclusive', 'node', 1000, now(), now())`, lock)
		}
		stays := isOpen || adopted != nil || version > 0 || last > token || subtree != nil || kind != "83" || !kept || waits ||
			root == "external" || root == "builtin" && open && above < token
		if recent {
			left = append(left, lock)
		}
		if stays || recent {
			want = append(want, lock)
		} else {
			deleted++
		}
	}
	if got := b.swept(t, "select done, more from fence.sweep_claims($1, '2 hours')", oneOf(random, 8, 100)); got != deleted {
		t.Fatalf("a sweep says that it has forgotten %d names, want %d", got, deleted)
	}
	b.expect(t, want, "select resource::text from fence.fences order by 1")
	b.expect(t, left, "select lock from fence.claimed order by 1")
	b.Exec(t, "delete from fence.claimed")
}
