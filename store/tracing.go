package store

import (
	"context"
	"errors"
	"strings"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Tracing says to whom spans are given, by OpenTelemetry's API. Its zero value gives none, and costs nothing.
type Tracing struct {
	// Provider makes the tracers; nil: nothing is traced.
	Provider trace.TracerProvider
	// LeaveOutNames keeps the names of locks, resources and keys out of the spans. Names of spans never have them.
	LeaveOutNames bool
}

// tracerName is the instrumentation scope of the spans of this package.
const tracerName = "github.com/fencegate/fencegate/store"

// tracing makes the spans of a Store. A nil *tracing makes none: all that is done for spans is behind a test for nil, since what a write
// costs without them must not grow.
type tracing struct {
	tracer trace.Tracer
	names  bool
}

func newTracing(config Tracing) *tracing {
	if config.Provider == nil {
		return nil
	}
	return &tracing{tracer: config.Provider.Tracer(tracerName), names: !config.LeaveOutNames}
}

// traces reports whether what is done under ctx is to have spans.
func (t *tracing) traces(ctx context.Context) bool {
	return t != nil && trace.SpanFromContext(ctx).IsRecording()
}

// statementTracer makes a span of each statement that belongs to another span. Arguments, among which are secrets, are not in it.
func statementTracer(config Tracing, conn *pgx.ConnConfig) pgx.QueryTracer {
	return otelpgx.NewTracer(
		otelpgx.WithTracerProvider(config.Provider),
		otelpgx.WithSpanNameFunc(statementName),
		otelpgx.WithQuerySpanNamePrefix(),                  // or to prepare it would be called the same
		otelpgx.WithDisableConnectionDetailsInAttributes(), // it would copy the connection's configuration for each statement
		otelpgx.WithTracerAttributes(
			attribute.String("server.address", conn.Host), attribute.Int("server.port", int(conn.Port)), attribute.String("db.namespace", conn.Database)),
	)
}

// statementName is the function or table of the schema fence that a statement names first, or else its first word.
func statementName(sql string) string {
	const schema = "fence."
	if at := strings.Index(sql, schema); at >= 0 {
		name := sql[at+len(schema):]
		end := strings.IndexFunc(name, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') })
		if end < 0 {
			end = len(name)
		}
		return schema + name[:end]
	}
	word, _, _ := strings.Cut(strings.TrimSpace(sql), " ")
	return strings.ToLower(word)
}

// beginWrite begins the span of a write, which ends when its verdict is known.
func (t *tracing) beginWrite(ctx context.Context, write Write) (context.Context, trace.Span) {
	attributes := make([]attribute.KeyValue, 0, 6)
	attributes = append(attributes,
		attribute.String("fencegate.op", string(write.Kind)),
		attribute.Int64("fencegate.fencing_token", write.Token),
		attribute.Int("fencegate.value_bytes", len(write.Value)))
	if write.Sequence != nil {
		attributes = append(attributes, attribute.Int64("fencegate.sequence", *write.Sequence))
	}
	if t.names {
		attributes = append(attributes, attribute.String("fencegate.resource", string(write.Resource)), attribute.String("fencegate.key", string(write.Key)))
	}
	return t.tracer.Start(ctx, "write", trace.WithAttributes(attributes...))
}

// endWrite ends the span of a write. A rejection is what the gateway is for, and no error of its own.
func endWrite(span trace.Span, result Result, err error) {
	defer span.End()
	if err == nil {
		err = result.Err
	}
	var rejected *RejectedError
	switch {
	case err == nil:
		span.SetAttributes(attribute.String("fencegate.code", "accepted"), attribute.Int64("fencegate.version", result.Version),
			attribute.Bool("fencegate.replayed", result.Replayed))
	case errors.As(err, &rejected):
		span.SetAttributes(attribute.String("fencegate.code", string(rejected.Verdict)), attribute.String("fencegate.reason", rejected.Reason),
			attribute.Int64("fencegate.granted_token", rejected.GrantedToken))
	case errors.Is(err, ErrNotFound):
		span.SetAttributes(attribute.String("fencegate.code", string(verdictNotFound)))
	case errors.Is(err, ErrUnavailable):
		span.SetAttributes(attribute.String("fencegate.code", "unavailable"), attribute.String("fencegate.outcome", string(outcomeOf(err))))
		failed(span, err)
	case !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrInvalidName):
		failed(span, err)
	}
}

// failed marks a span as one of something that went wrong.
func failed(span trace.Span, err error) {
	span.SetStatus(codes.Error, strings.ToValidUTF8(err.Error(), "\uFFFD"))
}

// do has work done within a span of its own, which begins a trace where ctx has none.
func (t *tracing) do(ctx context.Context, name string, work func(context.Context) error, attributes func() []attribute.KeyValue) error {
	if t == nil {
		return work(ctx)
	}
	ctx, span := t.tracer.Start(ctx, name)
	defer span.End()
	err := work(ctx)
	if span.IsRecording() {
		span.SetAttributes(attributes()...)
		if err != nil {
			failed(span, err)
		}
	}
	return err
}
