package gateway

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

const quickInterval = 10 * time.Millisecond

// newWatchful is a gateway that checks often whether a waiting client is still connected, and a lease on "job".
func newWatchful(t testing.TB) (*harness, api.Lease) {
	t.Helper()
	h := newGateway(t, Config{KeepAlive: time.Hour}, patientDatabase(t))
	h.gateway.HangUpInterval = quickInterval
	h.serveItself(t)
	return h, h.acquire(t, "job", "worker")
}

// waitRequest is the text of an acquire that waits.
func waitRequest(lock, owner string) string {
	body := encode(api.AcquireRequest{OwnerID: owner, WaitMS: 600_000})
	return fmt.Sprintf("POST /v1/locks/%s/acquire HTTP/1.1\nHost: gateway\n%s\nContent-Length: %d\n\n%s",
		lock, jsonType, len(body), body)
}

// A waiter over HTTP/1.1 whose connection ends leaves the queue, whatever it sent meanwhile: net/http watches a
// connection only until the next byte.
func TestWaiterWhoseConnectionEnds(t *testing.T) {
	h, _ := newWatchful(t)
	for _, more := range []string{"", "x", "\r\n", "GET /healthz HTTP/1.1\r\nHost: gateway\r\n\r\n"} {
		for name, end := range map[string]func(raw) error{
			"closed": raw.Close, "half closed": raw.CloseWrite,
			"reset": func(connection raw) error {
				_ = connection.SetLinger(0)
				return connection.Close()
			},
		} {
			t.Run(fmt.Sprintf("%q, %s", more, name), func(t *testing.T) {
				connection := h.wire(t, waitRequest("job", "leaver"))
				h.awaitQueue(t, "job", "leaver")
				connection.write(t, more)
				if err := end(connection); err != nil {
					t.Fatal(err)
				}
				h.awaitQueue(t, "job")
			})
		}
	}
}

// A waiter over HTTP/1.1 that sends its next request stays in the queue and gets both answers.
func TestWaiterThatPipelines(t *testing.T) {
	h, lease := newWatchful(t)
	connection := h.wire(t, waitRequest("job", "eager"))
	h.awaitQueue(t, "job", "eager")
	connection.write(t, "GET /v1/locks/job HTTP/1.1\r\nHost: gateway\r\n\r\n")
	time.Sleep(10 * quickInterval) // a wrong hang-up would be noticed by then
	h.awaitQueue(t, "job", "eager")
	h.release(t, lease)
	got, _ := connection.answer(t)
	granted := as[api.Lease](t, got, http.StatusOK)
	got, _ = connection.answer(t)
	if lock := as[api.Lock](t, got, http.StatusOK); lock.FencingToken != granted.FencingToken {
		t.Errorf("the lease is %+v and then the lock is %+v, want the same token", granted, lock)
	}
}

// A stream of events over HTTP/1.1 ends with its connection.
func TestStreamWhoseConnectionEnds(t *testing.T) {
	h, _ := newWatchful(t)
	connection := h.wire(t, "GET /v1/locks/job/watch HTTP/1.1\nHost: gateway\n\n")
	h.awaitStreams(t, 1)
	connection.write(t, "x")
	connection.closeWrite(t)
	h.awaitStreams(t, 0)
}
