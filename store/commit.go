package store

import "context"

// Commit decides one write, together with those of other callers. One that is certainly superseded is refused without asking the
// database: its RejectedError shows the fence as this Service last saw it. See Store.Write for the errors.
func (s *Service) Commit(ctx context.Context, write Write) (Result, error) {
	if !s.tracing.traces(ctx) {
		return s.commit(ctx, write)
	}
	ctx, span := s.tracing.beginWrite(ctx, write)
	result, err := s.commit(ctx, write)
	endWrite(span, result, err)
	return result, err
}

func (s *Service) commit(ctx context.Context, write Write) (Result, error) {
	rejected, asked := s.refusals.consult(&write)
	if rejected != nil {
		return s.refuse(&write, rejected)
	}
	result, err := s.group.Commit(ctx, write)
	s.refusals.learn(asked, result.Err)
	return result, err
}

// Submit queues a write and calls done once with its verdict, as Group.Submit does, and in that order. One that is certainly superseded,
// as Commit refuses it, may be answered before its turn.
func (s *Service) Submit(ctx context.Context, write Write, done func(Result, error)) {
	if !s.tracing.traces(ctx) {
		s.submit(ctx, write, done)
		return
	}
	ctx, span := s.tracing.beginWrite(ctx, write)
	s.submit(ctx, write, func(result Result, err error) {
		endWrite(span, result, err)
		done(result, err)
	})
}

func (s *Service) submit(ctx context.Context, write Write, done func(Result, error)) {
	rejected, asked := s.refusals.consult(&write)
	if rejected != nil {
		go func() { done(s.refuse(&write, rejected)) }()
		return
	}
	s.group.Submit(ctx, write, func(result Result, err error) {
		s.refusals.learn(asked, result.Err)
		done(result, err)
	})
}

// refuse is the answer to a write that is not sent. As from Store.Write, what is malformed is told first.
func (s *Service) refuse(write *Write, rejected *RejectedError) (Result, error) {
	if err := write.check(); err != nil {
		return Result{}, err
	}
	s.refusals.refused.Add(1)
	return Result{Err: rejected}, nil
}

// PutPolicy is Store.PutPolicy. This Service judges no write by the former policy after it has returned; others on the same database do not
// as soon as they are notified.
func (s *Service) PutPolicy(ctx context.Context, policy Policy) error {
	err := s.Store.PutPolicy(ctx, policy)
	s.refusals.forget() // after an error, too: the change may have been made
	return err
}

// DeletePolicy is Store.DeletePolicy; see PutPolicy.
func (s *Service) DeletePolicy(ctx context.Context, prefix string) error {
	err := s.Store.DeletePolicy(ctx, prefix)
	s.refusals.forget()
	return err
}

// RefusalsRemembered returns of how many resources this Service remembers who is shut out.
func (s *Service) RefusalsRemembered() int { return s.refusals.len() }

// RefusedEarly returns how many writes were refused without the database.
func (s *Service) RefusedEarly() uint64 { return s.refusals.refused.Load() }
