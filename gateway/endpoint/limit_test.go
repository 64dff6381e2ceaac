package endpoint

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/test/testenv/otlptest"
	"github.com/fencegate/fencegate/store"
)

// Contexts of a shared deadline leave at least the time requested, and at most a sixteenth more. They end with their
// parent.
func TestSharedDeadline(t *testing.T) {
	t.Parallel()
	const least = 320 * time.Millisecond
	parent, end := context.WithCancel(t.Context())
	var shared sharedDeadline
	shared.within(parent, least)

	begun := time.Now()
	first, again := shared.context(), shared.context()
	deadline, _ := first.Deadline()
	if deadline.Before(begun.Add(least)) || deadline.After(time.Now().Add(least+least/16)) {
		t.Errorf("the first context has %s, want %s or a little more", deadline.Sub(begun), least)
	}
	if next, _ := again.Deadline(); first != again && !next.After(deadline) {
		t.Error("two contexts taken together are different")
	}
	for time.Since(begun) < 2*least {
		now := time.Now()
		deadline, _ := shared.context().Deadline()
		if deadline.Before(now.Add(least)) {
			t.Fatalf("a context taken %s later has %s, want at least %s", now.Sub(begun), deadline.Sub(now), least)
		}
	}
	if <-first.Done(); !errors.Is(context.Cause(first), context.DeadlineExceeded) {
		t.Errorf("the context ended with %v, want DeadlineExceeded", context.Cause(first))
	}
	last := shared.context()
	end()
	if <-last.Done(); !errors.Is(last.Err(), context.Canceled) {
		t.Errorf("the context ended with %v after its parent, want Canceled", last.Err())
	}
}

// The work on a request has the RequestTimeout, or a sixteenth more, and the span of the request, also one that is not
// sampled. It goes on when the client has left, and ends with the server.
func TestWork(t *testing.T) {
	t.Parallel()
	for name, ratio := range map[string]float64{"sampled": 1, "not sampled": 0} {
		_, provider := otlptest.Start(t, ratio)
		g := NewServer(Config{RequestTimeout: time.Hour, Tracing: store.Tracing{Provider: provider}}, metrics.New("test", CodeOf))
		ctx, span := provider.Tracer("test").Start(t.Context(), "request")
		ctx, leave := context.WithCancel(ctx)
		leave()
		work := g.Work((&http.Request{}).WithContext(ctx))
		deadline, _ := work.Deadline()
		if left := time.Until(deadline); work.Err() != nil || left < 59*time.Minute || left > time.Hour+time.Hour/16 {
			t.Errorf("%s: the work has %s and the error %v, want an hour or a little more, and none", name, left, work.Err())
		}
		if got := trace.SpanContextFromContext(work); !got.IsValid() || !got.Equal(span.SpanContext()) {
			t.Errorf("%s: the work has the span %v, want that of the request", name, got)
		}
		g.CutOff()
		if !errors.Is(work.Err(), context.Canceled) {
			t.Errorf("%s: the work has the error %v after the end of the server, want canceled", name, work.Err())
		}
		span.End()
	}
}

// The delay doubles with each refusal after the free ones, up to its maximum.
func TestRefusalDelays(t *testing.T) {
	d := NewRefusalDelays(t.Context(), time.Second, nil)
	for refusals, want := range map[uint64]time.Duration{
		1: 0, RefusalsFree: 0, RefusalsFree + 1: RefusalDelayMin, RefusalsFree + 2: 2 * RefusalDelayMin,
		RefusalsFree + 6: time.Second, 1 << 16: time.Second,
	} {
		if got := d.after(refusals); got != want {
			t.Errorf("refusal %d is delayed by %s, want %s", refusals, got, want)
		}
	}
}
