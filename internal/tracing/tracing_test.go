package tracing_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/otlptest"
	"github.com/fencegate/fencegate/internal/tracing"
)

// withoutEnvironment is for tests of what is asked for in other ways.
func withoutEnvironment(t *testing.T) {
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES",
	} {
		t.Setenv(name, "")
	}
}

func start(t *testing.T, config tracing.Config) *tracing.Tracing {
	t.Helper()
	traces, err := tracing.New(t.Context(), config)
	if err != nil || traces == nil {
		t.Fatalf("got %v, %v", traces, err)
	}
	return traces
}

func TestOffUnlessAskedFor(t *testing.T) {
	withoutEnvironment(t)
	off := func(why, endpoint string) {
		t.Helper()
		traces, err := tracing.New(t.Context(), tracing.Config{Endpoint: endpoint})
		if traces != nil || err != nil || traces.Provider() != nil || traces.Dropped() != 0 {
			t.Errorf("%s: %v, %v", why, traces, err)
		}
		if left, err := traces.Shutdown(t.Context()); left != 0 || err != nil {
			t.Errorf("%s: %d, %v", why, left, err)
		}
	}
	off("no endpoint", "")
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	off("none", "http://127.0.0.1:1")
	t.Setenv("OTEL_TRACES_EXPORTER", "")
	t.Setenv("OTEL_SDK_DISABLED", "true")
	off("disabled", "http://127.0.0.1:1")
}

func TestSettingsThatAreRefused(t *testing.T) {
	withoutEnvironment(t)
	for _, config := range []tracing.Config{
		{Endpoint: "collector:4318"}, {Endpoint: "grpc://collector"}, {Endpoint: "http://u:secret@collector"},
		{SampleRatio: 1.1}, {SampleRatio: math.NaN()}, {Endpoint: "http://127.0.0.1:1", QueueMax: -1},
	} {
		if traces, err := tracing.New(t.Context(), config); !errors.Is(err, tracing.ErrInvalid) || traces != nil {
			t.Errorf("%+v: %v", config, err)
		}
	}
}

// Spans arrive with the name of their service, wherever the endpoint was configured.
func TestDelivers(t *testing.T) {
	withoutEnvironment(t)
	r := otlptest.NewReceiver(t)
	for _, c := range []struct{ endpoint, variable, value, service string }{
		{r.URL + "/v1/traces", "OTEL_SERVICE_NAME", "", "fencegate"},
		{"", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", r.URL + "/v1/traces", "fencegate"},
		{"", "OTEL_EXPORTER_OTLP_ENDPOINT", r.URL, "fencegate"},
		{r.URL + "/v1/traces", "OTEL_SERVICE_NAME", "shop-locks", "shop-locks"},
	} {
		before := len(r.Spans())
		t.Setenv(c.variable, c.value)
		traces := start(t, tracing.Config{Endpoint: c.endpoint, SampleRatio: 1, Version: "7"})
		_, span := traces.Provider().Tracer("test").Start(t.Context(), "work")
		span.End()
		if left, err := traces.Shutdown(t.Context()); left != 0 || err != nil {
			t.Fatalf("%d are left: %v", left, err)
		}
		got := r.Spans()[before:]
		if len(got) != 1 || got[0].Name != "work" || got[0].Resource["service.version"] != "7" ||
			got[0].Resource["service.instance.id"] == "" || got[0].Resource["service.name"] != c.service {
			t.Errorf("%+v: got %+v", c, got)
		}
		t.Setenv(c.variable, "")
	}
}

// A collector that hangs costs spans, and nothing else: neither the end of a span nor the end of the program waits for
// it.
func TestHangingCollector(t *testing.T) {
	withoutEnvironment(t)
	asked, end := make(chan struct{}, 100), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-end
	}))
	defer server.Close()
	defer close(end)
	const queue, spans = 8, 50
	traces := start(t, tracing.Config{Endpoint: server.URL, SampleRatio: 1, QueueMax: queue, Delay: time.Millisecond,
		ExportTimeout: time.Hour})
	tracer := traces.Provider().Tracer("test")
	for range spans {
		_, span := tracer.Start(t.Context(), "work")
		span.End()
	}
	if got := traces.Dropped(); got != spans-queue {
		t.Errorf("%d are dropped, want %d", got, spans-queue)
	}
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if left, err := traces.Shutdown(ctx); left != queue || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d are left, want %d: %v", left, queue, err)
	}
}

// Spans that a collector rejects are counted and reported.
func TestRefusingCollector(t *testing.T) {
	withoutEnvironment(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no spans here", http.StatusForbidden)
	}))
	defer server.Close()
	var reported atomic.Value
	traces := start(t, tracing.Config{Endpoint: server.URL, SampleRatio: 1,
		OnError: func(err error) { reported.Store(err) }})
	for range 3 {
		_, span := traces.Provider().Tracer("test").Start(t.Context(), "work")
		span.End()
	}
	if left, err := traces.Shutdown(t.Context()); left != 0 || err != nil {
		t.Errorf("%d are left: %v", left, err)
	}
	if err, _ := reported.Load().(error); traces.Dropped() != 3 || err == nil {
		t.Errorf("%d are dropped, and the reported error is %v", traces.Dropped(), err)
	}
}
