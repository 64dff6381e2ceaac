package lockclient_test

import (
	"context"
	"net/http"
	"testing"

	"go.opentelemetry.io/otel/propagation"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/otlptest"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
)

// One trace leads from the caller through the SDK and the gateway to the database's statement, for every kind of
// request. The gateway itself starts no trace.
func TestOneTrace(t *testing.T) {
	t.Parallel()
	received, provider := otlptest.Start(t, 1)
	gateway := startGateway(t, postgres.Migrated(t), "--trace-endpoint", received.URL, "--trace-sample-ratio", "0")
	propagator := propagation.TraceContext{}
	client := newClient(t, gateway.URL, lockclient.WithHeaders(func(ctx context.Context, header http.Header) {
		propagator.Inject(ctx, propagation.HeaderCarrier(header))
	}))
	lease, err := client.Acquire(await.Context(t), "job") // outside of any trace
	check(t, err)

	trip := func(what string, call func(ctx context.Context), chain ...string) {
		t.Helper()
		ctx, span := provider.Tracer("test").Start(await.Context(t), what)
		call(ctx)
		span.End()
		parent := received.Await(t, what, func(s otlptest.Span) bool { return s.Name == what })
		for _, name := range chain {
			parent = received.Await(t, name, func(s otlptest.Span) bool { return s.Name == name && s.ParentID == parent.SpanID })
			if parent.TraceID != span.SpanContext().TraceID().String() || parent.Failed {
				t.Errorf("%s of %s is in another trace, or failed: %+v", name, what, parent)
			}
		}
	}
	trip("a write", func(ctx context.Context) { check(t, second(lease.Put(ctx, "k", []byte("v")))) },
		"PUT /v1/resources/{resource}/records/{key}", "write", "write batch", "query fence.write_one")
	trip("a stream", func(ctx context.Context) {
		pipeline, err := lease.Pipeline(ctx)
		check(t, err)
		check(t, second(pipeline.Put(ctx, "k", []byte("v"))))
		check(t, pipeline.Close())
	}, "POST /v1/writes", "write", "write batch", "query fence.write_one")
	trip("a renewal", func(ctx context.Context) { check(t, lease.Renew(ctx)) },
		"POST /v1/locks/{lock}/renew", "query fence.renew_leases")
	trip("an acquire", func(ctx context.Context) { check(t, second(client.Acquire(ctx, "other"))) },
		"POST /v1/locks/{lock}/acquire", "query fence.acquire_lease")
	trip("a session", func(ctx context.Context) { check(t, second(client.NewSession(ctx))) },
		"POST /v1/sessions", "query fence.create_session")
	trip("a read", func(ctx context.Context) { check(t, second(admin.New(client).Fence(ctx, "job"))) },
		"GET /v1/resources/{resource}/fence")
	trip("a release", func(ctx context.Context) { check(t, lease.Release(ctx)) },
		"POST /v1/locks/{lock}/release", "query fence.release_one")

	for _, span := range received.Spans() {
		if span.Name == "sweep" || span.ParentID == "" && span.Server {
			t.Errorf("the gateway started a trace: %+v", span)
		}
	}
}
