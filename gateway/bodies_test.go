package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
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
		late, missing := http.StatusRequestTimeout, http.StatusNotFound
		type exchange struct {
			request    string
			status     int
			code       api.Code
			connection raw
		}
		exchanges := []exchange{
			{request: putOnWire + fenced + "Content-Length: 10\n\nhalf", status: late},
			{request: putOnWire + fenced + "Content-Length: 10\n\n", status: late},
			{request: putOnWire + fenced + "Transfer-Encoding: chunked\n\n4\nhalf\n", status: late},
			{request: "POST /v1/locks/new/acquire" + onWire + json + "Content-Length: 100\n\n{\"owner_id\":", status: late},
			{
				request: "POST /v1/locks//acquire" + onWire + json + "Content-Length: 100\n\n{",
				status:  http.StatusBadRequest, code: api.CodeInvalidName,
			},
			{request: "POST /nowhere" + onWire + "Content-Length: 100\n\n{", status: missing, code: api.CodeNotFound},
			{
				request: putOnWire + "Fencing-Token: x\nContent-Length: 100\n\n{",
				status:  http.StatusBadRequest, code: api.CodeInvalidToken,
			},
			{request: "PATCH /v1/locks" + onWire + "Transfer-Encoding: chunked\n\n", status: http.StatusMethodNotAllowed},
			{
				request: "DELETE /v1/resources/job/records/none" + onWire + fenced + "Content-Length: 10\n\n",
				status:  missing, code: api.CodeNotFound,
			},
			{
				request: "GET /v1/resources/job/records/none" + onWire + "Content-Length: 10\n\n",
				status:  missing, code: api.CodeNotFound,
			},
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

// Requests whose clients are gone before their bodies arrived change nothing, and end before the server does.
func TestClientGoneDuringItsBody(t *testing.T) {
	h, server, lease := newServed(t, Config{})
	h.unchanged(t, func() {
		for range 20 {
			_ = h.wire(t, putOnWire+token(lease, 2)+"\nContent-Length: 10\n\nhalf").Close()
		}
		server.stop()
		server.expectEnd(t)
	})
}
