package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// settleLocksMax and settleWaitersMax are of how many locks the leases of an ended session are ended in one
	// transaction, and how many of its waiters are passed: each may take a lock in the lock table of the server, which has
	// room for some thousands.
	settleLocksMax   = 64
	settleWaitersMax = 64
	// settleBriefly is how long a transaction of many locks waits for what another session has locked, and any of the
	// sweep, where other sessions wait; settleLonger, one of a single lock.
	settleBriefly = 20 * time.Millisecond
	settleLonger  = 500 * time.Millisecond
	// settleFor is how long EndSession returns to locks that another session keeps locked, before it leaves them to the
	// sweep.
	settleFor = 5 * time.Second
)

// errSettleLater says that a session has leases left.
var errSettleLater = errors.New("leases of the session remain, on locks that are in use")

// settle ends the leases of a session that has ended, closes their fences, and wakes those that its waiters held up.
// Where another session has locked something, it skips that and returns to it, one lock at a time, until the
// deadline, and waits so long for each. It returns how many leases it has ended, also beside an error, which is
// ErrUnavailable: any number of leases may then remain.
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
		return ended, &UnavailableError{OutcomeUnknown, fmt.Errorf("%w: %d or more", errSettleLater, skipped)}
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
		err := s.queryRow(ctx, statement{purpose: forReleases, bounded: true},
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

// settleAll settles sessions one after the other until the deadline. One that fails keeps no other waiting: it is
// tried after the others, and not before a pause. It returns whether some are left that can be settled at once.
func (s *Store) settleAll(ctx context.Context, ids []uuid.UUID, deadline time.Time) (left bool, err error) {
	for _, id := range ids {
		if time.Now().After(deadline) {
			return true, err
		}
		ended, failed := s.settle(ctx, id, settleBriefly, deadline)
		if failed == nil {
			continue
		}
		pause := settlePause
		if ended > 0 && errors.Is(failed, errSettleLater) {
			pause, left = 0, true // a long one: the others first
		} else {
			err = errors.Join(err, fmt.Errorf("settle session %s: %w", id, failed))
		}
		if failed := s.exec(ctx, statement{}, "select fence.postpone_session($1, $2)", id, pause); failed != nil {
			return left, errors.Join(err, failed)
		}
	}
	return left, err
}

// settlePause is how long a session that could not be settled is left alone.
const settlePause = 5 * time.Second
