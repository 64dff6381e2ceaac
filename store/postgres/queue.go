package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencegate/fencegate/store"
)

// Enqueue sends a checked acquire that joins the queue, unless the lock is granted at once. A request that is in the
// queue already keeps its ticket. After a reconnect thousands may be sent again at once: they have few connections, so
// that other acquires get through. It returns the errors of Acquire.
func (s *Store) Enqueue(
	ctx context.Context, request store.AcquireRequest, gateway uuid.UUID, to store.ToQueue,
) (store.Acquired, error) {
	switch {
	case to.Again:
		return s.sendAcquire(ctx, request, gateway, forRequeues)
	case to.Beside:
		return s.sendAcquire(ctx, request, gateway, forAcquires)
	}
	return s.acquire(ctx, request, gateway)
}

// GrantNext grants the lock to the waiters of the gateway whose turn it is; scope Subtree if one of them waits for the
// subtree. It returns ErrLocked after lockWait, and has changed nothing then; or ErrUnavailable.
func (s *Store) GrantNext(
	ctx context.Context, gateway uuid.UUID, lock store.Name, scope store.Scope, lockWait time.Duration,
) ([]store.QueueResult, error) {
	// The timeout is an argument of the call, so that it is set before.
	const sql = "select " + queueColumns + `
		from set_config('lock_timeout', $4, true) s (lock_timeout),
			lateral fence.grant_next($1, $2, case when s.lock_timeout <> '' then $3 end) c, lateral (select (c.lease).*) l`
	args := []any{gateway, lock, scope, strconv.FormatInt(lockWait.Milliseconds(), 10)}
	granting := s.beginGranting()
	err := s.queryAs(ctx, statement{purpose: forGrants, bounded: true}, sql, args,
		func(rows pgx.Rows) error { return granting.scan(rows) })
	return granting.committed(ctx, err)
}

// HandOver is ReleaseLease, and then GrantNext for waiters of the gateway none of which is for a subtree, in one
// transaction. The results of the grant are there also where the lease could not be released.
func (s *Store) HandOver(
	ctx context.Context, ref store.LeaseRef, gateway uuid.UUID,
) (store.Released, []store.QueueResult, error) {
	if err := ref.Check(); err != nil {
		return store.Released{}, nil, err
	}
	const sql = "select " + queueColumns + `, c.status, c.mode, c.age_ms
		from fence.release_lease($1, $2, $3, $4, $5, true) c, lateral (select (c.lease).*) l`
	var release releaseRow
	granting := s.beginGranting()
	stmt := onLock(forReleases, ref.Lock)
	stmt.restart = granting.restart
	err := s.queryAs(ctx, stmt, sql, append(refArgs(ref), gateway), func(rows pgx.Rows) error {
		return granting.scan(rows, release.dest()...)
	})
	results, err := granting.committed(ctx, err)
	if err != nil {
		return store.Released{}, nil, err
	}
	released, err := release.released(ref.Lock)
	return released, results, err
}

// queueColumns are the columns of a row c of fence.grant_next, in the order of granting.scan.
const queueColumns = "c.outcome, c.ticket, coalesce((c.lease).request_id, ''), c.reason, c.left_ms, " + sequenceSQL + ", " +
	leaseColumns

// granting collects the results of a statement that grants to waiters.
type granting struct {
	store       *Store
	newestToken int64 // before the statement
	results     []store.QueueResult
	minted      int64 // value of the token sequence; 0: nothing was granted
}

func (s *Store) beginGranting() *granting {
	return &granting{store: s, newestToken: s.lineage.newestToken.Load()}
}

// restart forgets the rows of a statement that was undone.
func (g *granting) restart() { g.results, g.minted = nil, 0 }

// scan adds a row. The columns that follow go to more. A row without an outcome has no result.
func (g *granting) scan(rows pgx.Rows, more ...any) error {
	var outcome, reason pgtype.Text
	var ticket, leftMS pgtype.Int8
	var sequence int64
	var row leaseRow
	var result store.QueueResult
	dest := append([]any{&outcome, &ticket, &result.RequestID, &reason, &leftMS, &sequence}, row.dest()...)
	if err := rows.Scan(append(dest, more...)...); err != nil || !outcome.Valid {
		return err
	}
	result.Ticket = ticket.Int64
	switch outcome.String {
	case "granted":
		result.Done, result.Lease, result.Left, g.minted = true, row.lease(), leftOf(leftMS), sequence
	case "external":
		result.Done, result.Err = true, store.ErrExternalAuthority
	case "session_lost":
		result.Done, result.Err = true, sessionLost(reason.String)
	case "more":
		result.More = true
	case "held":
		result.Left = leftOf(leftMS)
	}
	g.results = append(g.results, result)
	return nil
}

