package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Limits of a graph of waits.
const (
	WaitsMax = 200 // waits that are shown
	// WaitForMax is how many of each kind are shown to be in the way of one waiter.
	WaitForMax = 20
)

// Relation says why a waiter waits for an owner.
type Relation string

// The relations.
const (
	Holds  Relation = "holds"  // has a lease that runs
	Before Relation = "before" // is before it in the queue
)

// Blocker is an owner that a waiter waits for. The lock is another one than is waited for where one of the two is
// requested with its subtree.
type Blocker struct {
	OwnerID   string
	Principal string // see AcquireRequest
	Lock      Name
	Relation  Relation
}

// WaitOf is a waiter and the owners that block it.
type WaitOf struct {
	OwnerID   string
	Principal string // see AcquireRequest
	Lock      Name
	Mode      Mode
	Scope     Scope
	QueuedAt  time.Time
	For       []Blocker // the holders, then those before, the nearest last
}

// WaitGraph says which waiters wait for which owners, the first in the queue first. Its edges are those in which a
// deadlock would be seen.
type WaitGraph struct {
	Waits     []WaitOf
	Truncated bool // there are more waits, or more in the way of one
}

const (
	ownersSQL   = "unnest(@owners::text[], @principals::text[])"
	withNowSQL  = "with now as materialized (select clock_timestamp() as at) "
	waitColumns = "w.ticket, w.owner_id, w.principal, w.lock, w.mode, w.scope, w.queued_at"
)

var (
	waitWithinSQL = " and " + withinSQL("w.lock", "@within")

	allWaitsSQL = withNowSQL + "select " + waitColumns + " from " + waitingSQL + waitWithinSQL + " order by w.ticket limit @limit"
	queueSQL    = withNowSQL + "select " + waitColumns + " from " + waitingSQL +
		" and w.lock = @lock order by w.ticket limit @limit"
	holdersSQL      = withNowSQL + "select distinct l.owner_id, l.principal from " + runningSQL + " and l.lock = @lock limit @limit"
	ownersQueuesSQL = withNowSQL + "select " + waitColumns + " from " + waitingSQL +
		waitWithinSQL + " and w.owner_id = any (@owners) and (w.owner_id, w.principal) in (select * from " + ownersSQL +
		") order by w.ticket limit @limit"

	// The waiters for these owners: for a lease of theirs, or behind them in a queue.
	behindSQL = `
		select distinct on (w.ticket) ` + waitColumns + `
		from (
			select s.lock, s.mode, s.scope, min(s.ticket) as ticket
			from ` + ownersSQL + ` o (owner_id, principal)
			cross join lateral fence.leases_and_waits(o.principal, o.owner_id) s
			group by s.lock, s.mode, s.scope
		) h
		cross join lateral fence.waiters_behind(h.lock, h.mode, h.scope, h.ticket, @limit) w
		where true` + waitWithinSQL + `
		order by w.ticket limit @limit`

	// What blocks these waits: of each relation one more than is shown, the nearest first. Waits of one kind for one lock
	// have the same holders, which are read once.
	aheadSQL = `
		with waits as materialized (
			select w.ticket, w.lock, w.mode, w.scope from fence.waiters w where w.ticket = any (@tickets)
		), holders as materialized (
			select k.*, x.relation, x.owner_id, x.principal, x.lock as blocked_on, x.sort_key
			from (select distinct w.lock, w.mode, w.scope from waits w) k
			cross join lateral (
				select x.* from fence.blockers(k.lock, k.mode, k.scope, 0::bigint, 0) x
				where x.relation = 'holds' and ` + withinSQL("x.lock", "@within") + ` order by x.sort_key limit @limit::integer
			) x
		)
		select x.ticket, x.relation, x.owner_id, x.principal, x.blocked_on
		from (
			select w.ticket, h.relation, h.owner_id, h.principal, h.blocked_on, h.sort_key
			from waits w join holders h using (lock, mode, scope)
			union all
			select w.ticket, x.relation, x.owner_id, x.principal, x.lock, x.sort_key
			from waits w
			cross join lateral (
				select x.* from fence.blockers(w.lock, w.mode, w.scope, w.ticket, @limit::integer) x
				where x.relation = 'before' and ` + withinSQL("x.lock", "@within") + ` order by x.sort_key desc limit @limit::integer
			) x
		) x (ticket, relation, owner_id, principal, blocked_on, sort_key)
		order by x.ticket, x.relation desc, x.sort_key`
)

