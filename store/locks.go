package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// PageMax is the most that a list returns at once.
const PageMax = 1000

// QueueMax is the most waiters that are shown of a lock.
const QueueMax = 1000

// LockState is the state of a lock.
type LockState string

// The states of a lock.
const (
	LockFree    LockState = "free"    // nobody may write
	LockHeld    LockState = "held"    // a lease is live
	LockExpired LockState = "expired" // the holder is late, and nobody has replaced it
)

// Lock is a lock as others may see it.
type Lock struct {
	Lock        Name
	State       LockState
	Token       int64    // the newest granted on it
	Holders     []Lease  // without their IDs; none where it is free
	Queue       []Waiter // in their order, as many as were asked for
	QueueLength int64    // how many wait
	// SortKey is the value that the list was sorted by; see LockQuery.AfterValue.
	SortKey int64
}

// Holder is the first of the Holders, nil where there is none. An exclusive lease has no other beside it.
func (l Lock) Holder() *Lease {
	if len(l.Holders) == 0 {
		return nil
	}
	return &l.Holders[0]
}

// Waiter is an acquire in the queue for a lock.
type Waiter struct {
	OwnerID   string
	Principal string // see AcquireRequest
	Mode      Mode
	Scope     Scope
	QueuedAt  time.Time
}

// untilSQL is when the lease l expires; s is its session or a row of nulls. The planner inlines the call.
const untilSQL = "fence.lease_until(l, s)"

// runningSQL are the leases l that run, each with its session s; waitingSQL are the live waiters w.
const (
	runningSQL = `fence.leases l left join fence.sessions s on s.session_id = l.session_id
		where l.ended_at is null and ` + untilSQL + ` > (select at from now)`
	waitingSQL = "fence.live_waiters() w where true"
)

// openSQL is whether the newest grant may still write to the fence f. A lease that has reached its hold_until may not,
// also before a sweep has closed the fence.
const openSQL = "(f.open and not (f.limited and " + heldOutSQL + "))"

const heldOutSQL = `exists (select from fence.leases h
	where h.lock = f.resource and h.fencing_token = f.granted_token and h.hold_until <= clock_timestamp())`

// showSQL shows locks as they are at one moment. What is chosen are rows of fences, with the sort key of each. Each
// comes with the leases that run on it, or with the one that has run out and that no other has replaced: an exclusive
// lease whose fence is open is the newest of its lock, which is never forgotten.
const showSQL = `
	with now as materialized (
		select clock_timestamp() as at
	), chosen as materialized (
		%s
	)
	select k.resource, k.granted_token, case when l.runs then 'held' when k.open then 'expired' else 'free' end, %s,
		queue.length, queue.owners, queue.principals, queue.modes, queue.scopes, queue.since, %s
	from chosen k
	cross join lateral (
		select count(*) as length,
			(array_agg(p.owner_id))[1:@queue_max] as owners, (array_agg(p.principal))[1:@queue_max] as principals,
			(array_agg(p.mode))[1:@queue_max] as modes, (array_agg(p.scope))[1:@queue_max] as scopes,
			(array_agg(p.queued_at))[1:@queue_max] as since
		from (
			select w.owner_id, w.principal, w.mode, w.scope, w.queued_at from ` + waitingSQL + ` and w.lock = k.resource
			order by w.ticket
		) p
	) queue
	left join lateral (
		select l.*, ` + untilSQL + ` as until, true as runs from ` + runningSQL + ` and l.lock = k.resource
		union all
		select l.*, ` + untilSQL + `, false from fence.leases l left join fence.sessions s on s.session_id = l.session_id
		where k.open and l.lock = k.resource and l.fencing_token = k.granted_token
			and (l.ended_at is not null or ` + untilSQL + ` <= (select at from now))
	) l on true
	order by k.sorted %s, k.resource %s, l.fencing_token`

// shownColumns are those of a lease with the time at which it runs out.
var shownColumns = strings.Replace(leaseColumns, "l.expires_at", "l.until", 1)

var oneLockSQL = fmt.Sprintf(showSQL,
	"select f.resource, f.granted_token, "+openSQL+" as open, 0 as sorted from fence.fences f where "+isLockSQL+
		" and f.resource = @lock", "0::bigint", shownColumns, "", "")

