package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencegate/fencegate/store"
)

// runningSQL are the leases l that run; waitingSQL are the live waiters w.
const (
	runningSQL = "fence.leases l where l.ended_at is null and l.expires_at > (select at from now)"
	waitingSQL = "fence.live_waiters() w where true"
)

// showSQL shows locks as they are at one moment. It takes chosen rows of fences, each with its sort key, and adds the
// leases that run on each lock, or the one that has run out and was not replaced: an exclusive lease whose fence is
// open is the newest of its lock, which is never forgotten.
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
		select l.*, true as runs from ` + runningSQL + ` and l.lock = k.resource
		union all
		select l.*, false from fence.leases l
		where k.open and l.lock = k.resource and l.fencing_token = k.granted_token
			and (l.ended_at is not null or l.expires_at <= (select at from now))
	) l on true
	order by k.sorted %s, k.resource %s, l.fencing_token`

var oneLockSQL = fmt.Sprintf(showSQL,
	"select f.resource, f.granted_token, f.open, 0 as sorted from fence.fences f where "+isLockSQL+
		" and f.resource = @lock", "0::bigint", leaseColumns, "", "")

// isLockSQL selects locks, and no names with only records: a lock was granted, or an acquire waits for it.
const isLockSQL = "(f.granted_token > 0 or exists (select from fence.waiters w where w.lock = f.resource))"

// Lock returns a lock, ErrNotFound if it was never granted, or ErrUnavailable.
func (s *Store) Lock(ctx context.Context, name store.Name) (store.Lock, error) {
	return readLock(ctx, s.query, name)
}

func readLock(ctx context.Context, query queryFunc, name store.Name) (store.Lock, error) {
	locks, err := readLocks(ctx, query, oneLockSQL, oneLock(name))
	if err == nil && len(locks) == 0 {
		err = fmt.Errorf("%w: there is no lock %s", store.ErrNotFound, name)
	}
	if err != nil {
		return store.Lock{}, err
	}
	return locks[0], nil
}

func oneLock(name store.Name) pgx.NamedArgs {
	return pgx.NamedArgs{"lock": name, "queue_max": store.QueueMax}
}

// Locks returns locks in the order that the query asks for. It returns ErrInvalid or ErrUnavailable.
func (s *Store) Locks(ctx context.Context, query store.LockQuery) ([]store.Lock, error) {
	query, err := query.Check()
	if err != nil {
		return nil, err
	}
	// Planned anew each time: a plan for all filters is good for none.
	list := lockSelect{query}
	return readLocks(ctx, s.query, list.listSQL(), pgx.QueryExecModeCacheDescribe, list.args())
}

// CountLocks returns how many locks the query selects, on whatever page. It returns ErrInvalid or ErrUnavailable.
func (s *Store) CountLocks(ctx context.Context, query store.LockQuery) (count int64, err error) {
	if query, err = query.Check(); err != nil {
		return 0, err
	}
	list := lockSelect{query}
	err = s.queryRow(ctx, statement{}, list.countSQL(), []any{pgx.QueryExecModeCacheDescribe, list.args()}, &count)
	return count, err
}

// lockRow is a lock with one of its holders, or none.
type lockRow struct {
	lock                              store.Lock
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

func (r *lockRow) queue() []store.Waiter {
	queue := make([]store.Waiter, len(r.owners))
	for i := range queue {
		queue[i] = store.Waiter{
			OwnerID: r.owners[i], Principal: r.principals[i], Mode: store.Mode(r.modes[i]), Scope: store.Scope(r.scopes[i]),
			QueuedAt: r.since[i],
		}
	}
	return queue
}

func readLocks(ctx context.Context, query queryFunc, sql string, args ...any) ([]store.Lock, error) {
	locks := []store.Lock{}
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
func (r *leaseRow) shown() store.Lease {
	lease := r.lease()
	lease.ID, lease.SessionID = uuid.Nil, uuid.Nil
	return lease
}

// notFound gives a missing row its name.
func notFound(err error, format string, args ...any) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w: %s", store.ErrNotFound, fmt.Sprintf(format, args...))
	}
	return err
}

// lockOrder says how locks are sorted, in SQL.
type lockOrder struct {
	value   string // to be sorted by, never null; %s is what locks without a holder have, so that they come last
	sortKey string // the same as a number
	time    bool   // whether it is one
}

const timeSortKeySQL = `case k.sorted when 'infinity' then 9223372036854775807 when '-infinity' then -9223372036854775808
	else (extract(epoch from k.sorted) * 1000000)::bigint end`

var lockOrders = map[store.LockSort]lockOrder{
	store.LocksByName:    {value: "f.resource", sortKey: "0::bigint"},
	store.LocksByToken:   {value: "f.granted_token::bigint", sortKey: "k.sorted"},
	store.LocksByWaiters: {value: "coalesce(queue.length, 0)", sortKey: "k.sorted"},
	store.LocksByExpiry:  {value: "coalesce(r.until, late.until, timestamptz '%s')", sortKey: timeSortKeySQL, time: true},
	store.LocksByGrant: {value: "coalesce(r.granted_at, late.granted_at, timestamptz '%s')", sortKey: timeSortKeySQL,
		time: true},
}

// Joins before fences are chosen: only those to sort or select by. Each table is read once, as a whole, and no function
// is called for any of its rows. All else that is shown is read for the locks of the page only.
const (
	joinRunningSQL = `
		left join (
			select l.lock, max(l.expires_at) as until, max(l.granted_at) as granted_at, bool_or(l.owner_id = @owner) as owned,
				bool_or(strpos(l.owner_id, @contains) > 0) as named
			from ` + runningSQL + `
			group by l.lock
		) r on r.lock = f.resource`
	// The newest lease of a lock that may be written to, where it does not run. It is read for those alone.
	joinLateSQL = `
		left join lateral (
			select l.owner_id, l.granted_at, l.expires_at as until
			from fence.leases l
			where r.lock is null and f.open and l.lock = f.resource and l.fencing_token = f.granted_token
			offset 0
		) late on true`
	joinQueueSQL = `
		left join (select w.lock, count(*) as length from ` + waitingSQL +
		` group by w.lock) queue on queue.lock = f.resource`
)

// stateSQL is the state of a lock. It keeps the planner from turning the left join around: led by the leases, the plan
// would look up each fence by itself.
var stateSQL = map[store.LockState]string{
	store.LockHeld:    " and (r.lock is null)::integer = 0",
	store.LockExpired: " and (r.lock is null)::integer = 1 and f.open",
	store.LockFree:    " and (r.lock is null)::integer = 1 and not f.open",
	store.LockActive:  " and ((r.lock is null)::integer = 0 or f.resource in (select w.lock from " + waitingSQL + "))",
}

// lockSelect makes the statements of a query.
type lockSelect struct{ store.LockQuery }

func (q lockSelect) value() string {
	last := "infinity"
	if q.Descending {
		last = "-infinity"
	}
	return strings.Replace(lockOrders[q.Sort].value, "%s", last, 1)
}

func (q lockSelect) direction() (word, beyond string) {
	if q.Descending {
		return "desc", "<"
	}
	return "asc", ">"
}

// rangeSQL are bounds on a name, in byte order: no name with the prefix is greater than the prefix followed by 128 times
// the greatest character.
func rangeSQL(name string) string {
	return fmt.Sprintf("%[1]s >= @prefix and %[1]s <= @prefix || repeat(chr(1114111), 128)", name)
}

// afterSQL is whether a name is on a later page by name.
func (q lockSelect) afterSQL(name string) string {
	_, beyond := q.direction()
	return fmt.Sprintf("(@after = '' or %s %s @after)", name, beyond)
}

// fromNamesSQL are the fences of held or active locks: all of them, or those of a page by name. For a page it reads as
// many leases and waiters, by their indexes.
func (q lockSelect) fromNamesSQL(page bool) string {
	namesIn := func(column, from string) string {
		text := "select distinct " + column + " from " + from + " and " + rangeSQL(column) + " and " + withinSQL(column, "@within")
		if page {
			word, _ := q.direction()
			text += " and " + q.afterSQL(column) + " order by " + column + " " + word + " limit @limit"
		}
		return "(" + text + ")"
	}
	names := namesIn("l.lock", runningSQL)
	if q.State == store.LockActive {
		names += " union " + namesIn("w.lock", waitingSQL)
	}
	return "from (" + names + ") r join fence.fences f on f.resource = r.lock"
}

// fromSQL are the fences that are selected.
func (q lockSelect) fromSQL(sorted bool) string {
	byHolder := q.OwnerID != "" || q.Contains != "" || sorted && lockOrders[q.Sort].time
	text, state := "from fence.fences f", stateSQL[q.State]
	switch {
	case (q.State == store.LockHeld || q.State == store.LockActive) && !byHolder:
		text, state = q.fromNamesSQL(sorted && q.Sort == store.LocksByName), ""
	case byHolder || q.State != "":
		text += joinRunningSQL
	}
	if byHolder {
		text += joinLateSQL
	}
	if sorted && q.Sort == store.LocksByWaiters {
		text += joinQueueSQL
	}
	text += " where " + isLockSQL + " and " + rangeSQL("f.resource") + " and " + withinSQL("f.resource", "@within") + state
	if q.OwnerID != "" {
		text += " and (r.owned or late.owner_id = @owner)"
	}
	if q.Contains != "" {
		text += " and (strpos(f.resource, @contains) > 0 or r.named or strpos(late.owner_id, @contains) > 0)"
	}
	return text
}

func (q lockSelect) listSQL() string {
	word, beyond := q.direction()
	value, names := q.value(), "asc"
	text := "select f.resource, f.granted_token, f.open, " + value + " as sorted " + q.fromSQL(true)
	switch {
	case q.Sort == store.LocksByName:
		names = word
		text += " and " + q.afterSQL("f.resource")
	case q.After != "":
		text += fmt.Sprintf(" and (%[1]s %[2]s @value or %[1]s = @value and f.resource > @after)", value, beyond)
	}
	text += fmt.Sprintf(" order by %s %s, f.resource %s limit @limit", value, word, names)
	return fmt.Sprintf(showSQL, text, lockOrders[q.Sort].sortKey, leaseColumns, word, names)
}

func (q lockSelect) countSQL() string {
	return "with now as materialized (select clock_timestamp() as at) select count(*) " + q.fromSQL(false)
}

func (q lockSelect) args() pgx.NamedArgs {
	args := pgx.NamedArgs{
		"prefix": narrowed(q.Prefix, q.Within), "within": q.Within, "contains": q.Contains, "owner": q.OwnerID, "after": q.After, "value": q.AfterValue,
		"limit": q.Limit, "queue_max": q.QueueMax,
	}
	if lockOrders[q.Sort].time {
		args["value"] = timeAt(q.AfterValue)
	}
	return args
}

// timeAt is the time that has this sort key.
func timeAt(sortKey int64) pgtype.Timestamptz {
	switch sortKey {
	case math.MaxInt64:
		return pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
	case math.MinInt64:
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: time.UnixMicro(sortKey), Valid: true}
}