// Waits returns the wait graph around a lock: its waiters, and then, both ways, those that they wait for and those that
// wait for them, at most limit. Without a lock it returns all, the first in the queue first. All are of one
// moment. Waits for locks, and locks in their way, that are not within these names or below them are left out; nil:
// none is. It returns ErrInvalid or ErrUnavailable.
func (s *Store) Waits(ctx context.Context, lock Name, limit int, within []string) (WaitGraph, error) {
	if limit < 1 || limit > WaitsMax {
		return WaitGraph{}, fmt.Errorf("%w: limit is %d, it must be 1 to %d", ErrInvalid, limit, WaitsMax)
	}
	var search waitSearch
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := s.inTx(ctx, options, func(tx pgx.Tx) error {
		search = waitSearch{query: queryIn(tx), max: limit, within: within, waits: map[int64]*WaitOf{}, owners: map[owner]bool{}}
		return search.run(ctx, lock)
	})
	if err != nil {
		return WaitGraph{}, err
	}
	return search.graph(), nil
}

// owner is a principal with an owner_id. Two principals with the same one are two owners.
type owner struct{ id, principal string }

type owners []owner

func (o owners) args() pgx.NamedArgs {
	ids, principals := make([]string, len(o)), make([]string, len(o))
	for i, of := range o {
		ids[i], principals[i] = of.id, of.principal
	}
	return pgx.NamedArgs{"owners": ids, "principals": principals}
}

// waitSearch is a breadth-first search over owners.
type waitSearch struct {
	query     queryFunc
	max       int
	within    []string
	waits     map[int64]*WaitOf // by their tickets
	owners    map[owner]bool    // that were met
	frontier  owners            // those of them whose waits, and whose waiters, are still to be read
	truncated bool
}

func (s *waitSearch) run(ctx context.Context, lock Name) error {
	if lock == "" {
		return s.read(ctx, allWaitsSQL, pgx.NamedArgs{})
	}
	if err := s.read(ctx, queueSQL, pgx.NamedArgs{"lock": lock}); err != nil {
		return err
	}
	var holder owner
	err := s.query(ctx, holdersSQL, []any{pgx.NamedArgs{"lock": lock, "limit": s.max + 1}}, func(rows pgx.Rows) error {
		err := rows.Scan(&holder.id, &holder.principal)
		s.meet(holder)
		return err
	})
	for err == nil && len(s.frontier) > 0 && !s.truncated {
		owners := s.frontier.args()
		s.frontier = nil
		if err = s.read(ctx, ownersQueuesSQL, maps.Clone(owners)); err == nil {
			err = s.read(ctx, behindSQL, owners)
		}
	}
	return err
}

func (s *waitSearch) meet(met owner) {
	if !s.owners[met] {
		s.owners[met] = true
		s.frontier = append(s.frontier, met)
	}
}

// read adds the waits that sql finds, and the owners in their way.
func (s *waitSearch) read(ctx context.Context, sql string, args pgx.NamedArgs) error {
	args["within"] = s.within
	args["limit"] = s.max + 1 // so many, that there are more than can be shown, whatever is known of them
	var found []int64
	err := s.query(ctx, sql, []any{pgx.QueryExecModeCacheDescribe, args}, func(rows pgx.Rows) error {
		var ticket int64
		var wait WaitOf
		err := rows.Scan(&ticket, &wait.OwnerID, &wait.Principal, &wait.Lock, &wait.Mode, &wait.Scope, &wait.QueuedAt)
		if err != nil {
			return err
		}
		switch {
		case s.waits[ticket] != nil:
		case len(s.waits) == s.max:
			s.truncated = true
		default:
			s.waits[ticket], found = &wait, append(found, ticket)
			s.meet(owner{wait.OwnerID, wait.Principal})
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		return err
	}
	ahead := pgx.NamedArgs{"tickets": found, "limit": WaitForMax + 1, "within": s.within}
	return s.query(ctx, aheadSQL, []any{pgx.QueryExecModeCacheDescribe, ahead}, func(rows pgx.Rows) error {
		var ticket int64
		var other Blocker
		if err := rows.Scan(&ticket, &other.Relation, &other.OwnerID, &other.Principal, &other.Lock); err != nil {
			return err
		}
		if wait := s.waits[ticket]; !slices.Contains(wait.For, other) {
			wait.For = append(wait.For, other)
			s.meet(owner{other.OwnerID, other.Principal})
		}
		return nil
	})
}

// graph is what was found, with no more in the way of each than is to be shown: of the holders the first, of those
// before the nearest.
func (s *waitSearch) graph() WaitGraph {
	graph := WaitGraph{Waits: []WaitOf{}, Truncated: s.truncated}
	for _, ticket := range slices.Sorted(maps.Keys(s.waits)) {
		wait := s.waits[ticket]
		holders := slices.IndexFunc(wait.For, func(other Blocker) bool { return other.Relation == Before })
		if holders < 0 {
			holders = len(wait.For)
		}
		if before := wait.For[holders:]; len(before) > WaitForMax {
			wait.For, graph.Truncated = slices.Delete(wait.For, holders, len(wait.For)-WaitForMax), true
		}
		if holders > WaitForMax {
			wait.For, graph.Truncated = slices.Delete(wait.For, WaitForMax, holders), true
		}
		graph.Waits = append(graph.Waits, *wait)
	}
	return graph
}
