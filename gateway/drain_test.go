package gateway

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/writes"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/otlptest"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// A drain ends waits and streams, so that clients continue at another gateway. All other requests are answered. After
// its end, the gateway is as before.
func TestDrain(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h, s, lease := newServed(t, Config{Name: "drained", ShutdownTimeout: time.Minute})
		h.http = newHTTPClient(t, http2)
		elsewhere := h.another(t, Config{})
		stream := h.open(t, lockPath("other", "/watch"))
		stream.next(t, api.EventState)
		nameless := h.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "nameless"})
		moving := api.AcquireRequest{OwnerID: "moving", RequestID: new("r")}
		first := h.wait(t, "job", moving)
		h.awaitQueue(t, "job", "nameless", "moving")
		second := elsewhere.wait(t, "job", api.AcquireRequest{OwnerID: "second"})
		h.awaitQueue(t, "job", "nameless", "moving", "second")

		if state := as[api.Drain](t, h.send(t, http.MethodPut, "/v1/drain", ""), http.StatusOK); !state.Draining {
			t.Errorf("a drain was answered with %+v", state)
		}
		expectUnavailable(t, <-nameless, api.OutcomeNotApplied)
		expectUnavailable(t, <-first, api.OutcomeNotApplied)
		stream.endedFor(t, endpoint.EndShutdown)
		expectReason(t, h.get(t, "/readyz"), api.CodeUnavailable, "draining")
		expectUnavailable(t, <-h.wait(t, "job", moving), api.OutcomeNotApplied)
		as[api.WriteResult](t, h.put(t, lease, 2, "while it drains"), http.StatusOK)
		if g := h.overview(t, "").Gateways[0]; g.State != api.GatewayDraining {
			t.Errorf("the drained gateway is shown as %+v", g)
		}
		h.sample(t)
		await.True(t, "another gateway shows that it drains", func() bool {
			return elsewhere.overview(t, "").Gateways[0].State == api.GatewayDraining
		})
		await.True(t, "nobody waits at the drained gateway", func() bool {
			state := as[api.Drain](t, h.get(t, "/v1/drain"), http.StatusOK)
			return state == api.Drain{Draining: true}
		})
		h.awaitQueue(t, "job", "moving", "second") // its place is kept
		moved := elsewhere.wait(t, "job", moving)
		await.True(t, "both wait elsewhere", func() bool { return elsewhere.engine.Waiting() == 2 })
		h.release(t, lease)
		lease = granted(t, moved)
		elsewhere.awaitQueue(t, "job", "second")
		elsewhere.release(t, lease)
		lease = granted(t, second)

		as[api.Drain](t, h.delete(t, "/v1/drain"), http.StatusOK)
		as[api.Health](t, h.get(t, "/readyz"), http.StatusOK)
		again := h.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "again", RequestID: new("again")})
		elsewhere.release(t, lease)
		granted(t, again)
		s.stop()
		s.expectEnd(t)
	})
}

// The place of a waiter that does not come back is kept for a moment only.
func TestDrainForgetsWhoDoesNotMove(t *testing.T) {
	h, _, lease := newServed(t, Config{})
	elsewhere := h.another(t, Config{})
	gone := h.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "gone", RequestID: new("r")})
	next := elsewhere.wait(t, "job", api.AcquireRequest{OwnerID: "next"})
	h.awaitQueue(t, "job", "gone", "next")
	as[api.Drain](t, h.send(t, http.MethodPut, "/v1/drain", ""), http.StatusOK)
	expectUnavailable(t, <-gone, api.OutcomeNotApplied)
	h.release(t, lease)
	granted(t, next)
}

// A waiter that comes back to its gateway, whose drain has ended, keeps its place.
func TestDrainUndoneKeepsPlaces(t *testing.T) {
	h, _, lease := newServed(t, Config{})
	request := api.AcquireRequest{OwnerID: "w", RequestID: new("r")}
	refused := h.waitInQueue(t, "job", request)
	gone := h.wait(t, "job", api.AcquireRequest{OwnerID: "gone", RequestID: new("gone")})
	h.awaitQueue(t, "job", "w", "gone")
	as[api.Drain](t, h.send(t, http.MethodPut, "/v1/drain", ""), http.StatusOK)
	expectUnavailable(t, <-refused, api.OutcomeNotApplied)
	as[api.Drain](t, h.delete(t, "/v1/drain"), http.StatusOK)
	expectUnavailable(t, <-gone, api.OutcomeNotApplied)
	again := h.wait(t, "job", request)
	await.True(t, "it waits again", func() bool { return h.engine.Waiting() == 1 })
	h.awaitQueue(t, "job", "w") // the place of one that stays away is kept no longer
	h.release(t, lease)
	granted(t, again)
}

// A drain that is undone during the DrainDelay sends nobody away. The shutdown can't be undone.
func TestDrainUndone(t *testing.T) {
	h, s, lease := newServed(t, Config{DrainDelay: time.Hour, ShutdownTimeout: 2 * time.Hour})
	waiter := h.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "w"})
	staying := h.gateway.Staying()
	as[api.Drain](t, h.send(t, http.MethodPut, "/v1/drain", ""), http.StatusOK)
	expectReason(t, h.get(t, "/readyz"), api.CodeUnavailable, "draining")
	as[api.Drain](t, h.delete(t, "/v1/drain"), http.StatusOK)
	as[api.Health](t, h.get(t, "/readyz"), http.StatusOK)
	if h.gateway.Staying() != staying || staying.Err() != nil {
		t.Error("a drain that was undone in time ended the waits")
	}
	h.release(t, lease)
	granted(t, waiter)
	s.stop()
	await.True(t, "the gateway shuts down", h.gateway.Leaving.Load)
	expectUnavailable(t, h.delete(t, "/v1/drain"), api.OutcomeNotApplied)
	h.gateway.Drain() // the delay is over
	s.expectEnd(t)
}

// A gateway that is read-only answers reads, and refuses every request that would change something before it reads it.
func TestReadOnly(t *testing.T) {
	h, _, lease := newServed(t, Config{})
	as[api.WriteResult](t, h.put(t, lease, 2, "kept"), http.StatusOK)
	frozen := h.another(t, Config{ReadOnly: true, Terraform: true})
	refused := 0
	for route, rule := range accessRules {
		method, template, _ := strings.Cut(route, " ")
		if rule.IsPublic() || template == endpoint.DrainRoute || method == http.MethodGet || method == http.MethodHead {
			continue
		}
		refused++
		problem := expectReason(t, frozen.send(t, method, routePath(template, lease.Lock), "?"), api.CodeUnavailable, "gateway_read_only")
		if problem.Outcome != api.OutcomeNotApplied {
			t.Errorf("%s: the outcome is %s", route, problem.Outcome)
		}
	}
	if refused < 20 {
		t.Errorf("%d routes change something", refused)
	}
	if got := frozen.get(t, recordPath(lease.Lock, "k")); string(got.body) != "kept" {
		t.Errorf("the record is answered with %d %s", got.status, got.body)
	}
	as[api.Health](t, frozen.get(t, "/readyz"), http.StatusOK)
	frozen.open(t, lockPath(lease.Lock, "/watch")).next(t, api.EventState)
	h.release(t, lease)
}

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
