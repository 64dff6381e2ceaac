package engine

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
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

// traces reports whether work under ctx gets spans.
func (e *Engine) traces(ctx context.Context) bool {
	return e.tracer != nil && trace.SpanFromContext(ctx).IsRecording()
}

// beginWrite begins the span of a write, which ends when its verdict is known.
func (e *Engine) beginWrite(ctx context.Context, write store.Write) (context.Context, trace.Span) {
	attributes := make([]attribute.KeyValue, 0, 6)
	attributes = append(attributes,
		attribute.String("fencegate.op", string(write.Kind)),
		attribute.Int64("fencegate.fencing_token", write.Token),
		attribute.Int("fencegate.value_bytes", len(write.Value)))
	if write.Sequence != nil {
		attributes = append(attributes, attribute.Int64("fencegate.sequence", *write.Sequence))
	}
	if !e.Store.Tracing().LeaveOutNames {
		attributes = append(attributes,
			attribute.String("fencegate.resource", string(write.Resource)), attribute.String("fencegate.key", string(write.Key)))
	}
	return e.tracer.Start(ctx, "write", trace.WithAttributes(attributes...))
}

// endWrite ends the span of a write. A rejection is no error of the gateway.
func endWrite(span trace.Span, result store.Result, err error) {
	defer span.End()
	if err == nil {
		err = result.Err
	}
	var rejected *store.RejectedError
	switch {
	case err == nil:
		span.SetAttributes(attribute.String("fencegate.code", "accepted"),
			attribute.Int64("fencegate.version", result.Version), attribute.Bool("fencegate.replayed", result.Replayed))
	case errors.As(err, &rejected):
		span.SetAttributes(attribute.String("fencegate.code", string(rejected.Verdict)),
			attribute.String("fencegate.reason", rejected.Reason),
			attribute.Int64("fencegate.granted_token", rejected.GrantedToken))
	case errors.Is(err, store.ErrNotFound):
		span.SetAttributes(attribute.String("fencegate.code", "not_found"))
	case errors.Is(err, store.ErrUnavailable):
		span.SetAttributes(attribute.String("fencegate.code", "unavailable"),
			attribute.String("fencegate.outcome", string(store.OutcomeOf(err))))
		store.SpanFailed(span, err)
	case !errors.Is(err, store.ErrInvalid) && !errors.Is(err, store.ErrInvalidName):
		store.SpanFailed(span, err)
	}
}
