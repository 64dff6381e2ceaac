package waitqueue_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
)

// edges are those of the graph of waits, by their tickets.
type edges struct {
	owner map[int64]string
	lock  map[int64]string
	after map[int64][]string // the owners that the wait is for
}

func edgesIn(t testing.TB, b *enginetest.DB) edges {
	t.Helper()
	e := edges{map[int64]string{}, map[int64]string{}, map[int64][]string{}}
	rows, err := b.SQL.Query(t.Context(), `
		with stakes as (
			select l.principal || '/' || l.owner_id as owner, l.lock, l.mode, l.scope, 0 as ticket from fence.live_leases() l
			union all
			select w.principal || '/' || w.owner_id, w.lock, w.mode, w.scope, w.ticket from fence.waiters w
			where w.deadline_at > clock_timestamp() and (w.session_until is null or w.session_until > clock_timestamp())
				and (select g.alive_until > clock_timestamp() from fence.gateways g where g.gateway_id = w.gateway_id)
		)
		select w.ticket, w.owner, w.lock, coalesce(array_agg(x.owner) filter (where x.owner is not null), '{}')
		from stakes w
		left join stakes x on x.ticket < w.ticket and 'exclusive' in (x.mode, w.mode)
			and (x.lock = w.lock or x.scope = 'subtree' and w.lock ^@ (x.lock || '/') or w.scope = 'subtree' and x.lock ^@ (w.lock || '/'))
		where w.ticket > 0 group by 1, 2, 3`)
	if err != nil {
		t.Fatal(err)
	}
	var ticket int64
	var owner, lock string
	var after []string
	_, err = pgx.ForEachRow(rows, []any{&ticket, &owner, &lock, &after}, func() error {
		e.owner[ticket], e.lock[ticket], e.after[ticket] = owner, lock, slices.Clone(after)
		return nil
	})
	if err := errors.Join(err, rows.Err()); err != nil {
		t.Fatal(err)
	}
	return e
}

// closes reports whether a wait is in a cycle.
func (e edges) closes(ticket int64) bool {
	met := map[string]bool{}
	next := slices.DeleteFunc(slices.Clone(e.after[ticket]), func(owner string) bool { return owner == e.owner[ticket] })
	for len(next) > 0 {
		owner := next[0]
		next = next[1:]
		if owner == e.owner[ticket] {
			return true
		}
		if met[owner] {
			continue
		}
		met[owner] = true
		for other, of := range e.owner {
			if of == owner {
				next = append(next, e.after[other]...)
			}
		}
	}
	return false
}

// randomWaits are random leases and waits of few owners, in a database that has no others.
type randomWaits struct {
	*enginetest.DB
	*rand.Rand
	owners, scopes []string
}

var randomNames = []string{"tree", "tree/a", "tree/a/b", "tree/c", "tree0", "one", "two", "three"}

// goneGateway is one that is not alive, to begin with.
const goneGateway = "00000000-0000-0000-0000-000000000002"

func newRandomWaits(t *testing.T) *randomWaits {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := &randomWaits{DB: enginetest.New(t), Rand: rand.New(rand.NewPCG(seed, 0))}
	s.gateways(t)
	return s
}

func (s *randomWaits) gateways(t testing.TB) {
	t.Helper()
	s.Exec(t, "insert into fence.gateways values ($1, clock_timestamp() + interval '1 day'), ($2, clock_timestamp())",
		crowdGateway, goneGateway)
}

// begin forgets all, and grants a lease on each name. Half of the states have subtrees.
func (s *randomWaits) begin(t testing.TB) {
	t.Helper()
	for _, table := range []string{"waiters", "leases", "fences"} {
		s.Exec(t, "delete from fence."+table)
	}
	s.Exec(t, "update fence.gateways set alive_until = clock_timestamp() where gateway_id = $1", goneGateway)
	s.owners = make([]string, 3+s.IntN(12))
	for i := range s.owners {
		s.owners[i] = fmt.Sprintf("principal %d/owner %d", i%2, i/2)
	}
	s.scopes = []string{"node"}
	if s.IntN(2) > 0 {
		s.scopes = []string{"node", "node", "subtree"}
		s.Exec(t, "insert into fence.fences (resource, subtree_token) values ('tree', 0)")
	}
	for i, name := range randomNames {
		s.Exec(t, `insert into fence.leases (lock, fencing_token, lease_id, principal, owner_id, mode, scope, ttl_ms, granted_at, expires_at)
			values ($1, $2, gen_random_uuid(), split_part($3, '/', 1), split_part($3, '/', 2), $4, $5, 1000, clock_timestamp(), clock_timestamp() + $6 * interval '1 hour')`,
			name, i+1, pick(s.Rand, s.owners), s.mode(), pick(s.Rand, s.scopes), pick(s.Rand, []int{1, 1, -1}))
	}
}

