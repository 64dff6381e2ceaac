package postgres_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
)

// waitModel is the graph of waits. It checks each pair of a wait and a possible blocker by itself.
type waitModel struct {
	waits  map[string][]string // the owners that block each wait, by the text of the wait
	lock   map[string]string
	owner  map[string]string
	owners map[string][]string // the waits that each owner blocks
}

func waitText(owner string, lock store.Name, mode store.Mode, scope store.Scope) string {
	return fmt.Sprintf("%s waits for %s %s %s", owner, lock, mode, scope)
}

func (b *testbed) waitModel(t *testing.T) waitModel {
	t.Helper()
	m := waitModel{map[string][]string{}, map[string]string{}, map[string]string{}, map[string][]string{}}
	for _, row := range collect[struct {
		Owner, Lock         string
		Mode                store.Mode
		Scope               store.Scope
		Relation, Other, Of *string
	}](t, b, `
		with stakes as (
			select 'holds' as relation, l.principal || '/' || l.owner_id as owner, l.lock, l.mode, l.scope, 0 as ticket from fence.leases l
			where l.ended_at is null and l.expires_at > clock_timestamp()
			union all
			select 'before', w.principal || '/' || w.owner_id, w.lock, w.mode, w.scope, w.ticket from fence.waiters w where fence.is_waiting(w)
		)
		select w.owner, w.lock, w.mode, w.scope, x.relation, x.owner, x.lock
		from stakes w
		left join stakes x on x.ticket < w.ticket and 'exclusive' in (x.mode, w.mode)
			and (x.lock = w.lock or x.scope = 'subtree' and w.lock ^@ (x.lock || '/') or w.scope = 'subtree' and x.lock ^@ (w.lock || '/'))
		where w.relation = 'before'`) {
		wait := waitText(row.Owner, store.Name(row.Lock), row.Mode, row.Scope)
		m.lock[wait], m.owner[wait] = row.Lock, row.Owner
		if row.Relation == nil {
			m.waits[wait] = []string{}
			continue
		}
		if edge := *row.Relation + " " + *row.Other + " " + *row.Of; !slices.Contains(m.waits[wait], edge) {
			m.waits[wait] = append(m.waits[wait], edge)
		}
		m.owners[*row.Other] = append(m.owners[*row.Other], wait)
	}
	return m
}

// around is what of the graph hangs together with a lock: the waits for it and its holders, and both ways from there.
func (m waitModel) around(lock string, holders []string) (found []string) {
	met := slices.Clone(holders)
	for wait, of := range m.lock {
		if of == lock {
			met = append(met, m.owner[wait])
			met = append(met, m.ahead(wait)...)
		}
	}
	for i := 0; i < len(met); i++ {
		for wait := range m.waits {
			near := m.owner[wait] == met[i] || slices.Contains(m.owners[met[i]], wait)
			if !near || slices.Contains(found, wait) {
				continue
			}
			found = append(found, wait)
			for _, other := range append(m.ahead(wait), m.owner[wait]) {
				if !slices.Contains(met, other) {
					met = append(met, other)
				}
			}
		}
	}
	return found
}

func (m waitModel) ahead(wait string) (owners []string) {
	for owner, waits := range m.owners {
		if slices.Contains(waits, wait) {
			owners = append(owners, owner)
		}
	}
	return owners
}

func graphLines(graph store.WaitGraph) (lines []string) {
	for _, wait := range graph.Waits {
		var edges []string
		for _, other := range wait.For {
			edges = append(edges, fmt.Sprintf("%s %s/%s %s", other.Relation, other.Principal, other.OwnerID, other.Lock))
		}
		slices.Sort(edges)
		lines = append(lines, waitText(wait.Principal+"/"+wait.OwnerID, wait.Lock, wait.Mode, wait.Scope)+": "+strings.Join(edges, ", "))
	}
	slices.Sort(lines)
	return lines
}

func (m waitModel) lines(waits []string) (lines []string) {
	for _, wait := range waits {
		edges := slices.Sorted(slices.Values(m.waits[wait]))
		lines = append(lines, wait+": "+strings.Join(edges, ", "))
	}
	slices.Sort(lines)
	return lines
}

