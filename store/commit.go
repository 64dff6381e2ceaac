package store

import "context"

// Commit decides one write, together with those of other callers. See Store.Write for the errors.
func (s *Service) Commit(ctx context.Context, write Write) (Result, error) {
	return s.group.Commit(ctx, write)
}

// Submit queues a write and calls done once with its verdict, from another goroutine. Writes to one resource are decided in the order in
// which they were submitted.
func (s *Service) Submit(ctx context.Context, write Write, done func(Result, error)) {
	s.group.Submit(ctx, write, done)
}
