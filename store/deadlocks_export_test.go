package store

import "context"

// Beat sends a heartbeat now.
func (s *Service) Beat(ctx context.Context) error { return s.line.beat(ctx) }

// DeadlocksChecked reports whether all waits of the Service have been looked at for cycles.
func (s *Service) DeadlocksChecked() bool {
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	return !s.line.deadlocks.checking && len(s.line.deadlocks.pending) == 0
}
