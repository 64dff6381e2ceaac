package postgres

import (
	"context"
	"sync/atomic"
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

// HoldBatches holds back calls about leases until so many wait or were answered. Then those that wait are sent together.
func (s *Store) HoldBatches(calls int) (answered func()) {
	var done atomic.Int64
	l := s.leases
	l.acquires.hold()
	l.renewals.hold()
	l.releases.hold()
	go func() {
		for int(done.Load())+l.acquires.held()+l.renewals.held()+l.releases.held() < calls {
			time.Sleep(50 * time.Microsecond)
		}
		l.acquires.letGo()
		l.renewals.letGo()
		l.releases.letGo()
	}()
	return func() { done.Add(1) }
}

func (b *batcher[Q, A]) hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight += 2
}

func (b *batcher[Q, A]) held() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

func (b *batcher[Q, A]) letGo() {
	b.mu.Lock()
	b.inFlight -= 2
	taken := b.take()
	b.mu.Unlock()
	if len(taken.calls) > 0 {
		b.run(taken)
	}
}
