// Package tracing wires OpenTelemetry's SDK: it samples spans, sends them, and counts those that it can't deliver. The
// packages that make spans know OpenTelemetry's API only.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	tracesPath = "/v1/traces" // where a collector takes spans by OTLP over HTTP

	defaultQueueMax      = 8192
	defaultDelay         = time.Second
	defaultExportTimeout = 10 * time.Second
	spansPerRequestMax   = 512

	// attributeBytesMax bounds one attribute of a span.
	attributeBytesMax = 4096
)

// ErrInvalid says that a setting is outside its limits; the message names its flag.
var ErrInvalid = errors.New("invalid configuration")

// Config says where spans go. The zero value of a field is its default.
type Config struct {
	// Endpoint is the base URL of a collector that takes OTLP over HTTP, such as http://127.0.0.1:4318; /v1/traces is
	// added where it has no path. Empty: that of the environment, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or
	// OTEL_EXPORTER_OTLP_ENDPOINT, and without those nothing is traced.
	Endpoint string
	// SampleRatio is the part of the traces that begin here that is kept, 0 to 1. Where a client has begun the trace, its
	// decision counts.
	SampleRatio float64
	// Version is this program's.
	Version string
	// OnError is called for spans that could not be delivered, with the reason.
	OnError func(err error)

	// QueueMax bounds the spans that wait to be sent; further ones are dropped and counted. Default 8192; at least 1.
	QueueMax int
	// Delay is how long spans wait for others to be sent with. Default 1 s.
	Delay time.Duration
	// ExportTimeout bounds the sending of some spans, all tries included. Default 10 s.
	ExportTimeout time.Duration
}

// Tracing keeps spans until they are sent. A nil *Tracing is one that is off.
type Tracing struct {
	provider *sdktrace.TracerProvider
	dropped  atomic.Uint64
	waiting  atomic.Int64
	queueMax int64
	onError  func(error)
}

// New returns a Tracing, or nil if tracing is off: there is no endpoint, or the environment has
// OTEL_SDK_DISABLED=true or OTEL_TRACES_EXPORTER=none. Nothing is sent yet. It returns ErrInvalid.
func New(ctx context.Context, config Config) (*Tracing, error) {
	endpoint, err := traceURL(config.Endpoint)
	switch {
	case err != nil:
		return nil, err
	case !(config.SampleRatio >= 0 && config.SampleRatio <= 1): // and is a number
		return nil, fmt.Errorf("%w: --trace-sample-ratio is %v, it must be 0 to 1", ErrInvalid, config.SampleRatio)
	case config.QueueMax < 0:
		return nil, fmt.Errorf("%w: the queue of spans is %d, it must be at least 1", ErrInvalid, config.QueueMax)
	case !enabled(config.Endpoint):
		return nil, nil //nolint:nilnil // a nil Tracing is one that is off
	}
	config.QueueMax = cmp.Or(config.QueueMax, defaultQueueMax)
	config.ExportTimeout = cmp.Or(config.ExportTimeout, defaultExportTimeout)

	var options []otlptracehttp.Option
	if endpoint != "" {
		options = append(options, otlptracehttp.WithEndpointURL(endpoint))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("%w: --trace-endpoint: %w", ErrInvalid, err)
	}
	about, err := describe(ctx, config.Version)
	if err != nil {
		return nil, err
	}
	t := &Tracing{queueMax: int64(config.QueueMax), onError: config.OnError}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(t.failed)) // it would write to the standard error, in a format of its own
	limits := sdktrace.NewSpanLimits()
	if limits.AttributeValueLengthLimit < 0 {
		limits.AttributeValueLengthLimit = attributeBytesMax
	}
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithResource(about),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(config.SampleRatio))),
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithoutPanicRecording(), // a client that went away ends its request by one
		sdktrace.WithSpanProcessor(&bounded{t, sdktrace.NewBatchSpanProcessor(&counting{t, exporter},
			// t applies the bound, and counts the spans beyond it: this queue has room for all others.
			sdktrace.WithMaxQueueSize(config.QueueMax),
			sdktrace.WithMaxExportBatchSize(min(spansPerRequestMax, config.QueueMax)),
			sdktrace.WithBatchTimeout(cmp.Or(config.Delay, defaultDelay)),
			sdktrace.WithExportTimeout(config.ExportTimeout))}),
	)
	return t, nil
}

// enabled reports whether the configuration turns tracing on.
func enabled(endpoint string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return cmp.Or(endpoint, os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
		os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) != ""
}

// traceURL is the whole URL of an endpoint, and "" of none.
func traceURL(endpoint string) (string, error) {
	if endpoint == "" {
		return "", nil
	}
	at, err := url.Parse(endpoint)
	if err != nil || (at.Scheme != "http" && at.Scheme != "https") || at.Host == "" || at.RawQuery != "" ||
		at.User != nil {
		return "", fmt.Errorf("%w: --trace-endpoint must be like http://127.0.0.1:4318 (credentials go into "+
			"OTEL_EXPORTER_OTLP_HEADERS)", ErrInvalid)
	}
	if at.Path == "" || at.Path == "/" {
		at.Path = tracesPath
	}
	return at.String(), nil
}

// describe names the service of the spans. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it.
func describe(ctx context.Context, version string) (*resource.Resource, error) {
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "fencegate"), attribute.String("service.version", version),
			attribute.String("service.instance.id", uuid.NewString())),
		resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("%w: OTEL_RESOURCE_ATTRIBUTES: %w", ErrInvalid, err)
	}
	return about, nil
}

// Provider makes the tracers; nil where nothing is traced.
func (t *Tracing) Provider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// Dropped returns how many spans were not delivered: too many waited, or the collector did not take them.
func (t *Tracing) Dropped() uint64 {
	if t == nil {
		return 0
	}
	return t.dropped.Load()
}

// Shutdown sends what waits, and gives up when ctx ends. It returns how many spans were left.
func (t *Tracing) Shutdown(ctx context.Context) (left int64, err error) {
	if t == nil {
		return 0, nil
	}
	err = t.provider.Shutdown(ctx)
	return t.waiting.Load(), err
}

func (t *Tracing) failed(err error) {
	if t.onError != nil {
		t.onError(err)
	}
}

// bounded lets no more spans wait than it may, and counts the others. The SDK's queue drops, too, but does not count
// them.
type bounded struct {
	tracing *Tracing
	sdktrace.SpanProcessor
}

// OnEnd takes a span that is to be sent.
func (b *bounded) OnEnd(span sdktrace.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	if b.tracing.waiting.Add(1) > b.tracing.queueMax {
		b.tracing.waiting.Add(-1)
		b.tracing.dropped.Add(1)
		return
	}
	b.SpanProcessor.OnEnd(span)
}

// counting counts the spans that could not be sent.
type counting struct {
	tracing *Tracing
	sdktrace.SpanExporter
}

// ExportSpans sends spans. It always returns nil: it reports errors itself.
func (c *counting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	c.tracing.waiting.Add(-int64(len(spans)))
	if err != nil {
		c.tracing.dropped.Add(uint64(len(spans)))
		c.tracing.failed(fmt.Errorf("%d spans were not delivered: %w", len(spans), err))
	}
	return nil
}
