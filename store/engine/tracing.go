package engine

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/store"
)

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
