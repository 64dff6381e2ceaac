package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	bodyLimit = 2048
	onWire    = " HTTP/1.1\nHost: gateway\n"
	putOnWire = "PUT /v1/resources/job/records/k" + onWire
)

// A body of BodyBytesMax bytes is accepted, and one of a byte more is refused.
func TestBodyLimit(t *testing.T) {
	h, lease := newBusyHarness(t, Config{BodyBytesMax: bodyLimit})
	fits, over := strings.Repeat("x", bodyLimit), strings.Repeat("x", bodyLimit+1)
	as[api.WriteResult](t, h.put(t, lease, 2, fits), http.StatusOK)
	pad := func(body string, size int) string { return body + strings.Repeat(" ", size-len(body)) }
	put := invalidInput{method: http.MethodPut, path: recordPath("job", "k"), body: over,
		headers: []string{token(lease, 3)}}
	far := put
	far.body = strings.Repeat(over, 1000)
	inputs := []invalidInput{put, far}
	for path, body := range map[string]string{
		"/v1/locks/new/acquire": `{"owner_id":"w"}`, "/v1/locks/job/renew": refOf(lease),
		"/v1/transactions": transaction(lease, 3), "/v1/locks/new/release": refOf(lease),
	} {
		inputs = append(inputs, invalidInput{path: path, body: pad(body, bodyLimit+1), headers: []string{jsonType}})
	}
	h.expectRefusals(t, changeEach(inputs, func(i *invalidInput) {
		i.code, i.status = api.CodeTooLarge, http.StatusRequestEntityTooLarge
		i.detail = "2048 bytes (--body-bytes-max)"
	}))
	as[api.Lease](t, h.post(t, "/v1/locks/new/acquire", pad(`{"owner_id":"w"}`, bodyLimit)), http.StatusOK)
}

// servedBoth runs a test on a gateway behind another http.Server, and on one that serves by itself.
func servedBoth(t *testing.T, config Config, test func(t *testing.T, h *harness, lease api.Lease)) {
	t.Helper()
	t.Run("another server", func(t *testing.T) {
		h, lease := newBusyHarness(t, config)
		test(t, h, lease)
	})
	t.Run("Serve", func(t *testing.T) {
		h, _, lease := newServed(t, config)
		test(t, h, lease)
	})
}

// A body that does not arrive within BodyTimeout ends the request and the connection, whether or not a handler reads
// it.
func TestSlowBodies(t *testing.T) {
	servedBoth(t, Config{BodyTimeout: 200 * time.Millisecond}, func(t *testing.T, h *harness, lease api.Lease) {
		fenced, json := token(lease, 2)+"\n", jsonType+"\n"
		const late = http.StatusRequestTimeout
		type exchange struct {
			request    string
			status     int
			code       api.Code
			connection raw
		}
		exchanges := []exchange{
			{request: putOnWire + fenced + "Content-Length: 10\n\nhalf", status: late},
			{request: putOnWire + fenced + "Transfer-Encoding: chunked\n\n4\nhalf\n", status: late},
			{request: "POST /v1/locks/new/acquire" + onWire + json + "Content-Length: 100\n\n{\"owner_id\":", status: late},
			{request: "POST /nowhere" + onWire + "Content-Length: 100\n\n{", status: http.StatusNotFound, code: api.CodeNotFound},
		}
		h.unchanged(t, func() {
			for i := range exchanges { // at the same time: each takes as long as the timeout
				exchanges[i].connection = h.wire(t, exchanges[i].request)
			}
			for _, e := range exchanges {
				got, closed := e.connection.answer(t)
				code := e.code
				if code == "" {
					code = api.CodeInvalidRequest
				}
				if expectProblem(t, got, code); got.status != e.status || !closed {
					t.Errorf("%q: status %d, closed %v, want %d and closed: %s", e.request, got.status, closed, e.status, got.body)
				}
			}
		})
	})
}

// The timeout of a body over HTTP/2 ends its request only.
func TestSlowBodyOverHTTP2(t *testing.T) {
	servedBoth(t, Config{BodyTimeout: 200 * time.Millisecond}, func(t *testing.T, h *harness, lease api.Lease) {
		h.http = newHTTPClient(t, true)
		h.unchanged(t, func() {
			body, half := io.Pipe()
			defer half.Close()
			go func() { _, _ = half.Write([]byte("half")) }()
			got, err := h.tryFor(t.Context(), t, http.MethodPut, recordPath("job", "k"), body, token(lease, 2))
			if err != nil {
				t.Fatal(err)
			}
			if expectProblem(t, got, api.CodeInvalidRequest); got.status != http.StatusRequestTimeout || got.proto != 2 {
				t.Errorf("answered %d over HTTP/%d, want 408 over HTTP/2: %s", got.status, got.proto, got.body)
			}
		})
	})
}

// BodyTimeout does not bound the work on a request. The connection stays usable.
func TestSlowWork(t *testing.T) {
	const timeout = time.Second
	servedBoth(t, Config{BodyTimeout: timeout}, func(t *testing.T, h *harness, lease api.Lease) {
		unlock := h.holdFence(t, "job")
		connection := h.wire(t, putOnWire+token(lease, 2)+"\nContent-Length: 3\n\nnew")
		h.awaitWaiting(t, 1)
		time.Sleep(timeout * 5 / 4) // a timeout that must not happen
		unlock()
		got, closed := connection.answer(t)
		if as[api.WriteResult](t, got, http.StatusOK); closed {
			t.Error("the answer announces the end of the connection")
		}
		connection.write(t, "GET /v1/resources/job/records/k HTTP/1.1\r\nHost: gateway\r\n\r\n")
		if got, _ := connection.answer(t); string(got.body) != "new" {
			t.Errorf("the second answer on the connection is %d %q, want the record new", got.status, got.body)
		}
	})
}

// A body that breaks off is refused, and nothing is written.
func TestTruncatedBodies(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	put := putOnWire + token(lease, 2) + "\n"
	h.unchanged(t, func() {
		for _, request := range []string{
			put + "Content-Length: 10\n\nhalf",
			put + "Transfer-Encoding: chunked\n\n4\nhalf\n",
			"POST /v1/locks/new/acquire" + onWire + jsonType + "\nContent-Length: 100\n\n{\"owner_id\":\"w\"}",
		} {
			connection := h.wire(t, request)
			connection.closeWrite(t)
			got, _ := connection.answer(t)
			if problem := expectProblem(t, got, api.CodeInvalidRequest); !strings.Contains(problem.Detail, "broke off") {
				t.Errorf("%q: the detail is %q, want \"broke off\" in it", request, problem.Detail)
			}
		}
		got, _ := h.wire(t, put+"Transfer-Encoding: chunked\n\nxyz\nhalf\n").answer(t)
		expectProblem(t, got, api.CodeInvalidRequest)
	})
}

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
