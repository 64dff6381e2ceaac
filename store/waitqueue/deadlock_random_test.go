package waitqueue_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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

func edgesIn(t *testing.T, b *enginetest.DB) edges {
	t.Helper()
	e := edges{map[int64]string{}, map[int64]string{}, map[int64][]string{}}
	rows, err := b.SQL.Query(t.Context(), `
		with stakes as (
			select l.principal || '/' || l.owner_id as owner, l.lock, l.mode, l.scope, 0 as ticket from fence.leases l where l.ended_at is null and fence.runs_until(l) > clock_timestamp()
			union all
			select w.principal || '/' || w.owner_id, w.lock, w.mode, w.scope, w.ticket from fence.waiters w where fence.is_waiting(w)
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

// randomWaits are random leases and waits of few owners, in a database of their own.
type randomWaits struct {
	*enginetest.DB
	*rand.Rand
	owners, scopes []string
}

var randomNames = []string{"tree", "tree/a", "tree/a/b", "tree/c", "tree0", "one", "two", "three"}

func newRandomWaits(t *testing.T) *randomWaits {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := &randomWaits{DB: enginetest.New(t), Rand: rand.New(rand.NewPCG(seed, 0))}
	s.Exec(t, "insert into fence.gateways values ($1, clock_timestamp() + interval '1 day'), (gen_random_uuid(), "+
		"clock_timestamp())", crowdGateway)
	return s
}

// begin forgets all, and grants a lease on each name. Half of the states have subtrees.
func (s *randomWaits) begin(t *testing.T) {
	t.Helper()
	for _, table := range []string{"waiters", "leases", "subtrees"} {
		s.Exec(t, "delete from fence."+table)
	}
	s.Exec(t, "update fence.gateways set alive_until = clock_timestamp() where gateway_id <> $1", crowdGateway)
	s.owners = make([]string, 3+s.IntN(12))
	for i := range s.owners {
		s.owners[i] = fmt.Sprintf("principal %d/owner %d", i%2, i/2)
	}
	s.scopes = []string{"node"}
	if s.IntN(2) > 0 {
		s.scopes = []string{"node", "node", "subtree"}
		s.Exec(t, "insert into fence.subtrees (name) values ('tree')")
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

// wait adds a wait, of one in eight of a gateway that is gone. It returns its ticket.
func (s *randomWaits) wait(t *testing.T) (ticket int64) {
	t.Helper()
	const sql = `insert into fence.waiters (lock, gateway_id, principal, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
		select $1, (select gateway_id from fence.gateways order by (gateway_id = $2) = $3 desc limit 1), split_part($4, '/', 1), split_part($4, '/', 2), $5, $6, 1000, clock_timestamp(), clock_timestamp() + interval '1 hour'
		returning ticket`
	err := s.SQL.QueryRow(t.Context(), sql, pick(s.Rand, randomNames), crowdGateway, s.IntN(8) > 0,
		pick(s.Rand, s.owners), s.mode(), pick(s.Rand, s.scopes)).Scan(&ticket)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

// In random states of leases, waiters, modes, scopes and principals with the same owner_ids, a wait is found in a cycle
// if and only if it is in one, and the cycle is one.
func TestDeadlockSearchIsExact(t *testing.T) {
	t.Parallel()
	s := newRandomWaits(t)
	closed, open := 0, 0
	for range 40 {
		s.begin(t)
		for range 2 + s.IntN(14) {
			s.wait(t)
		}
		e := edgesIn(t, s.DB)
		for ticket := range e.owner {
			found := expectCycle(t, s.DB, e, ticket)
			if found {
				closed++
			} else {
				open++
			}
		}
	}
	if closed == 0 || open == 0 {
		t.Errorf("of the waits %d were in a cycle and %d in none: the test shows nothing", closed, open)
	}
}

// If each wait is checked when it begins, and those found are refused, there is never a cycle. The waits of a gateway
// that count again are in none once they were checked.
func TestDeadlocksAreFound(t *testing.T) {
	t.Parallel()
	s := newRandomWaits(t)
	begun, thawed := 0, 0
	for range 60 {
		s.begin(t)
		for range 2 + s.IntN(14) {
			begun += s.refuse(t, "find_new_deadlocks", "ticket = $1", s.wait(t))
			s.expectNoCycle(t, "true")
		}
		s.Exec(t, "update fence.gateways set alive_until = clock_timestamp() + interval '1 day'")
		thawed += s.refuse(t, "find_deadlocks", "gateway_id <> $1", crowdGateway)
		s.expectNoCycle(t, "gateway_id <> $1", crowdGateway)
	}
	if begun == 0 || thawed == 0 {
		t.Errorf("%d waits were refused when they began and %d after a thaw: the test shows nothing", begun, thawed)
	}
}

// refuse takes out those of some waits that are found in cycles, the last first, until none is. It returns how many.
func (s *randomWaits) refuse(t *testing.T, find, of string, arg any) (refused int) {
	t.Helper()
	sql := "delete from fence.waiters where ticket = (select max(f) from fence." + find + "(array(" +
		"select ticket from fence.waiters where " + of + ")) f)"
	for {
		tag, err := s.SQL.Exec(t.Context(), sql, arg)
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
func (s *randomWaits) expectNoCycle(t *testing.T, of string, args ...any) {
	t.Helper()
	e := edgesIn(t, s.DB)
	for ticket := range e.owner {
		if e.closes(ticket) && s.Count(t, fmt.Sprintf("select count(*) from fence.waiters where ticket = %d and %s", ticket,
			of), args...) > 0 {
			t.Fatalf("ticket %d is in a cycle still\n%s", ticket, s.Describe(t))
		}
	}
}

// expectCycle holds what the search finds against the edges.
func expectCycle(t *testing.T, b *enginetest.DB, e edges, ticket int64) bool {
	t.Helper()
	var tickets []int64
	if err := b.SQL.QueryRow(t.Context(), "select tickets from fence.wait_cycle($1)", ticket).Scan(&tickets); err != nil {
		t.Fatal(err)
	}
	if want := e.closes(ticket); want != (tickets != nil) {
		t.Errorf("ticket %d: the cycle is %v, want one: %v\n%s", ticket, tickets, want, b.Describe(t))
	}
	for i, at := range tickets {
		next := e.owner[tickets[(i+1)%len(tickets)]]
		if i == 0 && at != ticket || !slices.Contains(e.after[at], next) {
			t.Errorf("ticket %d: in the cycle %v ticket %d does not wait for %s\n%s", ticket, tickets, at, next, b.Describe(t))
		}
	}
	return tickets != nil
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }
