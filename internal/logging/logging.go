// Package logging makes the logger: lines carry the trace that they belong to, and repetitions of a line are left out.
package logging

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

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

const (
	// warningsMax and errorsMax are how many lines of the same message are logged at once: while the database is away,
	// thousands of requests fail for the same reason. An error is a defect, and several of the same words may be several.
	warningsMax = 1
	errorsMax   = 10
	// atOnce is longer than the pauses between what is tried again and again in the background.
	atOnce = 5 * time.Second
	// repeated is the time between the lines of a warning that is repeated.
	repeated = time.Minute
	// messagesMax bounds the messages that are counted. They are constants of the code, and few.
	messagesMax = 1000
)

// Bounded logs a warning when it comes first, then once a minute while it is repeated, and the last one. The same
// message with another "reason" is another warning. Of errors, it logs ten at once. Of those left out the last is
// logged, with left_out, the number of the others.
func Bounded(handler slog.Handler) slog.Handler {
	return bounded{handler, &storms{storms: map[stormKey]*storm{}}}
}

type bounded struct {
	slog.Handler

	storms *storms
}

type storms struct {
	mu     sync.Mutex
	storms map[stormKey]*storm
}

type stormKey struct {
	level           slog.Level
	message, reason string
}

// storm is the lines of one period that say the same.
type storm struct {
	logged  int
	leftOut int64
	last    func(leftOut int64) // logs the last that was left out
}

// Handle logs the line, or keeps it until the period is over.
func (b bounded) Handle(ctx context.Context, record slog.Record) error {
	if record.Level < slog.LevelWarn {
		return b.Handler.Handle(ctx, record)
	}
	if !b.storms.admit(record, func(leftOut int64) {
		late := record.Clone()
		if leftOut > 0 {
			late.AddAttrs(slog.Int64("left_out", leftOut))
		}
		_ = b.Handler.Handle(ctx, late)
	}) {
		return nil
	}
	return b.Handler.Handle(ctx, record)
}

// WithAttrs is part of slog.Handler.
func (b bounded) WithAttrs(attrs []slog.Attr) slog.Handler {
	return bounded{b.Handler.WithAttrs(attrs), b.storms}
}

// WithGroup is part of slog.Handler.
func (b bounded) WithGroup(name string) slog.Handler {
	return bounded{b.Handler.WithGroup(name), b.storms}
}

// admit reports whether the line may be logged now; otherwise it keeps how to log it later.
func (s *storms) admit(record slog.Record, later func(leftOut int64)) bool {
	most := warningsMax
	if record.Level >= slog.LevelError {
		most = errorsMax
	}
	key := stormKey{level: record.Level, message: record.Message}
	record.Attrs(func(attr slog.Attr) bool {
		if attr.Key == "reason" {
			key.reason = attr.Value.String()
		}
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.storms[key]
	if now == nil {
		if len(s.storms) >= messagesMax {
			return true
		}
		s.storms[key] = &storm{logged: 1}
		time.AfterFunc(atOnce, func() { s.over(key) })
		return true
	}
	if now.logged < most {
		now.logged++
		return true
	}
	if now.last != nil {
		now.leftOut++
	}
	now.last = later
	return false
}

// over ends the period of a storm. If more lines were kept, the last of them is logged now, and another period begins.
func (s *storms) over(key stormKey) {
	s.mu.Lock()
	now := s.storms[key]
	if now.last == nil {
		delete(s.storms, key)
		s.mu.Unlock()
		return
	}
	s.storms[key] = &storm{logged: 1}
	s.mu.Unlock()
	next := repeated
	if key.level >= slog.LevelError {
		next = atOnce
	}
	time.AfterFunc(next, func() { s.over(key) })
	now.last(now.leftOut)
}