func (s *randomWaits) mode() string {
	return pick(s.Rand, []string{"exclusive", "exclusive", "shared"})
}

// wait adds a wait: one in eight of a gateway that is gone, one in eight too late, and one in eight of a session that is
// over. It returns its ticket.
func (s *randomWaits) wait(t testing.TB) (ticket int64) {
	t.Helper()
	const sql = `insert into fence.waiters (lock, gateway_id, principal, owner_id, mode, scope, ttl_ms, queued_at, deadline_at, session_until)
		select $1, $2, split_part($3, '/', 1), split_part($3, '/', 2), $4, $5, 1000, clock_timestamp(),
			clock_timestamp() + $6 * interval '1 hour', clock_timestamp() + $7 * interval '1 hour'
		returning ticket`
	ended, gateway := []any{nil, 1, 1, 1}, crowdGateway
	if s.IntN(8) == 0 {
		gateway = goneGateway
	}
	if s.IntN(8) == 0 {
		ended = []any{-1}
	}
	err := s.SQL.QueryRow(t.Context(), sql, pick(s.Rand, randomNames), gateway, pick(s.Rand, s.owners), s.mode(),
		pick(s.Rand, s.scopes), pick(s.Rand, []int{1, 1, 1, 1, 1, 1, 1, -1}), pick(s.Rand, ended)).Scan(&ticket)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

// expectExact looks for the cycles of a random state. It returns 1 if it has one. Each search alone finds whether there is
// one: v_ahead goes to its end first, or is not consulted.
func (s *randomWaits) expectExact(t testing.TB, round int) (cycles int) {
	t.Helper()
	const fetch = "fetch v_ahead into v_closed;"
	alone := []string{"loop " + fetch + " exit when v_closed or not found; end loop;", "v_closed := true; perform 1;"}
	var source string
	err := s.SQL.QueryRow(t.Context(), "select pg_get_functiondef('fence.wait_cycle'::regproc)").Scan(&source)
	if err != nil || strings.Count(source, fetch) != 1 {
		t.Fatalf("fence.wait_cycle must have %q once: %v", fetch, err)
	}
	s.begin(t)
	for range 2 + s.IntN(14) {
		s.wait(t)
	}
	e := edgesIn(t, s.DB)
	s.Exec(t, strings.Replace(source, fetch, alone[round%2], 1))
	defer s.Exec(t, source)
	for ticket := range e.owner {
		if expectCycle(t, s.DB, e, ticket) {
			cycles = 1
		}
	}
	return cycles
}

// expectConflicts compares the waits before and behind a random one with those that conflict with it.
func (s *randomWaits) expectConflicts(t testing.TB) {
	t.Helper()
	e := edgesIn(t, s.DB)
	lock, mode, scope := pick(s.Rand, randomNames), s.mode(), pick(s.Rand, s.scopes)
	var first, last int64
	err := s.SQL.QueryRow(t.Context(), "select min(ticket), max(ticket) from fence.waiters").Scan(&first, &last)
	if err != nil {
		t.Fatal(err)
	}
	ticket, bound, limit := first+s.Int64N(last-first+2), first+s.Int64N(last-first+1), pick(s.Rand, []any{nil, 1, 2})
	const sql = `
		with live as (
			select w.* from fence.waiters w where w.ticket = any ($7) and 'exclusive' in (w.mode, $2) and w.ticket <> $4
				and (w.lock = $1 or w.scope = 'subtree' and $1 ^@ (w.lock || '/') or $3 = 'subtree' and w.lock ^@ ($1 || '/'))
		), branches as (
			select w.ticket, row_number() over (
				partition by case when w.lock = $1 then '' when $1 ^@ (w.lock || '/') then w.lock else '/' end
				order by case when w.ticket < $4 then -w.ticket else w.ticket end) as nth
			from live w where (w.ticket < $4) = $8 and case when $8 then w.ticket >= $5 else w.ticket <= $5 end
		)
		select array(select ticket from branches where nth <= coalesce($6::integer, 1000) order by 1),
			array(select w.ticket from fence.waiters_%s($1, $2, $3, $4, $5, $6) w order by 1),
			fence.must_queue($1, $2, $3, $4), exists (select from live where ticket < $4)`
	for side, ahead := range map[string]bool{"ahead": true, "behind": false} {
		var want, got []int64
		var queues, must bool
		err := s.SQL.QueryRow(t.Context(), fmt.Sprintf(sql, side), lock, mode, scope, ticket, bound, limit,
			slices.Collect(maps.Keys(e.owner)), ahead).Scan(&want, &got, &queues, &must)
		if err != nil || !slices.Equal(got, want) || queues != must {
			t.Errorf("waiters_%s(%s, %s, %s, %d, %d, %v) are %v, want %v; it queues: %t, want %t; %v\n%s", side, lock, mode, scope,
				ticket, bound, limit, got, want, queues, must, err, s.Describe(t))
		}
	}
}

// refuseAll refuses the waits of a random state that close cycles when they begin, and those that do after a thaw.
func (s *randomWaits) refuseAll(t testing.TB) (begun, thawed int) {
	t.Helper()
	s.begin(t)
	for range 2 + s.IntN(14) {
		begun += s.refuse(t, true, "ticket = $1", s.wait(t))
		s.expectNoCycle(t, "true")
	}
	s.Exec(t, "update fence.gateways set alive_until = clock_timestamp() + interval '1 day'")
	thawed = s.refuse(t, false, "gateway_id <> $1", crowdGateway)
	s.expectNoCycle(t, "gateway_id <> $1", crowdGateway)
	return begun, thawed
}

// refuse takes out those of some waits that are found in cycles, the last first, until none is. It returns how many.
func (s *randomWaits) refuse(t testing.TB, begun bool, of string, arg any) (refused int) {
	t.Helper()
	sql := "delete from fence.waiters where ticket = (select max(f) from fence.find_deadlocks(array(" +
		"select ticket from fence.waiters where " + of + "), $2) f)"
	for {
		tag, err := s.SQL.Exec(t.Context(), sql, arg, begun)
		if err != nil {
			t.Fatal(err)
		}
		if tag.RowsAffected() == 0 {
			return refused
		}
		refused++
	}
}

// expectNoCycle expects that none of some waits is in a cycle.
func (s *randomWaits) expectNoCycle(t testing.TB, of string, args ...any) {
	t.Helper()
	e := edgesIn(t, s.DB)
	for ticket := range e.owner {
		if e.closes(ticket) && s.Count(t, fmt.Sprintf("select count(*) from fence.waiters where ticket = %d and %s", ticket,
			of), args...) > 0 {
			t.Fatalf("ticket %d is in a cycle still\n%s", ticket, s.Describe(t))
		}
	}
}

// expectCycle expects the search to find a cycle if there is one by the edges: without a shortcut, each owner once.
func expectCycle(t testing.TB, b *enginetest.DB, e edges, ticket int64) bool {
	t.Helper()
	var tickets []int64
	if err := b.SQL.QueryRow(t.Context(), "select fence.wait_cycle($1)", ticket).Scan(&tickets); err != nil {
		t.Fatal(err)
	}
	if want := e.closes(ticket); want != (tickets != nil) {
		t.Errorf("ticket %d: the cycle is %v, want one: %v\n%s", ticket, tickets, want, b.Describe(t))
	}
	if len(tickets) > 0 && (tickets[0] != ticket || len(tickets) < 2) {
		t.Errorf("ticket %d: the cycle is %v, want it to begin there and to have two owners", ticket, tickets)
	}
	for i, at := range tickets {
		for j := i + 1; j <= len(tickets) && j < i+len(tickets); j++ { // those beyond the next one would be shortcuts
			owner := e.owner[tickets[j%len(tickets)]]
			if owner == e.owner[at] || slices.Contains(e.after[at], owner) != (j == i+1) {
				t.Errorf("ticket %d: the cycle is %v, ticket %d waits for the %d. after it, %s: want only the next\n%s",
					ticket, tickets, at, j-i, owner, b.Describe(t))
			}
		}
	}
	return tickets != nil
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }
