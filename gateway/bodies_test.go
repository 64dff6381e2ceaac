package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

const bodyLimit = 2048

func TestBodyLimit(t *testing.T) {
	h, lease := newBusyHarness(t, Config{BodyBytesMax: bodyLimit})
	fits, over := strings.Repeat("x", bodyLimit), strings.Repeat("x", bodyLimit+1)
	as[api.WriteResult](t, h.put(t, lease, 2, fits), http.StatusOK)
	var inputs []badInput
	for name, body := range map[string]string{"one byte over": over, "far over": strings.Repeat(over, 1000)} {
		inputs = append(inputs, badInput{name: name, method: http.MethodPut, path: recordPath("job", "k"), body: body, header: []string{token(lease, 3)},
			code: api.CodeTooLarge, status: http.StatusRequestEntityTooLarge, detail: "2048 bytes (--body-bytes-max)"})
	}
	pad := func(body string, size int) string { return body + strings.Repeat(" ", size-len(body)) }
	for path, body := range map[string]string{
		"/v1/locks/new/acquire": `{"owner_id":"w"}`, "/v1/locks/job/renew": refOf(lease), "/v1/transactions": transaction(lease, 3),
		"/v1/locks/new/release": refOf(lease),
	} {
		inputs = append(inputs, badInput{name: path, path: path, body: pad(body, bodyLimit+1), header: []string{jsonType},
			code: api.CodeTooLarge, status: http.StatusRequestEntityTooLarge, detail: "2048 bytes"})
	}
	h.refusedAll(t, inputs)
	as[api.Lease](t, h.post(t, "/v1/locks/new/acquire", pad(`{"owner_id":"w"}`, bodyLimit)), http.StatusOK)
}

// wire sends a request as it is written, over a connection of its own.
func (h *harness) wire(t *testing.T, request string) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(h.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if err := connection.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(connection, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	return connection
}

// heard reads one answer, and whether the gateway closed the connection after it.
func heard(t *testing.T, connection net.Conn) (got answer, closed bool) {
	t.Helper()
	return heardBy(t, bufio.NewReader(connection))
}

// heardBy is heard for a connection of which more is read.
func heardBy(t *testing.T, reader *bufio.Reader) (got answer, closed bool) {
	t.Helper()
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got = answer{request: "the request", status: response.StatusCode, header: response.Header}
	if got.body, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	if got.status >= http.StatusBadRequest {
		checkProblem(t, got)
	}
	return got, response.Close
}

// A body that does not come is not waited for, whoever would read it: the handler, or the server that drops it; be the server the gateway's own
// or another one.
func TestSlowBodies(t *testing.T) {
	config := Config{BodyTimeout: 200 * time.Millisecond}
	t.Run("served by another", func(t *testing.T) {
		h, lease := newBusyHarness(t, config)
		slowBodies(t, h, lease)
	})
	t.Run("served", func(t *testing.T) {
		h, _, lease := newServed(t, config)
		slowBodies(t, h, lease)
	})
}

func slowBodies(t *testing.T, h *harness, lease api.Lease) {
	t.Helper()
	put := "PUT /v1/resources/job/records/k HTTP/1.1\nHost: gateway\n"
	for _, slow := range []struct {
		name, request string
		status        int
		code          api.Code
	}{
		{"half a value", put + token(lease, 2) + "\nContent-Length: 10\n\nhalf", http.StatusRequestTimeout, api.CodeInvalidRequest},
		{"no value", put + token(lease, 2) + "\nContent-Length: 10\n\n", http.StatusRequestTimeout, api.CodeInvalidRequest},
		{"chunks", put + token(lease, 2) + "\nTransfer-Encoding: chunked\n\n4\nhalf\n", http.StatusRequestTimeout, api.CodeInvalidRequest},
		{"half a document", "POST /v1/locks/new/acquire HTTP/1.1\nHost: gateway\n" + jsonType + "\nContent-Length: 100\n\n{\"owner_id\":", http.StatusRequestTimeout, api.CodeInvalidRequest},
		{"refused for its name", "POST /v1/locks//acquire HTTP/1.1\nHost: gateway\n" + jsonType + "\nContent-Length: 100\n\n{", http.StatusBadRequest, api.CodeInvalidName},
		{"refused for its path", "POST /nowhere HTTP/1.1\nHost: gateway\nContent-Length: 100\n\n{", http.StatusNotFound, api.CodeNotFound},
		{"refused for its token", put + "Fencing-Token: x\nContent-Length: 100\n\n{", http.StatusBadRequest, api.CodeInvalidToken},
		{"refused for its method", "PATCH /v1/locks HTTP/1.1\nHost: gateway\nTransfer-Encoding: chunked\n\n", http.StatusMethodNotAllowed, api.CodeInvalidRequest},
		{"a delete with a body", "DELETE /v1/resources/job/records/none HTTP/1.1\nHost: gateway\n" + token(lease, 2) + "\nContent-Length: 10\n\n", http.StatusNotFound, api.CodeNotFound},
		{"a get with a body", "GET /v1/resources/job/records/none HTTP/1.1\nHost: gateway\nContent-Length: 10\n\n", http.StatusNotFound, api.CodeNotFound},
	} {
		t.Run(slow.name, func(t *testing.T) {
			h.unchanged(t, func() {
				got, closed := heard(t, h.wire(t, slow.request))
				if refused(t, got, slow.code); got.status != slow.status || !closed {
					t.Errorf("status %d, connection closed %v, want %d and closed: %s", got.status, closed, slow.status, got.body)
				}
			})
		})
	}
}

func TestSlowBodyOverHTTP2(t *testing.T) {
	config := Config{BodyTimeout: 200 * time.Millisecond}
	t.Run("served by another", func(t *testing.T) {
		h, lease := newBusyHarness(t, config)
		slowBodyOverHTTP2(t, h, lease)
	})
	t.Run("served", func(t *testing.T) {
		h, _, lease := newServed(t, config)
		slowBodyOverHTTP2(t, h, lease)
	})
}

func slowBodyOverHTTP2(t *testing.T, h *harness, lease api.Lease) {
	t.Helper()
	h.http = newHTTPClient(t, true)
	h.unchanged(t, func() {
		body, half := io.Pipe()
		defer half.Close()
		go func() { _, _ = half.Write([]byte("half")) }()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, h.base+recordPath("job", "k"), body)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(api.HeaderFencingToken, strings.TrimPrefix(token(lease, 2), api.HeaderFencingToken+": "))
		got, err := h.do(t, request)
		if err != nil {
			t.Fatal(err)
		}
		if refused(t, got, api.CodeInvalidRequest); got.status != http.StatusRequestTimeout || got.proto != 2 {
			t.Errorf("answered %d over HTTP/%d: %s", got.status, got.proto, got.body)
		}
	})
}

