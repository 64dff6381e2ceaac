package store

import (
	"context"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Enqueue sends a checked acquire that joins the queue, unless the lock is granted at once. A request that is in the
// queue already keeps its ticket. It returns the errors of Acquire.
func (s *Store) Enqueue(ctx context.Context, request AcquireRequest, gateway uuid.UUID) (Acquired, error) {
	return s.acquire(ctx, request, gateway)
}

// EnqueueBeside is Enqueue where others are known to wait for the lock, so that it is not granted at once.
func (s *Store) EnqueueBeside(ctx context.Context, request AcquireRequest, gateway uuid.UUID) (Acquired, error) {
	return s.sendAcquire(ctx, request, gateway, forAcquires)
}

// Requeue is Enqueue for a request that may be in the queue already, or granted. After a reconnect thousands may be
// sent at once: they have few connections, so that other acquires get through.
func (s *Store) Requeue(ctx context.Context, request AcquireRequest, gateway uuid.UUID) (Acquired, error) {
	return s.sendAcquire(ctx, request, gateway, forRequeues)
}

// QueueResult is what became of a waiter, or what is in its way.
type QueueResult struct {
	Ticket    int64
	RequestID string // of the lease that was granted, or of the session that has ended
	// Done says that the wait has ended: with Lease, or with Err.
	Done  bool
	Lease Lease
	Err   error
	// Left is how long the lease runs that was granted, or is in the way.
	Left time.Duration
	// More is not about a waiter: more can be granted at once.
	More bool
}

// GrantNext grants the lock to the waiters of the gateway whose turn it is; scope Subtree if one of them waits for the
// subtree. It returns ErrLocked after lockWait, and has changed nothing then; or ErrUnavailable.
func (s *Store) GrantNext(
	ctx context.Context, gateway uuid.UUID, lock Name, scope Scope, lockWait time.Duration,
) ([]QueueResult, error) {
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
func (s *Store) HandOver(ctx context.Context, ref LeaseRef, gateway uuid.UUID) (Released, []QueueResult, error) {
	if err := ref.Check(); err != nil {
		return Released{}, nil, err
	}
	const sql = "select " + queueColumns + `, c.status, c.mode, c.age_ms
		from fence.hand_over($1, $2, $3, $4, $5) c, lateral (select (c.lease).*) l`
	var release releaseRow
	granting := s.beginGranting()
	err := s.queryAs(ctx, onLock(forReleases, ref.Lock), sql, append(refArgs(ref), gateway), func(rows pgx.Rows) error {
		return granting.scan(rows, release.dest()...)
	})
	results, err := granting.committed(ctx, err)
	if err != nil {
		return Released{}, nil, err
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
	results     []QueueResult
	minted      int64 // value of the token sequence; 0: nothing was granted
}

func (s *Store) beginGranting() *granting {
	return &granting{store: s, newestToken: s.lineage.newestToken.Load()}
}

// scan adds a row. The columns that follow go to more. A row without an outcome has no result.
func (g *granting) scan(rows pgx.Rows, more ...any) error {
	var outcome, reason pgtype.Text
	var ticket, leftMS pgtype.Int8
	var sequence int64
	var row leaseRow
	var result QueueResult
	dest := append([]any{&outcome, &ticket, &result.RequestID, &reason, &leftMS, &sequence}, row.dest()...)
	if err := rows.Scan(append(dest, more...)...); err != nil || !outcome.Valid {
		return err
	}
	result.Ticket = ticket.Int64
	switch outcome.String {
	case "granted":
		result.Done, result.Lease, result.Left, g.minted = true, row.lease(), leftOf(leftMS), sequence
	case "external":
		result.Done, result.Err = true, ErrExternalAuthority
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
func (g *granting) committed(ctx context.Context, err error) ([]QueueResult, error) {
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
	ctx context.Context, gateway uuid.UUID, locks []Name, tickets []int64, due func(lock Name, here bool),
) error {
	const sql = "select lock, here from fence.next_due($1, $2, $3)"
	return s.query(ctx, sql, []any{gateway, locks, tickets}, func(rows pgx.Rows) error {
		var lock Name
		var here bool
		if err := rows.Scan(&lock, &here); err != nil {
			return err
		}
		due(lock, here)
		return nil
	})
}

// Heartbeat says that the gateway lives. Its waiters count until the time missing is over. lapsed: they did not count
// any more. It returns ErrUnavailable.
func (s *Store) Heartbeat(ctx context.Context, gateway uuid.UUID, missing time.Duration) (lapsed bool, err error) {
	const sql = "select fence.heartbeat($1, $2)"
	err = s.queryRow(ctx, statement{purpose: forRenewals}, sql, []any{gateway, missing.Milliseconds()}, &lapsed)
	return lapsed, err
}

// LeaveQueue removes the request from the queue, if it is there and no other gateway has taken it over. It returns
// ErrUnavailable.
func (s *Store) LeaveQueue(ctx context.Context, gateway uuid.UUID, lock Name, requestID string) error {
	const sql = "select fence.leave($1, array(select w.ticket from fence.waiters w " +
		"where w.lock = $2 collate \"POSIX\" and w.request_id = $3))"
	return s.exec(ctx, onLock(forReleases, lock), sql, gateway, lock, requestID)
}

// GiveBack releases a lease that its owner never received; the same request sent again is a new one. If it was sent
// again before, through another gateway, its owner has the lease, and keeps it. It returns ErrUnavailable.
func (s *Store) GiveBack(ctx context.Context, lease Lease) error {
	return s.exec(ctx, onLock(forReleases, lease.Lock), "select fence.give_back($1, $2, $3, $4)", refArgs(lease.Ref())...)
}
