package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// FindDeadlocks returns those of the tickets whose waits are in a cycle. It returns ErrUnavailable.
func (s *Store) FindDeadlocks(ctx context.Context, tickets []int64) ([]int64, error) {
	return collect(ctx, s.query, "select fence.find_deadlocks($1)", []any{tickets}, pgx.RowTo[int64])
}

// FindNewDeadlocks is FindDeadlocks, for less, for waits that have just begun, at the end of their queues.
func (s *Store) FindNewDeadlocks(ctx context.Context, tickets []int64) ([]int64, error) {
	return collect(ctx, s.query, "select fence.find_new_deadlocks($1)", []any{tickets}, pgx.RowTo[int64])
}

// DeadlockOutcome is what BreakDeadlock found.
type DeadlockOutcome string

// The outcomes of BreakDeadlock. Any other says that there is no cycle.
const (
	DeadlockBroken  DeadlockOutcome = "deadlock" // the waiter was removed
	DeadlockAgain   DeadlockOutcome = "again"    // another search is at work on it
	DeadlockYounger DeadlockOutcome = "younger"  // a later wait in the cycle is to be refused instead
)

// BreakDeadlock removes the waiter with the ticket if it is in a cycle in which no wait is later, or insist is true.
// With DeadlockBroken it returns the cycle. It returns ErrUnavailable.
func (s *Store) BreakDeadlock(
	ctx context.Context, gateway uuid.UUID, ticket int64, insist bool,
) (outcome DeadlockOutcome, cycle *DeadlockError, err error) {
	var text []byte
	const sql = "select outcome, cycle from fence.break_deadlock($1, $2, $3)"
	err = s.queryRow(ctx, statement{}, sql, []any{gateway, ticket, insist}, &outcome, &text)
	if err != nil || outcome != DeadlockBroken {
		return outcome, nil, err
	}
	cycle = &DeadlockError{}
	if err := json.Unmarshal(text, &cycle.Cycle); err != nil {
		return "", nil, fmt.Errorf("fence.break_deadlock found the cycle %q: %w", text, err)
	}
	return outcome, cycle, nil
}
