package store

import (
	"context"
	"regexp"
	"strings"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Tracing says where spans go, by OpenTelemetry's API. Its zero value gives none, and costs nothing.
type Tracing struct {
	// Provider makes the tracers; nil: nothing is traced.
	Provider trace.TracerProvider
	// LeaveOutNames keeps the names of locks, resources and keys out of the spans. Names of spans never have them.
	LeaveOutNames bool
}

// tracerName is the instrumentation scope of the spans of this package.
const tracerName = "github.com/fencegate/fencegate/store"

// Tracer makes the spans of package store and those below it; nil: none are made. All that is done for spans is behind
// a test for nil, since what a write costs without them must not grow.
func (t Tracing) Tracer() trace.Tracer {
	if t.Provider == nil {
		return nil
	}
	return t.Provider.Tracer(tracerName)
}

// statementTracer makes a span of each statement that belongs to another span. Arguments, among which are secrets, are
// not in it.
func statementTracer(config Tracing, conn *pgx.ConnConfig) pgx.QueryTracer {
	return otelpgx.NewTracer(
		otelpgx.WithTracerProvider(config.Provider),
		otelpgx.WithSpanNameFunc(statementName),
		otelpgx.WithQuerySpanNamePrefix(),                  // or to prepare it would be called the same
		otelpgx.WithDisableConnectionDetailsInAttributes(), // it would copy the connection's configuration for each statement
		otelpgx.WithTracerAttributes(
			attribute.String("server.address", conn.Host), attribute.Int("server.port", int(conn.Port)),
			attribute.String("db.namespace", conn.Database)),
	)
}

// fenceName is a name that is not an argument in quotes.
var fenceName = regexp.MustCompile(`(fence\.[a-z_]+)(?:[^a-z_']|$)`)

// statementName is the function or table of the schema fence that a statement names first, or else its first word.
func statementName(sql string) string {
	if name := fenceName.FindStringSubmatch(sql); name != nil {
		return name[1]
	}
	word, _, _ := strings.Cut(strings.TrimSpace(sql), " ")
	return strings.ToLower(word)
}

// SpanFailed marks a span as one of something that failed.
func SpanFailed(span trace.Span, err error) {
	span.SetStatus(codes.Error, strings.ToValidUTF8(err.Error(), "\uFFFD"))
}

// traced runs work within a span of its own, which begins a trace where ctx has none.
func (s *Store) traced(
	ctx context.Context, name string, work func(context.Context) error, attributes func() []attribute.KeyValue,
) error {
	if s.tracer == nil {
		return work(ctx)
	}
	ctx, span := s.tracer.Start(ctx, name)
	defer span.End()
	err := work(ctx)
	if span.IsRecording() {
		span.SetAttributes(attributes()...)
		if err != nil {
			SpanFailed(span, err)
		}
	}
	return err
}
