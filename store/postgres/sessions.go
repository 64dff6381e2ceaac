package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencegate/fencegate/store"
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

func (r *sessionRow) session() store.Session {
	return store.Session{
		ID: r.id.Bytes, OwnerID: r.owner.String, TTL: milliseconds(r.ttlMS), CreatedAt: r.createdAt.Time,
		ExpiresAt: r.expiresAt.Time,
		State:     store.SessionState(r.state.String), Metadata: r.metadata, Principal: r.principal.String,
	}
}

// CreateSession makes a session. It returns ErrInvalid or ErrUnavailable. If the outcome is unknown, there may be a
// session that no client knows, and that expires.
func (s *Store) CreateSession(ctx context.Context, request store.SessionRequest) (store.Session, error) {
	request, err := request.Check()
	if err != nil {
		return store.Session{}, err
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
func (s *Store) KeepAlive(ctx context.Context, id uuid.UUID) (store.Session, error) {
	const sql = `select set_config('synchronous_commit', 'off', true), k.status, k.late_ms, ` + sessionColumns + `
		from fence.keep_alive($1) k, lateral (select (k.session).*) s`
	var status string
	var lateMS pgtype.Int8
	var row sessionRow
	err := s.queryRow(ctx, statement{purpose: forRenewals}, sql, []any{id},
		append([]any{nil, &status, &lateMS}, row.dest()...)...)
	switch {
	case err != nil:
		return store.Session{}, err
	case status == "not_found":
		return store.Session{}, sessionLost("")
	case status != "live":
		return store.Session{}, &store.LostError{Reason: status, Late: milliseconds(lateMS)}
	}
	session := row.session()
	session.Late = max(0, milliseconds(lateMS))
	return session, nil
}

// Session returns a session, and how many leases run in it. It returns ErrNotFound if there is no such
// session, also if it ended long ago, or ErrUnavailable.
func (s *Store) Session(ctx context.Context, id uuid.UUID) (session store.Session, leases int64, err error) {
	const sql = `select ` + sessionColumns + `, (
			select count(*) from fence.leases l where l.session_id = s.session_id and l.ended_at is null and l.expires_at > clock_timestamp())
		from fence.sessions s where s.session_id = $1`
	var row sessionRow
	err = s.queryRow(ctx, statement{}, sql, []any{id}, append(row.dest(), &leases)...)
	if err != nil {
		return store.Session{}, 0, notFound(err, "there is no such session")
	}
	return row.session(), leases, nil
}

// EndSession ends a session, releases its leases and takes its waiters out of their queues. Sent twice, it succeeds
// twice. It returns when all leases are released, with their number. It returns ErrLeaseLost (a LostError) if the session
// had expired, ErrNotFound if there is no such session, or ErrUnavailable. After the first commit, ErrUnavailable has an
// unknown outcome: the session has ended, but some of its leases may run until a retry or a sweep ends them.
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
	case errors.Is(err, store.ErrUnavailable):
		err = store.MayBeApplied(fmt.Errorf("the session has ended, its leases are yet to be released: %w", err))
	case err == nil && status != "released":
		err = sessionLost(status)
	}
	return released, err
}

// sessionLost returns the error of a session that is lost; without a reason, nothing is known of it.
func sessionLost(reason string) error {
	if reason == "" {
		return fmt.Errorf("%w: there is no such session", store.ErrNotFound)
	}
	return &store.LostError{Reason: reason}
}

const (
	// settleLocksMax and settleWaitersMax bound the locks whose leases one transaction ends for an ended session, and
	// the waiters that it passes: each may take a lock in the server's lock table, which has room for some thousands.
	settleLocksMax   = 64
	settleWaitersMax = 64
	// settleBriefly is how long a transaction on many locks, or one of the sweep while other sessions wait, waits for a
	// lock of another session; settleLonger is the same for a single lock.
	settleBriefly = 20 * time.Millisecond
	settleLonger  = 500 * time.Millisecond
	// settleFor is how long EndSession retries locks that another session holds, before it leaves them to the sweep.
	settleFor = 5 * time.Second
)

// errSettleLater says that a session has leases left.
var errSettleLater = errors.New("leases of the session remain, on locks that are in use")

// settle ends the leases of an ended session, closes their fences, and wakes the waiters that its own were blocking. It
// skips a lock that another session holds. Before the deadline it retries each of these, once and alone, and waits up
// to wait. It returns how many leases it has ended, also beside an error, which is ErrUnavailable: any number of leases
// may then remain.
func (s *Store) settle(
	ctx context.Context, id uuid.UUID, wait time.Duration, deadline time.Time,
) (ended int64, err error) {
	ended, skipped, err := s.settleLeases(ctx, id, settleLocksMax, settleBriefly, deadline)
	if err == nil && skipped > 0 {
		var more int64
		more, skipped, err = s.settleLeases(ctx, id, 1, wait, deadline)
		ended += more
	}
	if err != nil {
		return ended, err
	}
	for after := (pgtype.Int8{Valid: true}); after.Valid; {
		if err := s.queryRow(ctx, statement{purpose: forReleases}, "select last from fence.settle_waiters($1, $2, $3)",
			[]any{id, after, settleWaitersMax}, &after); err != nil {
			return ended, err
		}
	}
	if skipped > 0 {
		return ended, store.MayBeApplied(fmt.Errorf("%w: %d or more", errSettleLater, skipped))
	}
	return ended, nil
}

// settleLeases goes through the leases of an ended session once, by the names of their locks. It returns on how many
// locks it left some, at least one if the deadline came first.
func (s *Store) settleLeases(
	ctx context.Context, id uuid.UUID, locksMax int, wait time.Duration, deadline time.Time,
) (ended, skipped int64, err error) {
	for after := (pgtype.Text{Valid: true}); ; {
		var someEnded, someSkipped int64
		err := s.queryRow(ctx, statement{purpose: forReleases},
			"select ended, skipped, last from fence.settle_leases($1, $2, $3, $4)",
			[]any{id, after, locksMax, wait.Milliseconds()}, &someEnded, &someSkipped, &after)
		ended += someEnded
		skipped += someSkipped
		if err != nil || !after.Valid {
			return ended, skipped, err
		}
		if time.Now().After(deadline) {
			return ended, skipped + 1, nil
		}
	}
}

// settleAll settles sessions one after the other until the deadline. A session that fails delays no other: a sweep finds it
// again after a pause. It returns whether one is left that a sweep can go on with at once.
func (s *Store) settleAll(ctx context.Context, ids []uuid.UUID, deadline time.Time) (left bool, err error) {
	for _, id := range ids {
		if time.Now().After(deadline) {
			return left, err
		}
		switch ended, failed := s.settle(ctx, id, settleBriefly, deadline); {
		case failed == nil:
		case ended > 0 && errors.Is(failed, errSettleLater):
			left = true
		default:
			err = errors.Join(err, fmt.Errorf("settle session %s: %w", id, failed))
		}
	}
	return left, err
}
