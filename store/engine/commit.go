package engine

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/store"
)

// Commit decides one write, together with those of other callers. It refuses a write that is certainly superseded
// without asking the database; the RejectedError shows the fence as this Engine last saw it. See postgres.Store.Write for
// the errors.
func (e *Engine) Commit(ctx context.Context, write store.Write) (result store.Result, err error) {
	if e.traces(ctx) {
		var span trace.Span
		ctx, span = e.beginWrite(ctx, write)
		defer func() { endWrite(span, result, err) }()
	}
	rejected, consulted := e.refusals.consult(&write)
	if rejected != nil {
		return e.refuse(&write, rejected)
	}
	result, err = e.group.Commit(ctx, write)
	e.refusals.learn(consulted, result.Err)
	return result, err
}

// Submit queues a write and calls done once with its verdict, like groupcommit.Group.Submit, and in that order. A write
// that is certainly superseded, as in Commit, may be answered before its turn.
func (e *Engine) Submit(ctx context.Context, write store.Write, done func(store.Result, error)) {
	if e.traces(ctx) {
		var span trace.Span
		ctx, span = e.beginWrite(ctx, write)
		untraced := done
		done = func(result store.Result, err error) {
			endWrite(span, result, err)
			untraced(result, err)
		}
	}
	rejected, consulted := e.refusals.consult(&write)
	if rejected != nil {
		go func() { done(e.refuse(&write, rejected)) }()
		return
	}
	e.group.Submit(ctx, write, func(result store.Result, err error) {
		e.refusals.learn(consulted, result.Err)
		done(result, err)
	})
}

// refuse answers a write that is not sent. As in postgres.Store.Write, ErrInvalid comes first.
func (e *Engine) refuse(write *store.Write, rejected *store.RejectedError) (store.Result, error) {
	if err := write.Check(); err != nil {
		return store.Result{}, err
	}
	e.refusals.refused.Add(1)
	return store.Result{Err: rejected}, nil
}

// PutPolicy is postgres.Store.PutPolicy. After it has returned, this Engine decides nothing by the former policy. Other
// Engines on the database stop doing so when they are notified.
func (e *Engine) PutPolicy(ctx context.Context, policy store.Policy) error {
	err := e.Store.PutPolicy(ctx, policy)
	e.policiesChanged() // after an error, too: the change may have been made
	return err
}

// DeletePolicy is postgres.Store.DeletePolicy; see PutPolicy.
func (e *Engine) DeletePolicy(ctx context.Context, prefix string) error {
	err := e.Store.DeletePolicy(ctx, prefix)
	e.policiesChanged()
	return err
}

// SetFence is postgres.Store.SetFence. After it has returned, this Engine refuses no write by the former fence. Other
// Engines on the database stop doing so when they are notified.
func (e *Engine) SetFence(
	ctx context.Context, resource store.Name, last store.Accepted, reason string,
) (store.Accepted, error) {
	was, err := e.Store.SetFence(ctx, resource, last, reason)
	e.refusals.forget() // after an error, too: the change may have been made
	return was, err
}

// RefusalsRemembered returns the number of resources whose rejected writes are remembered.
func (e *Engine) RefusalsRemembered() int { return e.refusals.len() }

// RefusedEarly returns the number of writes that were refused without the database.
func (e *Engine) RefusedEarly() uint64 { return e.refusals.refused.Load() }
