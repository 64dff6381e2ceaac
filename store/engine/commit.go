package engine

import (
	"context"

	"github.com/fencegate/fencegate/store"
)

// Commit decides one write, together with those of other callers. One that is certainly superseded is refused without asking the
// database: its RejectedError shows the fence as this Engine last saw it. See Store.Write for the errors.
func (s *Engine) Commit(ctx context.Context, write store.Write) (store.Result, error) {
	if !s.traces(ctx) {
		return s.commit(ctx, write)
	}
	ctx, span := s.beginWrite(ctx, write)
	result, err := s.commit(ctx, write)
	endWrite(span, result, err)
	return result, err
}

func (s *Engine) commit(ctx context.Context, write store.Write) (store.Result, error) {
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
func (s *Engine) Submit(ctx context.Context, write store.Write, done func(store.Result, error)) {
	if !s.traces(ctx) {
		s.submit(ctx, write, done)
		return
	}
	ctx, span := s.beginWrite(ctx, write)
	s.submit(ctx, write, func(result store.Result, err error) {
		endWrite(span, result, err)
		done(result, err)
	})
}

func (s *Engine) submit(ctx context.Context, write store.Write, done func(store.Result, error)) {
	rejected, asked := s.refusals.consult(&write)
	if rejected != nil {
		go func() { done(s.refuse(&write, rejected)) }()
		return
	}
	s.group.Submit(ctx, write, func(result store.Result, err error) {
		s.refusals.learn(asked, result.Err)
		done(result, err)
	})
}

// refuse is the answer to a write that is not sent. As from Store.Write, what is malformed is told first.
func (s *Engine) refuse(write *store.Write, rejected *store.RejectedError) (store.Result, error) {
	if err := write.Check(); err != nil {
		return store.Result{}, err
	}
	s.refusals.refused.Add(1)
	return store.Result{Err: rejected}, nil
}

// PutPolicy is Store.PutPolicy. This Engine judges no write by the former policy after it has returned; others on the same database do not
// as soon as they are notified.
func (s *Engine) PutPolicy(ctx context.Context, policy store.Policy) error {
	err := s.Store.PutPolicy(ctx, policy)
	s.refusals.forget() // after an error, too: the change may have been made
	return err
}

// DeletePolicy is Store.DeletePolicy; see PutPolicy.
func (s *Engine) DeletePolicy(ctx context.Context, prefix string) error {
	err := s.Store.DeletePolicy(ctx, prefix)
	s.refusals.forget()
	return err
}

// RefusalsRemembered returns of how many resources this Engine remembers who is shut out.
func (s *Engine) RefusalsRemembered() int { return s.refusals.len() }

// RefusedEarly returns how many writes were refused without the database.
func (s *Engine) RefusedEarly() uint64 { return s.refusals.refused.Load() }