// The time for a body is for the body: work that takes longer is finished, and its connection stays good.
func TestSlowWork(t *testing.T) {
	config := Config{BodyTimeout: 100 * time.Millisecond}
	t.Run("served by another", func(t *testing.T) {
		h, lease := newBusyHarness(t, config)
		slowWork(t, h, lease)
	})
	t.Run("served", func(t *testing.T) {
		h, _, lease := newServed(t, config)
		slowWork(t, h, lease)
	})
}

func slowWork(t *testing.T, h *harness, lease api.Lease) {
	t.Helper()
	letGo := h.holdFence(t, "job")
	connection := h.wire(t, "PUT /v1/resources/job/records/k HTTP/1.1\nHost: gateway\n"+token(lease, 2)+"\nContent-Length: 3\n\nnew")
	h.awaitWaiting(t, 1)
	until := time.Now().Add(200 * time.Millisecond) // beyond the time for a body
	eventually(t, "the time for the body is over", func() bool { return time.Now().After(until) })
	letGo()
	got, closed := heard(t, connection)
	if as[api.WriteResult](t, got, http.StatusOK); closed {
		t.Error("the connection was given up")
	}
	if _, err := fmt.Fprintf(connection, "GET /v1/resources/job/records/k HTTP/1.1\r\nHost: gateway\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got, _ := heard(t, connection); string(got.body) != "new" {
		t.Errorf("the second answer on the connection is %d %q", got.status, got.body)
	}
}

// A body that breaks off is none: nothing is written.
func TestTruncatedBodies(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	put := "PUT /v1/resources/job/records/k HTTP/1.1\nHost: gateway\n" + token(lease, 2) + "\n"
	for name, request := range map[string]string{
		"value":    put + "Content-Length: 10\n\nhalf",
		"chunks":   put + "Transfer-Encoding: chunked\n\n4\nhalf\n",
		"document": "POST /v1/locks/new/acquire HTTP/1.1\nHost: gateway\n" + jsonType + "\nContent-Length: 100\n\n{\"owner_id\":\"w\"}",
	} {
		t.Run(name, func(t *testing.T) {
			h.unchanged(t, func() {
				connection := h.wire(t, request)
				if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
				got, _ := heard(t, connection)
				if problem := refused(t, got, api.CodeInvalidRequest); !strings.Contains(problem.Detail, "broke off") {
					t.Errorf("the detail is %q", problem.Detail)
				}
			})
		})
	}
	t.Run("chunks that are none", func(t *testing.T) {
		h.unchanged(t, func() {
			got, _ := heard(t, h.wire(t, put+"Transfer-Encoding: chunked\n\nxyz\nhalf\n"))
			refused(t, got, api.CodeInvalidRequest)
		})
	})
}

// A client that is gone before its body has come leaves no trace: when the server has ended, every request has.
func TestClientGoneWithinItsBody(t *testing.T) {
	h, server, lease := newServed(t, Config{})
	h.unchanged(t, func() {
		for range 20 {
			connection := h.wire(t, "PUT /v1/resources/job/records/k HTTP/1.1\nHost: gateway\n"+token(lease, 2)+"\nContent-Length: 10\n\nhalf")
			_ = connection.Close()
		}
		if err := server.end(); err != nil {
			t.Error(err)
		}
	})
}
