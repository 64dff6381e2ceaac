package gateway

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/writes"
)

// A request that needs no body is answered before its body has arrived, and the answer ends the connection. This holds
// for chunked and sized bodies, and for those announced with Expect: 100-continue.
func TestAnswersBeforeTheBody(t *testing.T) {
	h, _, lease := newServed(t, Config{BodyTimeout: time.Hour})
	h.gateway.writes.BulkStreams.Store(writes.BulkStreamsMax)
	type exchange struct {
		request    string
		status     int
		code       api.Code
		connection raw
	}
	var exchanges []exchange // all at the same time: the gateway ends each connection only after a while
	for _, early := range []exchange{
		{"POST /v1/locks//acquire" + onWire + jsonType + "\n", 400, api.CodeInvalidName, raw{}},
		{putOnWire + "Fencing-Token: x\n", 400, api.CodeInvalidToken, raw{}},
		{putOnWire, 428, api.CodeTokenRequired, raw{}},
		{"POST /v1/locks/l/acquire" + onWire + "Content-Type: text/plain\n", 415, api.CodeInvalidRequest, raw{}},
		{"POST /v1/sessions?x=y" + onWire + jsonType + "\n", 400, api.CodeInvalidRequest, raw{}},
		{"POST /v1/sessions/x/keepalive" + onWire + jsonType + "\n", 400, api.CodeInvalidRequest, raw{}},
		{"PATCH /v1/locks" + onWire, 405, api.CodeInvalidRequest, raw{}},
		{"POST /nowhere" + onWire, 404, api.CodeNotFound, raw{}},
		{bulkHead, 503, api.CodeUnavailable, raw{}}, // one stream of writes too many
		{"DELETE /v1/resources/job/records/none" + onWire + token(lease, 2) + "\n", 404, api.CodeNotFound, raw{}},
		{"GET /v1/resources/job/records/none" + onWire, 404, api.CodeNotFound, raw{}},
	} {
		for _, body := range []string{
			"Transfer-Encoding: chunked\n\n4\nhalf\n", "Content-Length: 10\n\nhalf", "Content-Length: 1000000\n\nhalf",
			"Expect: 100-continue\nTransfer-Encoding: chunked\n\n", "Expect: 100-continue\nContent-Length: 10\n\n",
		} {
			e := early
			e.request += body
			e.connection = h.wire(t, e.request)
			exchanges = append(exchanges, e)
		}
	}
	for _, e := range exchanges {
		got, closed := e.connection.answer(t)
		if expectProblem(t, got, e.code); got.status != e.status || !closed {
			t.Errorf("%q: status %d, announces the end of the connection: %v; want %d and true: %s",
				e.request, got.status, closed, e.status, got.body)
		}
	}
	for _, e := range exchanges {
		if rest, err := io.ReadAll(e.connection.reader); err != nil || len(rest) > 0 {
			t.Errorf("%q: after the answer the connection has %q and %v, want its end", e.request, rest, err)
		}
	}
}

// Over HTTP/2 the connection stays usable after such an answer.
func TestAnswersBeforeTheBodyOverHTTP2(t *testing.T) {
	h, _, _ := newServed(t, Config{BodyTimeout: time.Hour})
	h.http = newHTTPClient(t, true)
	h.open(t, watchPath).next(t, api.EventState)
	stalled, sender := io.Pipe()
	t.Cleanup(func() { _ = sender.Close() })
	got, err := h.tryFor(t.Context(), t, http.MethodPost, "/v1/locks//acquire", stalled, jsonType)
	if err != nil {
		t.Fatal(err)
	}
	expectProblem(t, got, api.CodeInvalidName)
	h.acquire(t, "other", "worker")
	if proto := h.get(t, "/healthz").proto; proto != 2 {
		t.Errorf("the next answer came over HTTP/%d, want HTTP/2", proto)
	}
}
