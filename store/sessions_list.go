package store

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// SessionInfo is a session as others may see it, without its ID.
type SessionInfo struct {
	Session
	Handle string // the first 8 hexadecimal digits of the ID: enough to tell sessions apart, and not to use one
	Leases int64  // how many run in it
	// SortKey is its sort key among those that were created in the same microsecond.
	SortKey string
}

// SessionQuery selects sessions, the newest first.
type SessionQuery struct {
	OwnerID string       // "": any
	State   SessionState // "": any

	// AfterMicros and AfterSortKey are of the last session that was seen: when it was created, in microseconds since 1970,
	// and its SortKey. Zero: none was.
	AfterMicros  int64
	AfterSortKey string
	Limit        int // 1 to PageMax
}

// Check returns ErrInvalid, naming the field, if the query is outside its limits.
func (q SessionQuery) Check() error {
	switch q.State {
	case "", SessionLive, SessionEnded, SessionExpired:
	default:
		return fmt.Errorf("%w: state must be live, ended or expired", ErrInvalid)
	}
	if _, err := hex.DecodeString(q.AfterSortKey); err != nil {
		return fmt.Errorf("%w: the sort key of a session is hexadecimal", ErrInvalid)
	}
	return cmp.Or(checkText("owner_id", q.OwnerID, 0, OwnerBytesMax), checkLimit(q.Limit))
}

// A session's ID is a secret, so it is its digest that puts those of one microsecond in order.
const (
	sessionSortKeySQL = "sha256(uuid_send(s.session_id))"
	sessionsListSQL   = `
	select %s, substr(s.session_id::text, 1, 8), encode(s.sort_key, 'hex'),
		case when s.ended_at is null and s.expires_at > clock_timestamp() then (
			select count(*) from fence.leases l where l.session_id = s.session_id and l.ended_at is null
		) else 0 end
	from (
		select s.*, ` + sessionSortKeySQL + ` as sort_key from fence.sessions s
		where %s s.created_at <= @created and (s.created_at < @created or ` + sessionSortKeySQL + ` > decode(@sort_key, 'hex'))
		order by s.created_at desc, sort_key
		limit @limit
	) s
	order by s.created_at desc, s.sort_key`
)

var sessionStateSQL = map[SessionState]string{
	SessionLive:    "s.ended_at is null and s.expires_at > clock_timestamp() and ",
	SessionEnded:   "s.end_reason = 'released' and ",
	SessionExpired: "(s.end_reason = 'expired' or s.ended_at is null and s.expires_at <= clock_timestamp()) and ",
}

// Sessions returns sessions that live, and those that have ended and are not forgotten yet. It returns ErrInvalid or
// ErrUnavailable.
func (s *Store) Sessions(ctx context.Context, query SessionQuery) ([]SessionInfo, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	where := sessionStateSQL[query.State]
	if query.OwnerID != "" {
		where += "s.owner_id = @owner and "
	}
	if query.AfterMicros == 0 {
		query.AfterMicros, query.AfterSortKey = math.MaxInt64, ""
	}
	args := pgx.NamedArgs{"owner": query.OwnerID, "created": timeAt(query.AfterMicros), "sort_key": query.AfterSortKey,
		"limit": query.Limit}
	sql := fmt.Sprintf(sessionsListSQL, sessionColumns, where)
	return collect(ctx, s.query, sql, []any{pgx.QueryExecModeCacheDescribe, args}, readSessionInfo)
}

func readSessionInfo(row pgx.CollectableRow) (session SessionInfo, err error) {
	var shown sessionRow
	err = row.Scan(append(shown.dest(), &session.Handle, &session.SortKey, &session.Leases)...)
	session.Session = shown.session()
	session.ID = uuid.Nil
	return session, err
}
