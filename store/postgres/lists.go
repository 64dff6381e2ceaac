package postgres

import (
	"context"
	"fmt"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencegate/fencegate/store"
)

const leasesListSQL = `
	with now as materialized (select clock_timestamp() as at)
	select case when l.runs then 'running' else 'ended' end, case when not l.runs then coalesce(l.ended_at, l.expires_at) end,
		case when l.runs then '' else coalesce(l.end_reason, 'expired') end, coalesce(l.end_note, ''), %s
	from (
		select l.*, l.ended_at is null and l.expires_at > (select at from now) as runs
		from fence.leases l
		where %s l.fencing_token <= @token and (l.fencing_token < @token or l.lock > @after)
	) l
	order by l.fencing_token desc, l.lock
	limit @limit`

func leasesSQL(q store.LeaseQuery) string {
	where := withinSQL("l.lock", "@within") + " and "
	if q.Lock != "" {
		where += "l.lock = @lock and "
	}
	if q.OwnerID != "" {
		where += "l.owner_id = @owner and "
	}
	switch q.State {
	case store.LeaseRunning:
		where += "l.ended_at is null and l.expires_at > (select at from now) and "
	case store.LeaseEnded:
		where += "(l.ended_at is not null or l.expires_at <= (select at from now)) and "
	}
	return fmt.Sprintf(leasesListSQL, leaseColumns, where)
}

// Leases returns leases that run, and those that have ended and are not forgotten yet. It returns ErrInvalid or
// ErrUnavailable.
func (s *Store) Leases(ctx context.Context, query store.LeaseQuery) ([]store.LeaseInfo, error) {
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

func readLeaseInfo(row pgx.CollectableRow) (lease store.LeaseInfo, err error) {
	var endedAt pgtype.Timestamptz
	var shown leaseRow
	err = row.Scan(append([]any{&lease.State, &endedAt, &lease.EndReason, &lease.EndNote}, shown.dest()...)...)
	lease.Lease, lease.InSession, lease.EndedAt = shown.shown(), shown.session.Valid, endedAt.Time
	return lease, err
}

// A session's ID is a secret, so the digest of the ID orders the sessions of one microsecond.
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

var sessionStateSQL = map[store.SessionState]string{
	store.SessionLive:    "s.ended_at is null and s.expires_at > clock_timestamp() and ",
	store.SessionEnded:   "s.end_reason = 'released' and ",
	store.SessionExpired: "(s.end_reason = 'expired' or s.ended_at is null and s.expires_at <= clock_timestamp()) and ",
}

// Sessions returns sessions that live, and those that have ended and are not forgotten yet. It returns ErrInvalid or
// ErrUnavailable.
func (s *Store) Sessions(ctx context.Context, query store.SessionQuery) ([]store.SessionInfo, error) {
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

func readSessionInfo(row pgx.CollectableRow) (session store.SessionInfo, err error) {
	var shown sessionRow
	err = row.Scan(append(shown.dest(), &session.Handle, &session.SortKey, &session.Leases)...)
	session.Session = shown.session()
	session.ID = uuid.Nil
	return session, err
}

const (
	recordSQL = `
		select r.version, r.fencing_token, r.sequence, r.content_type, r.value, octet_length(r.value), r.updated_at
		from fence.records r
		where r.resource = $1 and r.key = $2`
	// A condition without a column is evaluated once, before any row is looked for.
	durableRecordSQL = recordSQL + " and (select fence.confirm_read())"

	recordsSQL = `
		select r.resource, r.key, r.version, r.fencing_token, r.sequence, r.content_type, null::bytea, octet_length(r.value),
			r.updated_at
		from fence.records r
		where r.resource = $1 and r.key >= $2 and r.key <= $2 || repeat(chr(1114111), 128) and `
	recordsByKeySQL = recordsSQL + `r.key > $3
		order by r.key
		limit $4`
	recordsByTimeSQL = recordsSQL + `r.updated_at <= $5 and (r.updated_at < $5 or r.key > $3)
		order by r.updated_at desc, r.key
		limit $4`
)

// Record returns a record as it was stored, ErrNotFound, or ErrUnavailable. A failover may take the record back if no
// standby has confirmed it; see DurableRecord.
func (s *Store) Record(ctx context.Context, resource, key store.Name) (store.Record, error) {
	return s.record(ctx, statement{}, recordSQL, resource, key)
}

// DurableRecord is Record, but returns once its answer, also that there is no record, is as durable as an acknowledged
// write. It waits where writes wait, so it takes their connections.
func (s *Store) DurableRecord(ctx context.Context, resource, key store.Name) (store.Record, error) {
	return s.record(ctx, statement{purpose: forTransactions}, durableRecordSQL, resource, key)
}

func (s *Store) record(ctx context.Context, stmt statement, sql string, resource, key store.Name) (store.Record, error) {
	record := store.Record{Resource: resource, Key: key}
	err := s.queryRow(ctx, stmt, sql, []any{resource, key},
		&record.Version, &record.Token, &record.Sequence, &record.ContentType, &record.Value, &record.Size, &record.UpdatedAt)
	return record, notFound(err, "there is no record %s of %s", key, resource)
}

// Records returns the records of a resource without their values, in byte order of their keys, or by time. It returns
// ErrInvalid or ErrUnavailable.
func (s *Store) Records(ctx context.Context, query store.RecordQuery) ([]store.Record, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	sql, args := recordsByKeySQL, []any{query.Resource, query.Prefix, query.After, query.Limit}
	if query.ByTime {
		if query.AfterMicros == 0 {
			query.AfterMicros = math.MaxInt64
		}
		sql, args = recordsByTimeSQL, append(args, timeAt(query.AfterMicros))
	}
	return collect(ctx, s.query, sql, args, pgx.RowToStructByPos[store.Record])
}