// committed returns the results if the statement did not fail: they count when it is committed, not before.
func (g *granting) committed(ctx context.Context, err error) ([]store.QueueResult, error) {
	if err == nil && g.minted > 0 {
		err = g.store.minted(ctx, g.minted, g.newestToken)
	}
	if err != nil {
		return nil, err
	}
	return g.results, nil
}

// NextDue calls due for each of the locks where it may be the turn of the ticket, or where the ticket is gone from the
// queue (here is false). It returns ErrUnavailable.
func (s *Store) NextDue(
	ctx context.Context, gateway uuid.UUID, locks []store.Name, tickets []int64, due func(lock store.Name, here bool),
) error {
	const sql = "select lock, here from fence.next_due($1, $2, $3)"
	return s.query(ctx, sql, []any{gateway, locks, tickets}, func(rows pgx.Rows) error {
		var lock store.Name
		var here bool
		if err := rows.Scan(&lock, &here); err != nil {
			return err
		}
		due(lock, here)
		return nil
	})
}

// Heartbeat records that the gateway lives. Its waiters count until the time missing is over. lapsed: they had ceased
// to count. It returns ErrUnavailable.
func (s *Store) Heartbeat(ctx context.Context, gateway uuid.UUID, missing time.Duration) (lapsed bool, err error) {
	const sql = "select fence.heartbeat($1, $2)"
	err = s.queryRow(ctx, statement{purpose: forRenewals}, sql, []any{gateway, missing.Milliseconds()}, &lapsed)
	return lapsed, err
}

// LeaveQueue removes the request from the queue, if it is there and no other gateway has taken it over. It returns
// ErrUnavailable.
func (s *Store) LeaveQueue(ctx context.Context, gateway uuid.UUID, lock store.Name, requestID string) error {
	const sql = "select fence.leave($1, array(select w.ticket from fence.waiters w " +
		"where w.lock = $2 collate \"POSIX\" and w.request_id = $3))"
	return s.exec(ctx, onLock(forReleases, lock), sql, gateway, lock, requestID)
}

// GiveBack releases a lease that its owner never received; the same request sent again is a new one. If it was sent
// again before, through another gateway, its owner has the lease, and keeps it. It returns ErrUnavailable.
func (s *Store) GiveBack(ctx context.Context, lease store.Lease) error {
	return s.exec(ctx, onLock(forReleases, lease.Lock), "select fence.give_back($1, $2, $3, $4)", refArgs(lease.Ref())...)
}

// FindDeadlocks returns those of the tickets whose waits are in a cycle. It costs less if they have just begun, at the
// end of their queues. It returns ErrUnavailable.
func (s *Store) FindDeadlocks(ctx context.Context, tickets []int64, begun bool) ([]int64, error) {
	return collect(ctx, s.query, "select fence.find_deadlocks($1, $2)", []any{tickets, begun}, pgx.RowTo[int64])
}

// BreakDeadlock removes the waiter with the ticket if it is in a cycle in which no wait is later, or insist is true.
// With DeadlockBroken it returns the cycle. It returns ErrUnavailable.
func (s *Store) BreakDeadlock(
	ctx context.Context, gateway uuid.UUID, ticket int64, insist bool,
) (outcome store.DeadlockOutcome, cycle *store.DeadlockError, err error) {
	var text []byte
	const sql = "select outcome, cycle from fence.break_deadlock($1, $2, $3)"
	err = s.queryRow(ctx, statement{}, sql, []any{gateway, ticket, insist}, &outcome, &text)
	if err != nil || outcome != store.DeadlockBroken {
		return outcome, nil, err
	}
	cycle = &store.DeadlockError{}
	if err := json.Unmarshal(text, &cycle.Cycle); err != nil {
		return "", nil, fmt.Errorf("fence.break_deadlock found the cycle %q: %w", text, err)
	}
	return outcome, cycle, nil
}

const (
	ownersSQL   = "unnest(@owners::text[], @principals::text[])"
	withNowSQL  = "with now as materialized (select clock_timestamp() as at) "
	waitColumns = "w.ticket, w.owner_id, w.principal, w.lock, w.mode, w.scope, w.queued_at"
)

