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

// Requeue is Enqueue for a request that may be in the queue already, or granted. After a reconnect thousands may be
// sent at once: they have few connections, so that other acquires get through.
func (s *Store) Requeue(ctx context.Context, request AcquireRequest, gateway uuid.UUID) (Acquired, error) {
	return s.sendAcquire(ctx, request, gateway, useRequeues)
}

// QueueResult is what became of a waiter, or what is in its way.
type QueueResult struct {
	Ticket    int64
	RequestID string // of the lease that was granted, or of the session that has ended
	// Done says that the wait has ended: with Lease, or with Err.
	Done  bool
	Lease Lease
	Err   error
	// Left is how long the lease in the way runs.
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
	const sql = `select c.outcome, c.ticket, coalesce((c.lease).request_id, ''), c.reason, c.left_ms, ` + sequenceSQL + ", " +
		leaseColumns + `
		from set_config('lock_timeout', $4, true) s (lock_timeout),
			lateral fence.grant_next($1, $2, case when s.lock_timeout <> '' then $3 end) c, lateral (select (c.lease).*) l`
	var results []QueueResult
	var minted int64 // 0: nothing was granted
	newestToken := s.lineage.newestToken.Load()
	args := []any{gateway, lock, scope, strconv.FormatInt(lockWait.Milliseconds(), 10)}
	err := s.queryAs(ctx, job{use: useGrants}, sql, args, func(rows pgx.Rows) error {
		var outcome string
		var reason pgtype.Text
		var leftMS pgtype.Int8
		var sequence int64
		var row leaseRow
		var result QueueResult
		dest := []any{&outcome, &result.Ticket, &result.RequestID, &reason, &leftMS, &sequence}
		if err := rows.Scan(append(dest, row.dest()...)...); err != nil {
			return err
		}
		switch outcome {
		case "granted":
			result.Done, result.Lease, minted = true, row.lease(), sequence
		case "external":
			result.Done, result.Err = true, ErrExternalAuthority
		case "session_lost":
			result.Done, result.Err = true, sessionLost(reason.String)
		case "more":
			result.More = true
		case "held":
			result.Left = leftOf(leftMS)
		}
		results = append(results, result)
		return nil
	})
	if err == nil && minted > 0 {
		err = s.minted(ctx, minted, newestToken)
	}
	if err != nil {
		return nil, err // a result counts when the statement is committed, not before
	}
	return results, nil
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
	err = s.queryRow(ctx, job{use: useRenewals}, sql, []any{gateway, missing.Milliseconds()}, &lapsed)
	return lapsed, err
}

// LeaveQueue removes the request from the queue, if it is there and no other gateway has taken it over. It returns
// ErrUnavailable.
func (s *Store) LeaveQueue(ctx context.Context, gateway uuid.UUID, lock Name, requestID string) error {
	const sql = "select fence.leave($1, array(select w.ticket from fence.waiters w where w.lock = $2 and w.request_id = " +
		"$3))"
	return s.exec(ctx, onLock(useReleases, lock), sql, gateway, lock, requestID)
}

// GiveBack releases a lease that its owner never received; the same request sent again is a new one. If it was sent
// again before, through another gateway, its owner has the lease, and keeps it. It returns ErrUnavailable.
func (s *Store) GiveBack(ctx context.Context, lease Lease) error {
	return s.exec(ctx, onLock(useReleases, lease.Lock), "select fence.give_back($1, $2, $3, $4)", lease.Ref().args()...)
}
