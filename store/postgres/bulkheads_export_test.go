package postgres

import (
	"context"

	"github.com/fencegate/fencegate/store"
)

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
