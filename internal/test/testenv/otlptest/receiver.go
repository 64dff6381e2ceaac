// Package otlptest is a collector of OpenTelemetry for tests: it takes spans by OTLP over HTTP, as real ones do, and
// shows them.
package otlptest

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/tracing"
)

// Span is one that was received.
type Span struct {
	Name, TraceID, SpanID string
	ParentID              string // empty: it began the trace
	Server                bool   // its kind
	Attributes            map[string]string
	Links                 []string // SpanIDs
	Failed                bool
	Status                string
	// Resource is what made it.
	Resource map[string]string
}

// Receiver is a collector.
type Receiver struct {
	// URL is its base.
	URL string

	mu    sync.Mutex
	spans []Span
	raw   bytes.Buffer
}

// NewReceiver serves a collector until the test ends.
func NewReceiver(t testing.TB) *Receiver {
	r := &Receiver{}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

// Start returns a collector, and a provider whose spans it receives within milliseconds; ratio is the part of the
// traces that is kept.
func Start(t testing.TB, ratio float64) (*Receiver, trace.TracerProvider) {
	t.Helper()
	r := NewReceiver(t)
	traces, err := tracing.New(t.Context(), tracing.Config{
		Endpoint: r.URL, SampleRatio: ratio, Version: "test", Delay: 5 * time.Millisecond, ExportTimeout: await.Limit,
		OnError: func(err error) { t.Errorf("tracing: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), await.Limit) // the test's own has ended
		defer cancel()
		if left, err := traces.Shutdown(ctx); err != nil {
			t.Errorf("%d spans are left: %v", left, err)
		}
	})
	return r, traces.Provider()
}

// ServeHTTP takes spans.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	var got collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &got)
	}
	if request.URL.Path != "/v1/traces" || err != nil {
		http.Error(w, "no spans", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.raw.Write(body)
	for _, of := range got.ResourceSpans {
		resource := texts(of.Resource.GetAttributes())
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				r.spans = append(r.spans, spanOf(span, resource))
			}
		}
	}
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(http.StatusOK)
}

func spanOf(span *wire.Span, resource map[string]string) Span {
	got := Span{
		Name: span.Name, TraceID: hex.EncodeToString(span.TraceId), SpanID: hex.EncodeToString(span.SpanId),
		ParentID: hex.EncodeToString(span.ParentSpanId),
		Server:   span.Kind == wire.Span_SPAN_KIND_SERVER, Attributes: texts(span.Attributes),
		Failed: span.Status.GetCode() == wire.Status_STATUS_CODE_ERROR, Status: span.Status.GetMessage(), Resource: resource,
	}
	for _, link := range span.Links {
		got.Links = append(got.Links, hex.EncodeToString(link.SpanId))
	}
	return got
}

// texts are attributes as they are read.
func texts(attributes []*common.KeyValue) map[string]string {
	got := map[string]string{}
	for _, attribute := range attributes {
		switch value := attribute.Value.GetValue().(type) {
		case *common.AnyValue_StringValue:
			got[attribute.Key] = value.StringValue
		case *common.AnyValue_IntValue:
			got[attribute.Key] = strconv.FormatInt(value.IntValue, 10)
		case *common.AnyValue_BoolValue:
			got[attribute.Key] = strconv.FormatBool(value.BoolValue)
		}
	}
	return got
}

// Spans returns what was received.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// Raw returns the bytes of all that was received: names and attributes are in them as they are.
func (r *Receiver) Raw() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.raw.Bytes())
}

// Await waits for a span.
func (r *Receiver) Await(t testing.TB, what string, is func(Span) bool) Span {
	t.Helper()
	for deadline := time.Now().Add(await.Limit); ; time.Sleep(2 * time.Millisecond) {
		spans := r.Spans()
		if i := slices.IndexFunc(spans, is); i >= 0 {
			return spans[i]
		}
		if time.Now().After(deadline) {
			t.Fatalf("there is no span of %s among these: %+v", what, spans)
		}
	}
}
