package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/writes"
	"github.com/fencegate/fencegate/internal/testenv/await"
)

const (
	budgetBody  = 64 << 10
	budgetTotal = 4 * budgetBody
)

// newBudgeted is a gateway with room for four long bodies. Those without progress for that long give way to others.
func newBudgeted(t testing.TB, stalled time.Duration) (*harness, api.Lease) {
	t.Helper()
	h, _, lease := newServed(t, Config{BodyTimeout: time.Hour, BodyBytesMax: budgetBody, BodiesBytesMax: budgetTotal})
	h.setStalled(stalled)
	return h, lease
}

func (h *harness) setStalled(stalled time.Duration) {
	h.gateway.Bodies.SetStalled(stalled)
}

func (h *harness) bodyBytes() int64 {
	return h.gateway.Bodies.Bytes()
}

// stall sends most of a body, from an address of its own for each caller. If there is room for it, stall returns when
// the gateway holds it.
func (h *harness) stall(t testing.TB, lease api.Lease, caller int, chunked bool) raw {
	t.Helper()
	before := h.bodyBytes()
	body := strings.Repeat("x", budgetBody*3/4)
	framing := fmt.Sprintf("Content-Length: %d\n\n", budgetBody)
	if chunked {
		framing = fmt.Sprintf("Transfer-Encoding: chunked\n\n%x\n", len(body))
	}
	connection := h.wireFrom(t, callerAddress(caller), putOnWire+token(lease, 2)+"\n"+framing+body)
	if before < budgetTotal-budgetBody {
		await.True(t, "the gateway holds the body", func() bool { return h.bodyBytes() >= before+budgetBody-endpoint.BodyFreeBytes })
	}
	return connection
}

// callerAddress is an address of the loopback network. That of other clients of tests is 127.0.0.1.
func callerAddress(caller int) string { return fmt.Sprintf("127.0.0.%d", 2+caller) }

// All bodies together are bounded: one more is refused, but short ones pass.
func TestStalledBodiesAreBounded(t *testing.T) {
	h, lease := newBudgeted(t, time.Hour)
	for i := range 4 {
		h.stall(t, lease, i/2, i%2 == 0)
	}
	for i := range 4 {
		got, closed := h.stall(t, lease, 2+i, i%2 == 0).answer(t)
		problem := expectUnavailable(t, got, api.OutcomeNotApplied)
		if !strings.Contains(problem.Detail, "--bodies-bytes-max") || !closed {
			t.Errorf("want --bodies-bytes-max and the end of the connection (%v), got %s", closed, got.body)
		}
	}
	if used := h.bodyBytes(); used > budgetTotal {
		t.Errorf("the gateway holds %d bytes, the limit is %d", used, budgetTotal)
	}
	as[api.WriteResult](t, h.put(t, lease, 2, strings.Repeat("x", endpoint.BodyFreeBytes)), http.StatusOK)
	h.acquire(t, "other", "worker")
}

// A stalled body gives way to one that arrives: the stalled one is refused, and the other is stored.
func TestStalledBodiesGiveWay(t *testing.T) {
	h, lease := newBudgeted(t, 0)
	first := h.stall(t, lease, 0, false)
	for i := range 3 {
		h.stall(t, lease, 1+i, true)
	}
	as[api.WriteResult](t, h.put(t, lease, 2, strings.Repeat("x", budgetBody)), http.StatusOK)
	got, _ := first.answer(t)
	expectProblem(t, got, api.CodeUnavailable)
	await.True(t, "the bytes of the stored body are free", func() bool { return h.bodyBytes() <= 3*(budgetBody+1) })
}

