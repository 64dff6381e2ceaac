package gateway

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/writes"
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

// The spans of a rejected write did not fail. Those of a write without a database did.
func TestTraceOfRejections(t *testing.T) {
	h, received := newTraced(t, 0, Config{}, store.Tracing{})
	lease := h.acquire(t, "job", "w")
	h.release(t, lease)
	header, id := traceparent(1, true)
	expectProblem(t, h.putWith(t, "job", token(lease, 1), header), api.CodeTokenStale)
	h.exec(t, "alter function fence.write_one rename to write_none")
	newest := h.acquire(t, "other", "w")
	header, failed := traceparent(2, true)
	expectUnavailable(t, h.putWith(t, "other", token(newest, 1), header), api.OutcomeNotApplied)
	for _, name := range []string{"PUT /v1/resources/{resource}/records/{key}", "write"} {
		expectAttributes(t, named(t, received, id, name),
			map[string]string{"fencegate.code": "token_stale", "fencegate.reason": "released"})
		if span := named(t, received, failed, name); !span.Failed {
			t.Errorf("the span %s did not fail: %+v", name, span)
		}
	}
}

// A client that began the trace decides whether it is sampled. Probes and files are not traced. No span has the name of
// a lock in its own name, and with LeaveOutNames none has it at all. A request with invalid UTF-8 loses no spans.
func TestSampling(t *testing.T) {
	for _, leaveOut := range []bool{false, true} {
		h, received := newTraced(t, 0, Config{}, store.Tracing{LeaveOutNames: leaveOut})
		lease := h.acquire(t, "hidden", "w") // the gateway begins this trace, with a ratio of 0
		unsampled, _ := traceparent(1, false)
		as[api.WriteResult](t, h.putWith(t, "hidden", token(lease, 1), unsampled), http.StatusCreated)
		as[api.Lock](t, h.get(t, "/v1/locks/hidden", "traceparent: 00-zz"), http.StatusOK)
		sampled, id := traceparent(2, true)
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.yaml", "/", "/ui/base.css"} {
			if got := h.get(t, path, sampled); got.status != http.StatusOK {
				t.Errorf("%s: %d", path, got.status)
			}
		}
		as[api.WriteResult](t, h.putWith(t, "hidden", token(lease, 2), sampled), http.StatusOK)
		as[api.Locks](t, h.get(t, "/v1/locks?prefix=hidden", sampled), http.StatusOK)
		expectProblem(t, h.get(t, "/hidden%ff", sampled, "User-Agent: \xff\xfe"), api.CodeNotFound)
		servers := map[string]bool{}
		for _, name := range []string{"PUT /v1/resources/{resource}/records/{key}", "GET /v1/locks", "GET"} {
			servers[named(t, received, id, name).SpanID] = true
		}
		for _, span := range received.Spans() {
			if span.TraceID != id || span.Server && !servers[span.SpanID] || strings.Contains(span.Name, "hidden") {
				t.Errorf("the span %+v was sent, want only those of the sampled requests, without the name", span)
			}
		}
		if shown := bytes.Contains(received.Raw(), []byte("hidden")); shown == leaveOut {
			t.Errorf("LeaveOutNames is %v, and spans have names: %v", leaveOut, shown)
		}
	}
}

// An array of writes has spans for a bounded number of them.
func TestTraceOfBulk(t *testing.T) {
	h, received := newTraced(t, 1, Config{}, store.Tracing{})
	lease := h.acquire(t, "job", "w")
	var lines strings.Builder
	for i := range int64(2 * writes.BulkSpansMax) {
		lines.WriteString(putLine(lease, i+1, "k", "1"))
	}
	h.bulk(t, lines.String())
	request := received.Await(t, "the array of writes", func(s otlptest.Span) bool { return s.Name == "POST /v1/writes" })
	spanned := 0
	for _, span := range received.Spans() {
		if span.Name == "write" && span.ParentID == request.SpanID {
			spanned++
		}
	}
	if spanned != writes.BulkSpansMax {
		t.Errorf("%d writes have %d spans, want %d", 2*writes.BulkSpansMax, spanned, writes.BulkSpansMax)
	}
}
