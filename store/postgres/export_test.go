package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/store"
)

// ListSQL is the statement that lists the locks of a query, and its arguments.
func ListSQL(query store.LockQuery) (string, pgx.NamedArgs, error) {
	query, err := query.Check()
	list := lockSelect{query}
	return list.listSQL(), list.args(), err
}

// TakeLockSlots takes all turns that acquires have for a lock, until leave is called.
func (s *Store) TakeLockSlots(ctx context.Context, lock store.Name) (leave func(), err error) {
	var permits []permit
	for range lockSlotsMax {
		taken, err := s.bulkheads.enter(ctx, onLock(forAcquires, lock))
		if err != nil {
			return nil, err
		}
		permits = append(permits, taken)
	}
	return func() {
		for i := range permits {
			permits[i].leave()
		}
	}, nil
}

// Follower is the RejectionFollower of a Store.
type Follower = rejectionFollower

// Ahead has the follower believe that the database's clock was that much ahead at its last reading.
func (f *rejectionFollower) Ahead(d time.Duration) { f.at = f.at.Add(d) }

// Remembered returns how many groups the follower remembers.
func (f *rejectionFollower) Remembered() int { return len(f.seen) }

// ErrSettleLater is the error of a sweep that left leases of an ended session to the next one.
var ErrSettleLater = errSettleLater