// TestBodiesOfOneCaller checks that one caller uses no more than half of the room for bodies, by whatever route, that
// others are served meanwhile, and that its share is free again when its bodies have ended. Its stalled bodies give way
// to its own.
func TestBodiesOfOneCaller(t *testing.T) {
	const hostile = 0
	h, lease := newBudgeted(t, time.Hour)
	long := strings.Repeat("x", budgetBody)
	put := func(sequence int64) raw {
		return h.wireFrom(t, callerAddress(hostile), fmt.Sprintf("%s%s\nContent-Length: %d\n\n%s",
			putOnWire, token(lease, sequence), budgetBody, long))
	}
	stalled := []raw{h.stall(t, lease, hostile, false), h.stall(t, lease, hostile, true)}
	got, closed := put(2).answer(t)
	problem := expectProblem(t, got, api.CodeRateLimited)
	if !strings.Contains(problem.Detail, "half of --bodies-bytes-max") || got.header.Get("Retry-After") == "" || !closed {
		t.Errorf("want half of --bodies-bytes-max, a pause and the end of the connection (%v), got %s", closed, got.body)
	}
	got, _ = h.wireFrom(t, callerAddress(hostile), fmt.Sprintf("POST /v1/sign-in%sContent-Type: application/json\n"+
		"Content-Length: %d\n\n%s", onWire, budgetBody, long)).answer(t)
	expectProblem(t, got, api.CodeRateLimited) // a public route counts for the address
	line := putLine(lease, 2, "k", `"`+strings.Repeat("x", writes.BulkBufferBytes)+`"`)
	got, _ = h.wireFrom(t, callerAddress(hostile), fmt.Sprintf("%sContent-Length: %d\n\n%s", bulkHead, len(line),
		line)).answer(t)
	if text := string(got.body); !strings.Contains(text, `{"end":"idle","next_line":1}`) {
		t.Errorf("the stream ended with %s, want idle before line 1", text)
	}
	as[api.WriteResult](t, h.put(t, lease, 2, long), http.StatusOK)
	_ = stalled[0].Close()
	awaitOne := func() {
		t.Helper()
		await.True(t, "the gateway holds one body", func() bool { return h.bodyBytes() <= budgetBody })
	}
	awaitOne()
	got, _ = put(3).answer(t)
	as[api.WriteResult](t, got, http.StatusOK)

	awaitOne()
	h.setStalled(0)
	stalled = append(stalled, h.stall(t, lease, hostile, true))
	got, _ = put(4).answer(t)
	as[api.WriteResult](t, got, http.StatusOK)
	got, _ = stalled[1].answer(t)
	expectProblem(t, got, api.CodeRateLimited)
}

// A stalled line of a stream of writes gives way, too. Its stream ends as idle, and the line is not taken.
func TestStalledLinesGiveWay(t *testing.T) {
	h, lease := newBudgeted(t, 0)
	// The first bulkBufferBytes of a line are not counted.
	line := strings.TrimSuffix(putLine(lease, 2, "k", `"`+strings.Repeat("x", writes.BulkBufferBytes)), "}\n")
	connection := h.wire(t, fmt.Sprintf("%sTransfer-Encoding: chunked\n\n%x\n%s", bulkHead, len(line), line))
	await.True(t, "the gateway holds the line", func() bool { return h.bodyBytes() > 0 })
	for i := range 4 {
		h.stall(t, lease, i, true)
	}
	got, _ := connection.answer(t)
	if text := string(got.body); !strings.Contains(text, `{"end":"idle","next_line":1}`) {
		t.Errorf("the stream ended with %s, want idle before line 1", text)
	}
}

// After each request its bytes are free, however it ended.
func TestBodiesAreFreed(t *testing.T) {
	h, lease := newBudgeted(t, time.Hour)
	long := strings.Repeat("x", budgetBody)
	as[api.WriteResult](t, h.put(t, lease, 2, long), http.StatusOK)
	expectProblem(t, h.put(t, lease, 2, long+"x"), api.CodeTooLarge)
	expectProblem(t, h.put(t, lease, 1, long), api.CodeTokenStale)
	expectProblem(t, h.post(t, "/v1/transactions", long), api.CodeInvalidRequest)
	connection := h.wire(t, putOnWire+token(lease, 2)+"\nContent-Length: 60000\n\n"+strings.Repeat("x", 50_000))
	await.True(t, "the gateway holds the body", func() bool { return h.bodyBytes() > 0 })
	_ = connection.Close()
	await.True(t, "no bytes are held", func() bool { return h.bodyBytes() == 0 })
}

// A waiting acquire holds no bytes of its body.
func TestWaitsHoldNoBodies(t *testing.T) {
	h, lease := newBudgeted(t, time.Hour)
	padded := encode(api.AcquireRequest{OwnerID: "waiter", WaitMS: 600_000}) + strings.Repeat(" ", budgetBody/2)
	waiter := inBackground(func() answer { return h.post(t, lockPath("job", "/acquire"), padded) })
	h.awaitQueue(t, "job", "waiter")
	if held := h.bodyBytes(); held != 0 {
		t.Errorf("the waiting acquire holds %d bytes, want none", held)
	}
	h.release(t, lease)
	as[api.Lease](t, <-waiter, http.StatusOK)
}
