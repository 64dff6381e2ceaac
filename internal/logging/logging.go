// Package logging makes the logger: lines carry the trace that they belong to, and repetitions of a line are left out.
package logging

import (
	"context"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// New returns a logger that writes lines of at least the level to out, as JSON or as text. Each call writes one line.
func New(out io.Writer, level slog.Level, json bool) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(out, options)
	if json {
		handler = slog.NewJSONHandler(out, options)
	}
	return slog.New(Bounded(Traced(handler)))
}

// Traced adds trace_id and span_id to the lines of what is done within a span.
func Traced(handler slog.Handler) slog.Handler { return traced{handler} }

type traced struct{ slog.Handler }

// Handle adds the keys last, so that they are on the same side of every line.
func (t traced) Handle(ctx context.Context, record slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		record.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return t.Handler.Handle(ctx, record)
}

// WithAttrs is part of slog.Handler.
func (t traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{t.Handler.WithAttrs(attrs)} }

// WithGroup is part of slog.Handler.
func (t traced) WithGroup(name string) slog.Handler { return traced{t.Handler.WithGroup(name)} }
