package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Inventory is what there was in the database when it was last counted.
type Inventory struct {
	// At is when that was, by the database's clock; zero: never yet.
	At time.Time
	// Locks were granted or are waited for. Above 10,000, it and Expired are estimates.
	Locks int64
	// Held are leases that run; Expiring those of them that have less than a quarter of their TTL left. Expired are locks
	// whose holder is late, and not replaced yet.
	Held, Expiring, Expired int64
	// Waiting are acquires in all queues; OldestWait is how long the first of them has waited.
	Waiting    int64
	OldestWait time.Duration
	// Stuck is how long the first waiter of a queue could have been granted its lock and was not; of all queues the
	// longest.
	Stuck time.Duration
	// LeasesOf are the leases that run and the live sessions of each principal that has LeasesListed of them or more.
	LeasesOf map[string]int64
	// Sessions are those that live.
	Sessions int64
	// NewestToken is the greatest that was minted or granted.
	NewestToken int64
	// TablesEnforce and TablesObserve are protected tables in each mode. TablesWithProblems are those whose rows are not
	// all checked.
	TablesEnforce, TablesObserve, TablesWithProblems int64
}

// LeasesListed is the number of leases from which on the inventory has a principal, as guard/observe/recount.sql has it.
const LeasesListed = 1000

// Recount counts what there is in the database, if that is due: some 2 s after any gateway counted it last, or
// later where counting takes long. Then it looks at protected tables. It returns ErrUnavailable; a count that fails keeps
// others from trying at once.
func (s *Store) Recount(ctx context.Context) (counted bool, err error) {
	begun := time.Now()
	err = s.queryRow(ctx, statement{}, "select fence.recount()", nil, &counted)
	switch {
	case err == nil && counted:
		return true, s.checkTables(ctx)
	case err == nil:
		return false, nil
	}
	// What takes longer than a statement may would be tried by one gateway after the other, without a pause.
	postponed := s.exec(ctx, statement{}, "select fence.postpone_recount($1)", recountEvery*time.Since(begun))
	if postponed != nil {
		return false, err
	}
	return false, fmt.Errorf("count what there is: %w", err)
}

// recountEvery is how much longer than counting the time from one count to the next is, as guard/recount.sql has it.
const recountEvery = 20

// checkTables looks at some of the protected tables. A look at one with thousands of partitions may take longer than
// other statements may; ctx bounds it.
func (s *Store) checkTables(ctx context.Context) error {
	err := s.inTx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "set local statement_timeout = 0; set local synchronous_commit = off")
		if err == nil {
			_, err = tx.Exec(ctx, "select fence.check_tables()")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("look at the protected tables: %w", err)
	}
	return nil
}