var (
	waitWithinSQL = " and " + withinSQL("w.lock", "@within")

	allWaitsSQL = withNowSQL + "select " + waitColumns + " from " + waitingSQL + waitWithinSQL + " order by w.ticket limit @limit"
	waitsOfSQL  = withNowSQL + "select " + waitColumns + " from " + waitingSQL + waitWithinSQL +
		" and w.owner_id = @owner order by w.ticket limit @limit"
	queueSQL = withNowSQL + "select " + waitColumns + " from " + waitingSQL +
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
		cross join lateral fence.waiters_behind(h.lock, h.mode, h.scope, h.ticket, null, @limit) w
		where true` + waitWithinSQL + `
		order by w.ticket limit @limit`

	// Blockers of these waits: of each relation one more than is shown, the nearest first. Waits of one kind for one
	// lock have the same holders, read once.
	aheadSQL = `
		with waits as materialized (
			select w.ticket, w.lock, w.mode, w.scope from fence.waiters w where w.ticket = any (@tickets)
		), holders as materialized (
			select k.*, x.relation, x.owner_id, x.principal, x.lock as blocked_on, x.sort_key
			from (select distinct w.lock, w.mode, w.scope from waits w) k
			cross join lateral (
				select x.* from fence.blockers(k.lock, k.mode, k.scope, 0::bigint, 0, 0) x
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
				select x.* from fence.blockers(w.lock, w.mode, w.scope, w.ticket, 0, @limit::integer) x
				where x.relation = 'before' and ` + withinSQL("x.lock", "@within") + ` order by x.sort_key desc limit @limit::integer
			) x
		) x (ticket, relation, owner_id, principal, blocked_on, sort_key)
		order by x.ticket, x.relation desc, x.sort_key`
)

// Waits returns the wait graph around a lock at one moment: its waiters, then the owners that they wait for and the
// waiters for them, at most limit. Without a lock it returns all waits, the first in the queue first. It leaves out
// waits for, and blockers on, locks that are not within these names or below them; nil: none. It returns ErrInvalid or
// ErrUnavailable.
func (s *Store) Waits(ctx context.Context, lock store.Name, limit int, within []string) (store.WaitGraph, error) {
	return s.searchWaits(ctx, limit, within, func(search *waitSearch) error { return search.run(ctx, lock) })
}

// WaitsOf returns the waits of an owner_id, of whatever principal, as Waits does.
func (s *Store) WaitsOf(ctx context.Context, ownerID string, limit int, within []string) (store.WaitGraph, error) {
	if err := store.CheckOwnerID(ownerID); err != nil {
		return store.WaitGraph{}, err
	}
	return s.searchWaits(ctx, limit, within, func(search *waitSearch) error {
		return search.read(ctx, waitsOfSQL, pgx.NamedArgs{"owner": ownerID})
	})
}

func (s *Store) searchWaits(
	ctx context.Context, limit int, within []string, run func(*waitSearch) error,
) (store.WaitGraph, error) {
	if limit < 1 || limit > store.WaitsMax {
		return store.WaitGraph{}, fmt.Errorf("%w: limit is %d, it must be 1 to %d", store.ErrInvalid, limit, store.WaitsMax)
	}
	var search waitSearch
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := s.inTx(ctx, options, func(tx pgx.Tx) error {
		search = waitSearch{
			query: queryIn(tx), max: limit, within: within, waits: map[int64]*store.WaitOf{}, owners: map[owner]bool{},
		}
		return run(&search)
	})
	if err != nil {
		return store.WaitGraph{}, err
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
	waits     map[int64]*store.WaitOf // by their tickets
	owners    map[owner]bool          // that were met
	frontier  owners                  // those of them whose waits, and whose waiters, are still to be read
	truncated bool
}

func (s *waitSearch) run(ctx context.Context, lock store.Name) error {
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
		var wait store.WaitOf
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
	ahead := pgx.NamedArgs{"tickets": found, "limit": store.WaitForMax + 1, "within": s.within}
	return s.query(ctx, aheadSQL, []any{pgx.QueryExecModeCacheDescribe, ahead}, func(rows pgx.Rows) error {
		var ticket int64
		var other store.Blocker
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

// graph returns the waits that were found, each with as many blockers as are shown: the first holders, and the nearest
// earlier waiters.
func (s *waitSearch) graph() store.WaitGraph {
	graph := store.WaitGraph{Waits: []store.WaitOf{}, Truncated: s.truncated}
	for _, ticket := range slices.Sorted(maps.Keys(s.waits)) {
		wait := s.waits[ticket]
		holders := slices.IndexFunc(wait.For, func(other store.Blocker) bool { return other.Relation == store.Before })
		if holders < 0 {
			holders = len(wait.For)
		}
		if before := wait.For[holders:]; len(before) > store.WaitForMax {
			wait.For, graph.Truncated = slices.Delete(wait.For, holders, len(wait.For)-store.WaitForMax), true
		}
		if holders > store.WaitForMax {
			wait.For, graph.Truncated = slices.Delete(wait.For, store.WaitForMax, holders), true
		}
		graph.Waits = append(graph.Waits, *wait)
	}
	return graph
}
