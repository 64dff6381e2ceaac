package store

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// LeaseState says whether a lease runs.
type LeaseState string

// The states of a lease.
const (
	LeaseRunning LeaseState = "running"
	LeaseEnded   LeaseState = "ended" // released, broken or expired, whether that was noticed or not
)

// LeaseInfo is a lease as others may see it, without its ID and its session's, also one that has ended.
type LeaseInfo struct {
	Lease
	State     LeaseState
	InSession bool
	EndedAt   time.Time // zero where it runs
	EndReason string    // released, broken, expired or max_hold; empty where it runs
	EndNote   string    // the reason that was given for breaking it
}

// LeaseQuery selects leases, the newest token first, and those with the same token in byte order of their locks.
type LeaseQuery struct {
	Lock    Name       // "": any
	OwnerID string     // "": any
	State   LeaseState // "": any
	Within  []string   // only locks with these names, or below them; nil: all

	// AfterToken and AfterLock are those of the last lease that was seen; zero: none was.
	AfterToken int64
	AfterLock  string
	Limit      int // 1 to PageMax
}

// Check returns ErrInvalid, naming the field, if the query is outside its limits.
func (q LeaseQuery) Check() error {
	switch {
	case q.State != "" && q.State != LeaseRunning && q.State != LeaseEnded:
		return fmt.Errorf("%w: state must be running or ended", ErrInvalid)
	case q.AfterToken < 0:
		return fmt.Errorf("%w: leases are asked for after the token %d, it must be 0 or greater", ErrInvalid, q.AfterToken)
	}
	return cmp.Or(checkText("owner_id", q.OwnerID, 0, OwnerBytesMax), checkLimit(q.Limit))
}

// The end of a lease that nobody has ended yet is when it ran out, which may be with its session. Of one that was ended
// before its session, when it would have run out is that session's to say; where the session is forgotten, it is when
// it ended.
const (
	shownUntilSQL = `case when l.session_id is null then l.expires_at when s.session_id is null then l.ended_at
		else least(s.ended_at, s.expires_at, l.hold_until) end`
	leasesListSQL = `
	with now as materialized (select clock_timestamp() as at)
	select case when l.runs then 'running' else 'ended' end, case when not l.runs then coalesce(l.ended_at, l.until) end,
		case when l.runs then '' else coalesce(l.end_reason, case when l.until >= l.hold_until then 'max_hold' end,
			l.session_reason, 'expired') end,
		coalesce(l.end_note, ''), %s
	from (
		select l.*, ` + shownUntilSQL + ` as until, l.ended_at is null and ` + untilSQL + ` > (select at from now) as runs,
			s.end_reason as session_reason
		from fence.leases l left join fence.sessions s on s.session_id = l.session_id
		where %s l.fencing_token <= @token and (l.fencing_token < @token or l.lock > @after)
	) l
	order by l.fencing_token desc, l.lock
	limit @limit`
)

func leasesSQL(q LeaseQuery) string {
	where := withinSQL("l.lock", "@within") + " and "
	if q.Lock != "" {
		where += "l.lock = @lock and "
	}
	if q.OwnerID != "" {
		where += "l.owner_id = @owner and "
	}
	switch q.State {
	case LeaseRunning:
		where += "l.ended_at is null and " + untilSQL + " > (select at from now) and "
	case LeaseEnded:
		where += "(l.ended_at is not null or " + untilSQL + " <= (select at from now)) and "
	}
	return fmt.Sprintf(leasesListSQL, shownColumns, where)
}

// Leases returns leases that run, and those that have ended and are not forgotten yet. It returns ErrInvalid or
// ErrUnavailable.
func (s *Store) Leases(ctx context.Context, query LeaseQuery) ([]LeaseInfo, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	if query.AfterToken == 0 {
		query.AfterToken, query.AfterLock = math.MaxInt64, ""
	}
	args := pgx.NamedArgs{
		"lock": query.Lock, "owner": query.OwnerID, "token": query.AfterToken, "after": query.AfterLock, "limit": query.Limit,
		"within": query.Within,
	}
	return collect(ctx, s.query, leasesSQL(query), []any{pgx.QueryExecModeCacheDescribe, args}, readLeaseInfo)
}

func readLeaseInfo(row pgx.CollectableRow) (lease LeaseInfo, err error) {
	var endedAt pgtype.Timestamptz
	var shown leaseRow
	err = row.Scan(append([]any{&lease.State, &endedAt, &lease.EndReason, &lease.EndNote}, shown.dest()...)...)
	lease.Lease, lease.InSession, lease.EndedAt = shown.shown(), shown.session.Valid, endedAt.Time
	return lease, err
}
