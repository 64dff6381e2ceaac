package logging_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/internal/logging"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// written is a log, and its lines.
type written struct{ process.Buffer }

func (w *written) lines(t *testing.T) (lines []map[string]any) {
	t.Helper()
	for text := range strings.Lines(w.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestLinesCarryTheirTrace(t *testing.T) {
	var out written
	logger := logging.New(&out, slog.LevelInfo, true).With("a", 1)
	ctx := trace.ContextWithSpanContext(
		t.Context(),
		trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}),
	)
	logger.InfoContext(ctx, "traced")
	logger.InfoContext(t.Context(), "not traced")
	logger.DebugContext(ctx, "left out")
	lines := out.lines(t)
	if len(lines) != 2 || lines[0]["trace_id"] != "01000000000000000000000000000000" ||
		lines[0]["span_id"] != "0200000000000000" || lines[0]["a"] != 1.0 {
		t.Fatalf("got %v", lines)
	}
	if _, there := lines[1]["trace_id"]; there {
		t.Errorf("got %v", lines[1])
	}
}

func TestText(t *testing.T) {
	var out written
	logging.New(&out, slog.LevelInfo, false).Info("hello", "key", "a value")
	if got := out.String(); !strings.Contains(got, `level=INFO msg=hello key="a value"`+"\n") {
		t.Errorf("got %q", got)
	}
}

// However often the same goes wrong, it is logged at once, soon after, and once a minute, with how many there were.
func TestStormOfWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out written
		logger := logging.New(&out, slog.LevelInfo, true)
		for i := range 300 { // once a second
			time.Sleep(time.Second)
			logger.With("of", "all").Warn("database unavailable", "number", i)
			if i%100 == 50 {
				logger.Warn("another", "number", i)
				logger.Warn("not ready", "reason", strconv.Itoa(i))
			}
			logger.Info("always logged")
		}
		time.Sleep(2 * time.Minute)
		logger.Warn("database unavailable", "number", 9999)
		var storm, others int
		var total float64
		for _, line := range out.lines(t) {
			switch line["msg"] {
			case "database unavailable":
				leftOut, _ := line["left_out"].(float64)
				total += 1 + leftOut
				storm++
				if line["of"] != "all" && line["number"] != 9999.0 {
					t.Errorf("got %v", line)
				}
			case "another", "not ready":
				others++
			}
		}
		if storm < 7 || storm > 9 || total != 301 || others != 6 {
			t.Errorf("%d lines have %.0f warnings, and %d are others", storm, total, others)
		}
	})
}

// Errors are defects: a few with the same message are logged, each with its own keys.
func TestStormOfErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out written
		logger := logging.New(&out, slog.LevelInfo, true)
		for i := range 100 {
			logger.ErrorContext(context.Background(), "request failed", "number", i)
		}
		if got := out.lines(t); len(got) != 10 {
			t.Errorf("%d lines at once", len(got))
		}
		time.Sleep(time.Minute)
		got := out.lines(t)
		if len(got) != 11 || got[10]["number"] != 99.0 || got[10]["left_out"] != 89.0 {
			t.Errorf("%d lines, the last %v", len(got), got[len(got)-1])
		}
	})
}