// isLockSQL tells a lock from what has only records: it was granted, or an acquire waits for it.
const isLockSQL = "(f.granted_token > 0 or exists (select from fence.waiters w where w.lock = f.resource))"

// Lock returns a lock, ErrNotFound if it was never granted, or ErrUnavailable.
func (s *Store) Lock(ctx context.Context, name Name) (Lock, error) {
	return readLock(ctx, s.query, name)
}

func readLock(ctx context.Context, query queryFunc, name Name) (Lock, error) {
	locks, err := readLocks(ctx, query, oneLockSQL, oneLock(name))
	if err == nil && len(locks) == 0 {
		err = fmt.Errorf("%w: there is no lock %s", ErrNotFound, name)
	}
	if err != nil {
		return Lock{}, err
	}
	return locks[0], nil
}

func oneLock(name Name) pgx.NamedArgs { return pgx.NamedArgs{"lock": name, "queue_max": QueueMax} }

// Locks returns locks in the order that the query asks for. It returns ErrInvalid or ErrUnavailable.
func (s *Store) Locks(ctx context.Context, query LockQuery) ([]Lock, error) {
	query, err := query.Check()
	if err != nil {
		return nil, err
	}
	// Planned anew each time: a plan for all filters is good for none.
	list := lockSelect{query}
	return readLocks(ctx, s.query, list.listSQL(), pgx.QueryExecModeCacheDescribe, list.args())
}

// CountLocks returns how many locks the query selects, on whatever page. It returns ErrInvalid or ErrUnavailable.
func (s *Store) CountLocks(ctx context.Context, query LockQuery) (count int64, err error) {
	if query, err = query.Check(); err != nil {
		return 0, err
	}
	list := lockSelect{query}
	err = s.queryRow(ctx, statement{}, list.countSQL(), []any{pgx.QueryExecModeCacheDescribe, list.args()}, &count)
	return count, err
}

// lockRow is a lock with one of its holders, or none.
type lockRow struct {
	lock                              Lock
	owners, principals, modes, scopes []string
	since                             []time.Time
	holder                            leaseRow
}

func (r *lockRow) dest() []any {
	return append([]any{
		&r.lock.Lock, &r.lock.Token, &r.lock.State, &r.lock.SortKey, &r.lock.QueueLength, &r.owners, &r.principals,
		&r.modes, &r.scopes, &r.since,
	}, r.holder.dest()...)
}

func (r *lockRow) queue() []Waiter {
	queue := make([]Waiter, len(r.owners))
	for i := range queue {
		queue[i] = Waiter{
			OwnerID: r.owners[i], Principal: r.principals[i], Mode: Mode(r.modes[i]), Scope: Scope(r.scopes[i]),
			QueuedAt: r.since[i],
		}
	}
	return queue
}

func readLocks(ctx context.Context, query queryFunc, sql string, args ...any) ([]Lock, error) {
	locks := []Lock{}
	err := query(ctx, sql, args, func(rows pgx.Rows) error {
		var row lockRow
		if err := rows.Scan(row.dest()...); err != nil {
			return err
		}
		if len(locks) == 0 || locks[len(locks)-1].Lock != row.lock.Lock {
			row.lock.Queue = row.queue()
			locks = append(locks, row.lock)
		}
		if row.holder.lock.Valid {
			last := &locks[len(locks)-1]
			last.Holders = append(last.Holders, row.holder.shown())
		}
		return nil
	})
	return locks, err
}

// shown is the lease as others may see it, without what is its owner's secret.
func (r *leaseRow) shown() Lease {
	lease := r.lease()
	lease.ID, lease.SessionID = uuid.Nil, uuid.Nil
	return lease
}

func checkLimit(limit int) error {
	if limit < 1 || limit > PageMax {
		return fmt.Errorf("%w: limit is %d, it must be 1 to %d", ErrInvalid, limit, PageMax)
	}
	return nil
}

// notFound gives a missing row its name.
func notFound(err error, format string, args ...any) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w: %s", ErrNotFound, fmt.Sprintf(format, args...))
	}
	return err
}