// checkWaits holds the graph around a lock, "" for all, against the model's. No two waits of a test may look the same.
func (b *testbed) checkWaits(t *testing.T, m waitModel, lock string) store.WaitGraph {
	t.Helper()
	graph, err := b.Waits(t.Context(), store.Name(lock), store.WaitsMax, nil)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	if lock == "" {
		for wait := range m.waits {
			want = append(want, wait)
		}
	} else {
		want = m.around(lock, collect[string](t, b, `
			select l.principal || '/' || l.owner_id from fence.leases l
			where l.lock = $1 and l.ended_at is null and l.expires_at > clock_timestamp()`, lock))
	}
	if got, want := graphLines(graph), m.lines(want); !slices.Equal(got, want) || graph.Truncated {
		t.Errorf("around %q is %v\n%s\nwant\n%s", lock, graph.Truncated, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return graph
}

// In every situation in which a wait would close a cycle, the graph shows the chain that it would close, from wherever
// it is looked at.
func TestWaitsOfRings(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 3, noPoll)
	for _, h := range enginetest.Holds {
		for _, size := range []int{2, 5} {
			t.Run(fmt.Sprintf("%s, %d", h.Name, size), func(t *testing.T) {
				r := enginetest.BuildRing(t, s.Engines, h, size)
				m := s.bed.waitModel(t)
				s.bed.checkWaits(t, m, "")
				for index := range size - 1 {
					graph := s.bed.checkWaits(t, m, string(r.Wanted(index).Lock))
					for from := range size - 1 {
						expectEdge(t, r, graph, from)
					}
				}
				r.Unwind(t)
			})
		}
	}
	if graph, err := s.Waits(t.Context(), "", 10, nil); err != nil || len(graph.Waits) != 0 || graph.Truncated {
		t.Errorf("at last the graph is %+v (%v)", graph, err)
	}
}

// expectEdge expects that the owner at an index is shown to wait for the next.
func expectEdge(t *testing.T, r *enginetest.Ring, graph store.WaitGraph, index int) {
	t.Helper()
	wanted, relation := r.Wanted(index), store.Holds
	if r.ByTicketOnly {
		relation = store.Before
	}
	for _, wait := range graph.Waits {
		if wait.OwnerID == wanted.OwnerID && wait.Lock == wanted.Lock &&
			slices.ContainsFunc(wait.For, func(other store.Blocker) bool {
				return other.OwnerID == r.Owner(index+1) && other.Relation == relation
			}) {
			return
		}
	}
	t.Errorf("%s does not wait for %s in %+v", wanted.OwnerID, r.Owner(index+1), graph)
}

// TestWaitGraphsAreTheModels checks that the API's wait-for graph equals the one used for deadlock detection, for every
// state of leases, sessions and gateways.
func TestWaitGraphsAreTheModels(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := newLockSetup(t, seed)
	for i := range 8 {
		s.one(t, store.Name(fmt.Sprint("lock ", i)))
	}
	names := []string{"tree", "tree/a", "tree/a/b", "tree/c", "tree0", "lock 1", "lock 2", "lock 3", "lock 4"}
	s.Exec(t, "delete from fence.waiters")
	for _, name := range names[:5] {
		s.Exec(t, "insert into fence.fences (resource, subtree_token) values ($1, 0)", name)
		s.Exec(t, `
			insert into fence.leases (lock, fencing_token, lease_id, owner_id, mode, scope, ttl_ms, granted_at, expires_at)
			values ($1, 5000, gen_random_uuid(), $2, $3, $4, 1000, clock_timestamp(), clock_timestamp() + $5 * interval '1 hour')`,
			name, fmt.Sprint("holder of ", name), pick(s.random, []string{"shared", "exclusive"}),
			pick(s.random, []string{"node", "subtree"}), pick(s.random, []int{1, 1, -1}))
	}
	for i := range 40 {
		var session *uuid.UUID
		if i%5 == 0 {
			session = &s.sessions[s.random.IntN(len(s.sessions))]
		}
		s.Exec(t, `
			insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, session_id, principal, queued_at, deadline_at)
			select $1::text, $2, $3, $4, $5, 1000, $6, $8, clock_timestamp(), clock_timestamp() + $7 * interval '1 hour'
			where not exists (select from fence.waiters w where (w.lock, w.owner_id, w.mode, w.scope, w.principal) = ($1::text, $3, $4, $5, $8))`,
			pick(s.random, names), pick(s.random, s.gateways),
			pick(s.random, append([]string{"a", "b", "c", "d", "holder of tree/c"}, lockOwners...)),
			pick(s.random, []string{"shared", "exclusive"}), pick(s.random, []string{"node", "node", "subtree"}), session,
			pick(s.random, []int{1, 1, 1, -1}), pick(s.random, []string{"", "", "p"}))
	}
	s.endSessions(t)
	m := s.waitModel(t)
	for _, name := range append(names, "", "lock 5", "nothing") {
		s.checkWaits(t, m, name)
	}
}

// However long the lines are, no more is shown than the limits say, and it is said that there is more.
func TestWaitsAreCutShort(t *testing.T) {
	t.Parallel()
	s := newLockSetup(t, 1)
	s.granted(t, store.AcquireRequest{Lock: "job", OwnerID: "holder"})
	s.waiters(t, "job", 3000)
	for _, lock := range []store.Name{"job", ""} {
		for _, limit := range []int{1, 7, store.WaitsMax} {
			graph, err := s.Waits(t.Context(), lock, limit, nil)
			if err != nil || len(graph.Waits) != limit || !graph.Truncated {
				t.Fatalf("around %q are %d waits, truncated %v (%v)", lock, len(graph.Waits), graph.Truncated, err)
			}
			for i, wait := range graph.Waits {
				before := min(i, store.WaitForMax)
				if wait.OwnerID != fmt.Sprint("waiter ", i+1) || len(wait.For) != 1+before || wait.For[0].OwnerID != "holder" {
					t.Fatalf("wait %d is %+v", i, wait)
				}
				if i > 0 && wait.For[before].OwnerID != fmt.Sprint("waiter ", i) {
					t.Fatalf("before wait %d is %+v", i, wait.For)
				}
			}
		}
	}
	s.Exec(t, "delete from fence.waiters where owner_id > 'waiter 2'")
	s.Exec(t, "delete from fence.waiters where lock = 'job' and ticket > (select min(ticket) + 24 from fence.waiters)")
	for i := range 30 {
		s.granted(t, store.AcquireRequest{Lock: "read", OwnerID: fmt.Sprint("reader ", i), Mode: store.Shared})
	}
	s.Exec(t, "update fence.waiters set lock = 'read'")
	if graph, err := s.Waits(t.Context(), "read", store.WaitsMax, nil); err != nil || !graph.Truncated ||
		len(graph.Waits[0].For) != store.WaitForMax {
		t.Errorf("of 30 readers are shown %+v (%v)", graph, err)
	}
	for _, limit := range []int{-1, 0, store.WaitsMax + 1} {
		if _, err := s.Waits(t.Context(), "job", limit, nil); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}
