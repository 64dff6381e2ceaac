package gateway

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/writes"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/otlptest"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// newTraced is newHarness with a receiver of its spans.
func newTraced(t testing.TB, ratio float64, config Config, tracing store.Tracing) (*harness, *otlptest.Receiver) {
	t.Helper()
	received, provider := otlptest.Start(t, ratio)
	tracing.Provider = provider
	config.Tracing = tracing
	database := patientDatabase(t)
	database.Tracing = tracing
	return newHarnessOn(t, config, database), received
}

// traceparent returns the header of a request in the trace with this number, and the ID of the trace.
func traceparent(number int, sampled bool) (header, traceID string) {
	traceID = fmt.Sprintf("%032x", number)
	flags := map[bool]string{true: "01", false: "00"}[sampled]
	return "traceparent: 00-" + traceID + "-00000000000000aa-" + flags, traceID
}

// named waits for the span with this name in a trace.
func named(t testing.TB, from *otlptest.Receiver, traceID, name string) otlptest.Span {
	t.Helper()
	return from.Await(t, name, func(s otlptest.Span) bool { return s.TraceID == traceID && s.Name == name })
}

// The spans of a write lead from the client's request to the SQL statement.
func TestTraceOfAWrite(t *testing.T) {
	h, received := newTraced(t, 0, Config{}, store.Tracing{})
	lease := h.acquire(t, "job", "w")
	header, id := traceparent(1, true)
	got := as[api.WriteResult](t, h.putWith(t, "job", token(lease, 1), header), http.StatusCreated)
	request := named(t, received, id, "PUT /v1/resources/{resource}/records/{key}")
	write := named(t, received, id, "write")
	batch := named(t, received, id, "write batch")
	statement := named(t, received, id, "query fence.write_one")
	if request.ParentID != "00000000000000aa" || write.ParentID != request.SpanID || batch.ParentID != write.SpanID ||
		statement.ParentID != batch.SpanID {
		t.Errorf("each span must be the parent of the next: %+v", []otlptest.Span{request, write, batch, statement})
	}
	if !request.Server || !slices.Equal(batch.Links, []string{write.SpanID}) {
		t.Errorf("the request %+v must be a server span, and the batch %+v must link the write", request, batch)
	}
	expectAttributes(t, request, map[string]string{
		"http.request.method": "PUT", "http.route": "/v1/resources/{resource}/records/{key}",
		"http.response.status_code": "201", "url.path": "/v1/resources/job/records/k", "fencegate.resource": "job",
		"fencegate.key": "k", "client.address": "127.0.0.1",
	})
	expectAttributes(t, write, map[string]string{
		"fencegate.code": "accepted", "fencegate.fencing_token": fmt.Sprint(lease.FencingToken), "fencegate.sequence": "1",
		"fencegate.resource": "job", "fencegate.version": fmt.Sprint(got.Version), "fencegate.replayed": "false",
	})
	expectAttributes(t, batch, map[string]string{"fencegate.batch.writes": "1", "fencegate.batch.lane": "quick"})
}

func expectAttributes(t *testing.T, span otlptest.Span, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if span.Attributes[key] != value {
			t.Errorf("%s: %s is %q, want %q", span.Name, key, span.Attributes[key], value)
		}
	}
	if span.Failed {
		t.Errorf("the span %s failed, want success: %s", span.Name, span.Status)
	}
}

// The span of a rejected write did not fail. That of a write without a database did.
func TestTraceOfRejections(t *testing.T) {
	h, received := newTraced(t, 0, Config{}, store.Tracing{})
	lease := h.acquire(t, "job", "w")
	h.release(t, lease)
	h.acquire(t, "job", "w")
	stale := map[string]string{"fencegate.code": "token_stale", "fencegate.reason": "superseded"}
	header, id := traceparent(1, true)
	expectProblem(t, h.putWith(t, "job", token(lease, 1), header), api.CodeTokenStale)
	for _, name := range []string{"PUT /v1/resources/{resource}/records/{key}", "write"} {
		expectAttributes(t, named(t, received, id, name), stale)
	}
	await.True(t, "the zombie is refused early", func() bool {
		expectProblem(t, h.put(t, lease, 2, "v"), api.CodeTokenStale)
		return h.engine.RefusedEarly() > 0
	})
	header, early := traceparent(2, true)
	expectProblem(t, h.putWith(t, "job", token(lease, 1), header), api.CodeTokenStale)
	write := named(t, received, early, "write")
	expectAttributes(t, write, stale)
	for _, span := range received.Spans() {
		if span.ParentID == write.SpanID {
			t.Errorf("an early refusal has the batch %+v, want none", span)
		}
	}

	h.exec(t, "alter function fence.write_one rename to write_none")
	newest := h.acquire(t, "other", "w")
	header, id = traceparent(3, true)
	expectUnavailable(t, h.putWith(t, "other", token(newest, 1), header), api.OutcomeNotApplied)
	for _, name := range []string{"PUT /v1/resources/{resource}/records/{key}", "write", "write batch"} {
		if span := named(t, received, id, name); !span.Failed {
			t.Errorf("the span %s did not fail: %+v", name, span)
		}
	}
}

