package lockclient_test

import (
	"context"
	"fmt"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/lockclient"
)

// The gateway's spans become part of the caller's trace. In a program the propagator is otel.GetTextMapPropagator(),
// and the span comes from the program's own tracer.
func ExampleWithHeaders() {
	propagator := propagation.TraceContext{}
	client, err := lockclient.New(gatewayURL, lockclient.WithHeaders(func(ctx context.Context, header http.Header) {
		propagator.Inject(ctx, propagation.HeaderCarrier(header))
		fmt.Println("traceparent:", header.Get("traceparent"))
	}))
	if err != nil {
		panic(err)
	}
	defer client.Close()

	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{0xab}, SpanID: trace.SpanID{0xcd}, TraceFlags: trace.FlagsSampled,
	}))
	lease, err := client.Acquire(ctx, "example/traced")
	if err != nil {
		panic(err)
	}
	if err := lease.Release(context.Background()); err != nil { // belongs to no trace
		panic(err)
	}
	// Output:
	// traceparent: 00-ab000000000000000000000000000000-cd00000000000000-01
	// traceparent:
}
