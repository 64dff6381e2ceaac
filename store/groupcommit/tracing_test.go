package groupcommit_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/internal/test/testenv/otlptest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/postgres"
)

// newTracedGroup is a groupbed whose spans are received; nothing begins a trace but the test.
func newTracedGroup(t *testing.T, config groupcommit.Config) (*groupbed, *otlptest.Receiver, oteltrace.Tracer) {
	t.Helper()
	received, provider := otlptest.Start(t, 1)
	g := newGroupbed(t, config)
	g.Store = enginetest.OpenStore(t, postgres.Config{DatabaseURL: g.URL, Tracing: store.Tracing{Provider: provider}})
	g.Group = newGroup(t, g.Store, config)
	return g, received, provider.Tracer("test")
}

// A batch of several writes belongs to the trace of the first that is traced, and links to all that are; the others
// link to it.
func TestTraceOfABatch(t *testing.T) {
	g, received, tracer := newTracedGroup(t, narrow)
	before := g.submitPlug(t, "plugged")
	const writes = 100
	var answers []<-chan reply
	spans := map[string]oteltrace.Span{}
	for i := range writes {
		ctx := t.Context()
		if i%3 > 0 { // the others are not traced
			var span oteltrace.Span
			ctx, span = tracer.Start(t.Context(), "caller")
			spans[span.SpanContext().SpanID().String()] = span
		}
		answers = append(answers, g.submit(ctx, t, g.put(t, enginetest.Numbered("resource", i), 1, "x")))
	}
	await.True(t, "all wait", func() bool { return g.Stats().Queued == writes })
	g.pull(t, 1)
	admitted(t, "the plug", before)
	allAdmitted(t, answers)
	batch := received.Await(t, "the batch", func(s otlptest.Span) bool { return s.Name == "write batch" })
	statement := received.Await(t, "the statement", func(s otlptest.Span) bool { return s.Name == "query fence.write" })
	first := spans[batch.ParentID]
	if first == nil || first.SpanContext().TraceID().String() != batch.TraceID || statement.ParentID != batch.SpanID ||
		batch.Failed {
		t.Fatalf("the batch %+v has the statement %+v", batch, statement)
	}
	if len(batch.Links) != 64 || batch.Attributes["fencegate.batch.writes"] != "100" {
		t.Errorf("the batch has %d links: %+v", len(batch.Links), batch.Attributes)
	}
	for _, link := range batch.Links {
		if spans[link] == nil {
			t.Errorf("it links to %s, which is no write", link)
		}
	}
	for id, span := range spans {
		span.End()
		got := received.Await(t, "the caller", func(s otlptest.Span) bool { return s.SpanID == id })
		if want := []string{batch.SpanID}; id != batch.ParentID && !slices.Equal(got.Links, want) {
			t.Errorf("a write links to %q, want %q", got.Links, want)
		}
	}
}

// Where nothing has begun a trace, writes have no spans, and neither have their batches; sweeps and the record begin
// their own.
func TestTracesBegin(t *testing.T) {
	g, received, _ := newTracedGroup(t, narrow)
	admitted(t, "a write", g.submit(t.Context(), t, g.put(t, "job", 1, "x")))
	sweeper, err := postgres.NewSweeper(g.Store, postgres.SweeperConfig{})
	if err != nil {
		t.Fatal(err)
	}
	recorder := postgres.NewRecorder(g.Store)
	recorder.Record(&store.RejectedError{Resource: "job", Key: "k", Verdict: store.VerdictTokenStale,
		Reason: "superseded", Token: 1}, "http", "192.0.2.1", "")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { recorder.Run(ctx, func(err error) { t.Error(err) }) })
	running.Go(func() { sweeper.Run(ctx, func(store.Swept) {}, func(err error) { t.Error(err) }) })
	record := received.Await(t, "the record", func(s otlptest.Span) bool { return s.Name == "record rejections" })
	sweep := received.Await(t, "a sweep", func(s otlptest.Span) bool { return s.Name == "sweep" })
	cancel()
	running.Wait()
	received.Await(t, "the record's statement", func(s otlptest.Span) bool {
		return s.ParentID == record.SpanID && s.Name == "query fence.record_rejections"
	})
	received.Await(t, "the sweep's statement", func(s otlptest.Span) bool {
		return s.ParentID == sweep.SpanID &&
			s.Name == "query fence.sweep"
	})
	for _, s := range []otlptest.Span{record, sweep} {
		if s.ParentID != "" || s.Failed {
			t.Errorf("got %+v", s)
		}
	}
	for _, s := range received.Spans() {
		if s.Name == "write batch" || s.Name == "query fence.write_one" {
			t.Errorf("this has no beginning: %+v", s)
		}
	}
}
