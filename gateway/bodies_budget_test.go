package gateway

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

const (
	budgetBody  = 64 << 10
	budgetTotal = 4 * budgetBody
)

// newBudgeted has room for less than five long bodies.
func newBudgeted(t *testing.T, stalled time.Duration) (*harness, api.Lease) {
	t.Helper()
	h, _, lease := newServed(t, Config{BodyTimeout: time.Hour, BodyBytesMax: budgetBody, BodiesBytesMax: budgetTotal})
	h.gateway.bodies.mu.Lock()
	defer h.gateway.bodies.mu.Unlock()
	h.gateway.bodies.stalled = stalled
	return h, lease
}

func (h *harness) bodyBytes() int64 {
	h.gateway.bodies.mu.Lock()
	defer h.gateway.bodies.mu.Unlock()
	return h.gateway.bodies.used
}

// stall sends most of a body and no more. Chunked or not, it returns when the gateway holds it, or has refused it.
func (h *harness) stall(t *testing.T, lease api.Lease, chunked bool) *bufio.Reader {
	t.Helper()
	before := h.bodyBytes()
	body := strings.Repeat("x", budgetBody*3/4)
	framing := fmt.Sprintf("Content-Length: %d\n\n", budgetBody)
	if chunked {
		framing = fmt.Sprintf("Transfer-Encoding: chunked\n\n%x\n", len(body))
	}
	connection := h.wire(t, "PUT /v1/resources/job/records/k HTTP/1.1\nHost: gateway\n"+token(lease, 2)+"\n"+framing+body)
	if before < budgetTotal-budgetBody {
		eventually(t, "the body is held", func() bool { return h.bodyBytes() >= before+budgetBody-bodyFreeBytes })
	}
	return bufio.NewReader(connection)
}

// All bodies together take no more memory than they may: one more is refused, and short ones pass.
func TestStalledBodiesAreBounded(t *testing.T) {
	h, lease := newBudgeted(t, time.Hour)
	for i := range 4 {
		h.stall(t, lease, i%2 == 0)
	}
	for i := range 4 {
		got, closed := heardBy(t, h.stall(t, lease, i%2 == 0))
		if problem := refused(t, got, api.CodeUnavailable); problem.Outcome != api.OutcomeNotApplied || !strings.Contains(problem.Detail, "--bodies-bytes-max") || !closed {
			t.Errorf("refused as %s, the connection ends: %v", got.body, closed)
		}
	}
	if used := h.bodyBytes(); used > budgetTotal {
		t.Errorf("%d bytes are held, the limit is %d", used, budgetTotal)
	}
	as[api.WriteResult](t, h.put(t, lease, 2, strings.Repeat("x", bodyFreeBytes)), http.StatusOK)
	h.acquire(t, "other", "worker")
}

// A body that arrives takes the place of one that has stalled: that is refused, the other is stored.
func TestStalledBodiesGiveWay(t *testing.T) {
	h, lease := newBudgeted(t, 0)
	first := h.stall(t, lease, false)
	for range 3 {
		h.stall(t, lease, true)
	}
	as[api.WriteResult](t, h.put(t, lease, 2, strings.Repeat("x", budgetBody)), http.StatusOK)
	got, _ := heardBy(t, first)
	refused(t, got, api.CodeUnavailable)
	eventually(t, "what was stored is not counted any more", func() bool { return h.bodyBytes() <= 3*(budgetBody+1) })
}

// A line of a bulk stream counts as well; the stream that gives way ends as one whose line did not arrive, and nothing of the line is taken.
func TestStalledLinesGiveWay(t *testing.T) {
	h, lease := newBudgeted(t, 0)
	// Its buffer begins with 64 KiB that are not counted.
	line := fmt.Sprintf(`{"op":"put","resource":"job","key":"k","fencing_token":%d,"sequence":2,"value":"%s`, lease.FencingToken, strings.Repeat("x", bulkBufferBytes))
	connection := h.wire(t, fmt.Sprintf("POST /v1/writes HTTP/1.1\nHost: gateway\nContent-Type: %s\nTransfer-Encoding: chunked\n\n%x\n%s", api.BulkContentType, len(line), line))
	eventually(t, "the line is held", func() bool { return h.bodyBytes() > 0 })
	for range 4 {
		h.stall(t, lease, true)
	}
	got, _ := heardBy(t, bufio.NewReader(connection))
	if text := string(got.body); !strings.Contains(text, `{"end":"idle","next_line":1}`) {
		t.Errorf("the stream ended with %s", text)
	}
}

// Whatever becomes of the requests, nothing stays counted.
func TestBodiesAreFreed(t *testing.T) {
	h, lease := newBudgeted(t, time.Hour)
	long := strings.Repeat("x", budgetBody)
	as[api.WriteResult](t, h.put(t, lease, 2, long), http.StatusOK)
	refused(t, h.put(t, lease, 2, long+"x"), api.CodeTooLarge)
	refused(t, h.put(t, lease, 1, long), api.CodeTokenStale)
	refused(t, h.post(t, "/v1/transactions", long), api.CodeInvalidRequest)
	connection := h.wire(t, "PUT /v1/resources/job/records/k HTTP/1.1\nHost: gateway\n"+token(lease, 2)+"\nContent-Length: 60000\n\n"+strings.Repeat("x", 50000))
	eventually(t, "the body is held", func() bool { return h.bodyBytes() > 0 })
	_ = connection.Close()
	eventually(t, "nothing is held", func() bool { return h.bodyBytes() == 0 })
}

// Who waits for a lock, or for the answer to a refusal, holds no bytes, however long the request was.
func TestWaitsHoldNoBodies(t *testing.T) {
	h, lease := newBudgeted(t, time.Hour)
	padded := encode(api.AcquireRequest{OwnerID: "waiter", WaitMS: 600_000}) + strings.Repeat(" ", budgetBody/2)
	waiter := inBackground(func() answer { return h.post(t, lockPath("job", "/acquire"), padded) })
	h.awaitQueue(t, "job", "waiter")
	if held := h.bodyBytes(); held != 0 {
		t.Errorf("one who waits holds %d bytes", held)
	}
	h.release(t, lease)
	as[api.Lease](t, <-waiter, http.StatusOK)
}
