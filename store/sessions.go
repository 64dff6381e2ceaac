package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// sessionColumns are the columns of a session, in the order of sessionRow.dest. They are those of the alias s.
const sessionColumns = `s.session_id, s.owner_id, s.ttl_ms, s.created_at, s.expires_at, s.metadata, s.principal,
	case when s.end_reason = 'released' then 'ended' when s.end_reason = 'expired' or s.expires_at <= clock_timestamp() then 'expired' else 'live' end`

// sessionRow is a session as a row that may be missing.
type sessionRow struct {
	id                   pgtype.UUID
	owner, state         pgtype.Text
	principal            pgtype.Text
	ttlMS                pgtype.Int8
	createdAt, expiresAt pgtype.Timestamptz
	metadata             []byte
}

func (r *sessionRow) dest() []any {
	return []any{&r.id, &r.owner, &r.ttlMS, &r.createdAt, &r.expiresAt, &r.metadata, &r.principal, &r.state}
}

func (r *sessionRow) session() Session {
	return Session{
		ID: r.id.Bytes, OwnerID: r.owner.String, TTL: milliseconds(r.ttlMS), CreatedAt: r.createdAt.Time,
		ExpiresAt: r.expiresAt.Time,
		State:     SessionState(r.state.String), Metadata: r.metadata, Principal: r.principal.String,
	}
}

// CreateSession makes a session. It returns ErrInvalid or ErrUnavailable; where that leaves the outcome unknown, a
// session may have been made that no client knows, and that expires.
func (s *Store) CreateSession(ctx context.Context, request SessionRequest) (Session, error) {
	request, err := request.Check()
	if err != nil {
		return Session{}, err
	}
	const sql = `select ` + sessionColumns + ` from fence.create_session($1, $2, $3, $4) s`
	args := []any{request.OwnerID, request.TTL.Milliseconds(), orNull(string(request.Metadata)), request.Principal}
	var row sessionRow
	err = s.queryRow(ctx, statement{}, sql, args, row.dest()...)
	return row.session(), err
}

// KeepAlive makes a live session last its TTL from now, and all its leases with it. Like Renew, it does not wait for
// the disk. It returns ErrLeaseLost (a LostError) if the session has ended, ErrNotFound if there is no such session, or
// ErrUnavailable.
func (s *Store) KeepAlive(ctx context.Context, id uuid.UUID) (Session, error) {
	const sql = `select set_config('synchronous_commit', 'off', true), k.status, k.late_ms, ` + sessionColumns + `
		from fence.keep_alive($1) k, lateral (select (k.session).*) s`
	var status string
	var lateMS pgtype.Int8
	var row sessionRow
	err := s.queryRow(ctx, statement{purpose: forRenewals}, sql, []any{id},
		append([]any{nil, &status, &lateMS}, row.dest()...)...)
	switch {
	case err != nil:
		return Session{}, err
	case status == "not_found":
		return Session{}, sessionLost("")
	case status != "live":
		return Session{}, &LostError{Reason: status, Late: milliseconds(lateMS)}
	}
	session := row.session()
	session.Late = max(0, milliseconds(lateMS))
	return session, nil
}

// Session returns a session, and how many leases run in it. It returns ErrNotFound if there is no such
// session, also if it ended long ago, or ErrUnavailable.
func (s *Store) Session(ctx context.Context, id uuid.UUID) (session Session, leases int64, err error) {
	const sql = `select ` + sessionColumns + `, (
			select count(*) from fence.leases l where l.session_id = s.session_id and fence.runs_until(l) > clock_timestamp() and l.ended_at is null)
		from fence.sessions s where s.session_id = $1`
	var row sessionRow
	err = s.queryRow(ctx, statement{}, sql, []any{id}, append(row.dest(), &leases)...)
	if err != nil {
		return Session{}, 0, notFound(err, "there is no such session")
	}
	return row.session(), leases, nil
}

// EndSession ends a session, releases its leases and takes its waiters out of their queues. Sent twice, it succeeds
// twice. From its first commit on, all of the leases can be granted to others; it returns when the fences of all are
// closed, with their number. It returns ErrLeaseLost (a LostError) if the session had expired, ErrNotFound if there is
// no such session, or ErrUnavailable. After the first commit the outcome of that is unknown: the session has ended, and
// some of its fences may be open until it is sent again, or a sweep closes them.
func (s *Store) EndSession(ctx context.Context, id uuid.UUID) (released int64, err error) {
	var status string
	err = s.queryRow(ctx, statement{purpose: forReleases}, "select fence.end_session($1)", []any{id}, &status)
	if err != nil {
		return 0, err
	}
	if status == "not_found" {
		return 0, sessionLost("")
	}
	released, err = s.settle(ctx, id, settleLonger, time.Now().Add(settleFor))
	switch {
	case errors.Is(err, ErrUnavailable):
		err = &UnavailableError{OutcomeUnknown, fmt.Errorf("the session has ended, its fences are yet to be closed: %w", err)}
	case err == nil && status != "released":
		err = sessionLost(status)
	}
	return released, err
}

// sessionLost says what became of a session; nothing is known of it without a reason.
func sessionLost(reason string) error {
	if reason == "" {
		return fmt.Errorf("%w: there is no such session", ErrNotFound)
	}
	return &LostError{Reason: reason}
}
