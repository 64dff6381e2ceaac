package store

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// LockSort is what locks are sorted by. Locks with the same value are in byte order of their names.
type LockSort string

// The sorts of locks.
const (
	LocksByName LockSort = "name"
	// of several holders the one whose lease lasts longest; locks without a holder come last
	LocksByExpiry  LockSort = "expires_at"
	LocksByGrant   LockSort = "granted_at"    // of several holders the latest; locks without a holder come last
	LocksByToken   LockSort = "fencing_token" // the newest granted on the lock
	LocksByWaiters LockSort = "queue"         // how many wait
)

// LockQuery selects locks.
type LockQuery struct {
	Prefix   string    // of the name, any text
	Contains string    // any text that is in the name, or in the owner of a holder
	OwnerID  string    // of a holder
	State    LockState // "": any

	Within []string // only these names and those below them; nil: all

	Sort       LockSort // "": by name
	Descending bool

	// After is the name of the last lock that was seen; "": none. Where the sort is not by name, AfterValue is that lock's
	// SortKey.
	After      string
	AfterValue int64

	Limit    int // 1 to PageMax
	QueueMax int // how many waiters are shown of each lock, 0 to the constant QueueMax
}

// Check returns the query with its defaults, or ErrInvalid naming the field and its limit.
func (q LockQuery) Check() (LockQuery, error) {
	q.Sort = cmp.Or(q.Sort, LocksByName)
	switch q.State {
	case "", LockFree, LockHeld, LockExpired:
	default:
		return q, fmt.Errorf("%w: state must be free, held or expired", ErrInvalid)
	}
	switch q.Sort {
	case LocksByName, LocksByExpiry, LocksByGrant, LocksByToken, LocksByWaiters:
	default:
		return q, fmt.Errorf("%w: sort must be name, expires_at, granted_at, fencing_token or queue", ErrInvalid)
	}
	if q.QueueMax < 0 || q.QueueMax > QueueMax {
		return q, fmt.Errorf("%w: queue_max is %d, it must be 0 to %d", ErrInvalid, q.QueueMax, QueueMax)
	}
	return q, cmp.Or(
		checkText("contains", q.Contains, 0, NameBytesMax),
		checkText("owner_id", q.OwnerID, 0, OwnerBytesMax),
		checkLimit(q.Limit))
}

// lockOrder says how locks are sorted, in SQL.
type lockOrder struct {
	value   string // to be sorted by, never null; %s is what locks without a holder have, so that they come last
	sortKey string // the same as a number
	time    bool   // whether it is one
}

const timeSortKeySQL = `case k.sorted when 'infinity' then 9223372036854775807 when '-infinity' then -9223372036854775808
	else (extract(epoch from k.sorted) * 1000000)::bigint end`

var lockOrders = map[LockSort]lockOrder{
	LocksByName:    {value: "f.resource", sortKey: "0::bigint"},
	LocksByToken:   {value: "f.granted_token::bigint", sortKey: "k.sorted"},
	LocksByWaiters: {value: "coalesce(queue.length, 0)", sortKey: "k.sorted"},
	LocksByExpiry:  {value: "coalesce(r.until, late.until, timestamptz '%s')", sortKey: timeSortKeySQL, time: true},
	LocksByGrant: {value: "coalesce(r.granted_at, late.granted_at, timestamptz '%s')", sortKey: timeSortKeySQL,
		time: true},
}

// What fences are joined to, before any is chosen: only what is sorted or selected by. Each of these is read once, as a
// whole, and no function is called for any row of it; what else is shown of a lock is read for those of the page.
const (
	joinRunningSQL = `
		left join (
			select l.lock, max(` + untilSQL + `) as until, max(l.granted_at) as granted_at, bool_or(l.owner_id = @owner) as owned,
				bool_or(strpos(l.owner_id, @contains) > 0) as named
			from ` + runningSQL + `
			group by l.lock
		) r on r.lock = f.resource`
	// The newest lease of a lock that may be written to, where it does not run. It is read for those alone.
	joinLateSQL = `
		left join lateral (
			select l.owner_id, l.granted_at, ` + untilSQL + ` as until
			from fence.leases l left join fence.sessions s on s.session_id = l.session_id
			where r.lock is null and f.open and l.lock = f.resource and l.fencing_token = f.granted_token
			offset 0
		) late on true`
	joinQueueSQL = `
		left join (select w.lock, count(*) as length from ` + waitingSQL +
		` group by w.lock) queue on queue.lock = f.resource`
)

// stateSQL is the state of a lock. It is written so that the planner does not make another join of the left join: led
// by the leases, it would look each fence up by itself.
var stateSQL = map[LockState]string{
	LockHeld:    " and (r.lock is null)::integer = 0",
	LockExpired: " and (r.lock is null)::integer = 1 and " + openSQL,
	LockFree:    " and (r.lock is null)::integer = 1 and not " + openSQL,
}

// lockSelect makes the statements of a query.
type lockSelect struct{ LockQuery }

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

// fromHeldSQL are the fences of a page of held locks, by name. It reads as many leases, by their index.
func (q lockSelect) fromHeldSQL() string {
	word, _ := q.direction()
	return "from (select distinct l.lock from " + runningSQL + " and " + rangeSQL("l.lock") + " and " +
		withinSQL("l.lock", "@within") + " and " + q.afterSQL("l.lock") + " order by l.lock " + word + ` limit @limit) r
		join fence.fences f on f.resource = r.lock`
}

// fromSQL are the fences that are selected.
func (q lockSelect) fromSQL(sorted bool) string {
	byHolder := q.OwnerID != "" || q.Contains != "" || sorted && lockOrders[q.Sort].time
	text, state := "from fence.fences f", stateSQL[q.State]
	switch {
	case q.State == LockHeld && !byHolder && sorted && q.Sort == LocksByName:
		text, state = q.fromHeldSQL(), ""
	case byHolder || q.State != "":
		text += joinRunningSQL
	}
	if byHolder {
		text += joinLateSQL
	}
	if sorted && q.Sort == LocksByWaiters {
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
	text := "select f.resource, f.granted_token, " + openSQL + " as open, " + value + " as sorted " + q.fromSQL(true)
	switch {
	case q.Sort == LocksByName:
		names = word
		text += " and " + q.afterSQL("f.resource")
	case q.After != "":
		text += fmt.Sprintf(" and (%[1]s %[2]s @value or %[1]s = @value and f.resource > @after)", value, beyond)
	}
	text += fmt.Sprintf(" order by %s %s, f.resource %s limit @limit", value, word, names)
	return fmt.Sprintf(showSQL, text, lockOrders[q.Sort].sortKey, shownColumns, word, names)
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
