package gateway

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// An answer that needs no body is sent while the body has not arrived, and ends the connection; be the body chunked, of known length, or
// announced with Expect: 100-continue.
func TestAnswersBeforeTheBody(t *testing.T) {
	h, _, lease := newServed(t, Config{BodyTimeout: time.Hour})
	h.gateway.bulkStreams.Store(bulkStreamsMax)
	put, post := "PUT /v1/resources/job/records/k HTTP/1.1\nHost: gateway\n", " HTTP/1.1\nHost: gateway\n"
	type exchange struct {
		name   string
		status int
		code   api.Code
		reader *bufio.Reader
	}
	var exchanges []exchange // all at the same time, for the gateway ends each only after a while
	for _, early := range []struct {
		name, request string
		status        int
		code          api.Code
	}{
		{"a name", "POST /v1/locks//acquire" + post + jsonType + "\n", http.StatusBadRequest, api.CodeInvalidName},
		{"a token", put + "Fencing-Token: x\n", http.StatusBadRequest, api.CodeInvalidToken},
		{"no token", put, http.StatusPreconditionRequired, api.CodeTokenRequired},
		{"a type", "POST /v1/locks/l/acquire" + post + "Content-Type: text/plain\n", http.StatusUnsupportedMediaType, api.CodeInvalidRequest},
		{"a parameter", "POST /v1/sessions?x=y" + post + jsonType + "\n", http.StatusBadRequest, api.CodeInvalidRequest},
		{"a method", "PATCH /v1/locks" + post, http.StatusMethodNotAllowed, api.CodeInvalidRequest},
		{"a path", "POST /nowhere" + post, http.StatusNotFound, api.CodeNotFound},
		{"one stream too many", "POST /v1/writes" + post + "Content-Type: " + api.BulkContentType + "\n", http.StatusServiceUnavailable, api.CodeUnavailable},
		{"a delete", "DELETE /v1/resources/job/records/none" + post + token(lease, 2) + "\n", http.StatusNotFound, api.CodeNotFound},
		{"a get", "GET /v1/resources/job/records/none" + post, http.StatusNotFound, api.CodeNotFound},
	} {
		for kind, body := range map[string]string{
			"chunked": "Transfer-Encoding: chunked\n\n4\nhalf\n", "sized": "Content-Length: 10\n\nhalf", "large": "Content-Length: 1000000\n\nhalf",
			"chunked, expecting": "Expect: 100-continue\nTransfer-Encoding: chunked\n\n", "sized, expecting": "Expect: 100-continue\nContent-Length: 10\n\n",
		} {
			reader := bufio.NewReader(h.wire(t, early.request+body))
			exchanges = append(exchanges, exchange{early.name + ", " + kind, early.status, early.code, reader})
		}
	}
	for _, early := range exchanges {
		got, closed := heardBy(t, early.reader)
		if refused(t, got, early.code); got.status != early.status || !closed {
			t.Errorf("%s: status %d, announces the end of the connection: %v; want %d and true: %s", early.name, got.status, closed, early.status, got.body)
		}
	}
	for _, early := range exchanges {
		if rest, err := io.ReadAll(early.reader); err != nil || len(rest) > 0 {
			t.Errorf("%s: after the answer the connection has %q and %v, want its end", early.name, rest, err)
		}
	}
}

// A connection over HTTP/2 goes on after such an answer.
func TestAnswersBeforeTheBodyOverHTTP2(t *testing.T) {
	h, _, _ := newServed(t, Config{BodyTimeout: time.Hour})
	h.http = newHTTPClient(t, true)
	watched := h.open(t, lockPath("job", "/watch"))
	watched.next(t, api.EventState)
	stalled, sender := io.Pipe()
	t.Cleanup(func() { _ = sender.Close() })
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.base+"/v1/locks//acquire", stalled)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	got, err := h.do(t, request)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, got, api.CodeInvalidName)
	h.acquire(t, "other", "worker")
	if proto := h.get(t, "/healthz").proto; proto != 2 {
		t.Errorf("the next answer came over HTTP/%d", proto)
	}
}
