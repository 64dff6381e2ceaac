package store

import (
	"strings"

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

// Tracer makes the spans of package store and those below it; nil: none are made. All work for spans is behind a test
// for nil: without spans, a write costs nothing more.
func (t Tracing) Tracer() trace.Tracer {
	if t.Provider == nil {
		return nil
	}
	return t.Provider.Tracer(tracerName)
}

// SpanFailed marks a span as failed.
func SpanFailed(span trace.Span, err error) {
	span.SetStatus(codes.Error, strings.ToValidUTF8(err.Error(), "\uFFFD"))
}
