package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/fencegate/fencegate/internal/tracing"
	"github.com/fencegate/fencegate/store"
)

// traceFlushTimeout is how long a gateway that ends tries to deliver its last spans.
const traceFlushTimeout = 3 * time.Second

// traceFlags say what is traced, and where spans are sent.
type traceFlags struct {
	TraceEndpoint    string  `help:"Collector of OpenTelemetry to send spans to, by OTLP over HTTP: http://127.0.0.1:4318. Default: OTEL_EXPORTER_OTLP_ENDPOINT, and without that no tracing." env:"FENCEGATE_TRACE_ENDPOINT" placeholder:"URL"`
	TraceSampleRatio float64 `help:"Share of the traces begun by this gateway that is kept, 0 to 1. The client decides for traces that it has begun." env:"FENCEGATE_TRACE_SAMPLE_RATIO" default:"1"`
	TraceNames       bool    `help:"Show the names of locks, resources and keys in spans, as attributes." env:"FENCEGATE_TRACE_NAMES" default:"true" negatable:""`
}

// start returns nil where nothing is to be traced.
func (f traceFlags) start(ctx context.Context, logger *slog.Logger) (*tracing.Tracing, error) {
	return tracing.New(ctx, tracing.Config{
		Endpoint: f.TraceEndpoint, SampleRatio: f.TraceSampleRatio, Version: programVersion(),
		OnError: func(err error) { logger.Warn("spans not delivered", "error", err) },
	})
}

// of is what the store and the gateway need to know.
func (f traceFlags) of(traces *tracing.Tracing) store.Tracing {
	return store.Tracing{Provider: traces.Provider(), LeaveOutNames: !f.TraceNames}
}

// flush delivers the last spans, if that can be done soon.
func flush(traces *tracing.Tracing, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), traceFlushTimeout)
	defer cancel()
	if left, err := traces.Shutdown(ctx); err != nil {
		logger.Warn("the last spans are not delivered", "spans", left, "error", err)
	}
}
