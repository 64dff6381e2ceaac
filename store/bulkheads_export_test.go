package store

import "context"

// TakeLockSlots takes all turns that acquires have for a lock, until leave is called.
func (s *Store) TakeLockSlots(ctx context.Context, lock Name) (leave func(), err error) {
	var passes []pass
	for range lockSlotsMax {
		taken, err := s.bulkheads.enter(ctx, onLock(useAcquires, lock))
		if err != nil {
			return nil, err
		}
		passes = append(passes, taken)
	}
	return func() {
		for i := range passes {
			passes[i].leave()
		}
	}, nil
}