// A client that began the trace decides whether it is sampled. Probes and files are not traced.
func TestSampling(t *testing.T) {
	h, received := newTraced(t, 0, Config{}, store.Tracing{})
	lease := h.acquire(t, "job", "w") // the gateway begins this trace, with a ratio of 0
	unsampled, _ := traceparent(1, false)
	as[api.WriteResult](t, h.putWith(t, "job", token(lease, 1), unsampled), http.StatusCreated)
	sampled, id := traceparent(2, true)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.yaml", "/", "/ui/base.css"} {
		if got := h.get(t, path, sampled); got.status != http.StatusOK {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	for _, broken := range []string{
		"traceparent: 00-zz", "traceparent: ", "traceparent: 00-" + strings.Repeat("0", 32) + "-00000000000000aa-01",
	} {
		as[api.Lock](t, h.get(t, "/v1/locks/job", broken), http.StatusOK)
	}
	as[api.Lock](t, h.get(t, "/v1/locks/job", sampled), http.StatusOK)
	request := named(t, received, id, "GET /v1/locks/{lock}")
	for _, span := range received.Spans() {
		if span.TraceID != id || span.Server && span.SpanID != request.SpanID {
			t.Errorf("the span %+v was sent, want only those of the sampled request", span)
		}
	}
}

// No span has the name of a lock in its own name, and with LeaveOutNames none has it at all. A request with invalid
// UTF-8 loses no spans.
func TestTraceNames(t *testing.T) {
	for _, leaveOut := range []bool{false, true} {
		h, received := newTraced(t, 1, Config{}, store.Tracing{LeaveOutNames: leaveOut})
		lease := h.acquire(t, "hidden", "w")
		as[api.WriteResult](t, h.put(t, lease, 1, "v"), http.StatusCreated)
		verdicts := h.bulk(t, putLine(lease, 2, "hidden-key", "1"))
		as[api.Locks](t, h.get(t, "/v1/locks?prefix=hidden"), http.StatusOK)
		expectProblem(t, h.get(t, "/v1/locks/hidden%ff"), api.CodeInvalidName)
		expectProblem(t, h.get(t, "/hidden%ff", "User-Agent: \xff\xfe"), api.CodeNotFound)
		header, id := traceparent(9, true)
		as[api.Lock](t, h.get(t, "/v1/locks/hidden", header), http.StatusOK)
		named(t, received, id, "GET /v1/locks/{lock}")
		received.Await(t, "the request without a route", func(s otlptest.Span) bool {
			return s.Name == "GET" && s.Attributes["fencegate.code"] == "not_found"
		})
		for _, span := range received.Spans() {
			if strings.Contains(span.Name, "hidden") {
				t.Errorf("the name of the span %+v has the name of a lock", span)
			}
		}
		if shown := bytes.Contains(received.Raw(), []byte("hidden")); shown == leaveOut || len(verdicts) != 1 {
			t.Errorf("LeaveOutNames is %v, and spans have names: %v (%d verdicts)", leaveOut, shown, len(verdicts))
		}
	}
}

// An array of writes has spans for a bounded number of them.
func TestTraceOfBulk(t *testing.T) {
	h, received := newTraced(t, 1, Config{}, store.Tracing{})
	lease := h.acquire(t, "job", "w")
	var lines strings.Builder
	const count = 1000
	for i := range count {
		lines.WriteString(putLine(lease, int64(i)+1, "k", "1"))
	}
	verdicts := h.bulk(t, lines.String())
	request := received.Await(t, "the array of writes", func(s otlptest.Span) bool { return s.Name == "POST /v1/writes" })
	spanned, batches := 0, 0
	for _, span := range received.Spans() {
		switch {
		case span.Name == "write" && span.ParentID == request.SpanID:
			spanned++
		case span.Name == "write batch":
			batches++
			if len(span.Links) == 0 || len(span.Links) > 64 {
				t.Errorf("a batch has %d links, want 1 to 64", len(span.Links))
			}
		}
	}
	if len(verdicts) != count || spanned != writes.BulkSpansMax || batches == 0 {
		t.Errorf("%d writes have %d spans and %d batches, want %d spans",
			len(verdicts), spanned, batches, writes.BulkSpansMax)
	}
}
