package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
)

const quickInterval = 10 * time.Millisecond

// newWatchful is a gateway that serves by itself and checks often whether a client that waits is still there, and a lease on "job".
func newWatchful(t *testing.T) (*harness, api.Lease) {
	t.Helper()
	h := newGateway(t, Config{KeepAlive: time.Hour}, store.Config{DatabaseURL: pgtest.Migrated(t)})
	h.gateway.hangUpInterval = quickInterval
	h.gateway.handler = conforming(t, h.gateway.handler)
	h.client = client{base: newServer(t, h).base, http: newHTTPClient(t, false)}
	return h, h.acquire(t, "job", "worker")
}

// waitRequest is an acquire that waits, as it is written.
func waitRequest(lock, owner string) string {
	body := encode(api.AcquireRequest{OwnerID: owner, WaitMS: 600_000})
	return fmt.Sprintf("POST /v1/locks/%s/acquire HTTP/1.1\nHost: gateway\n%s\nContent-Length: %d\n\n%s", lock, jsonType, len(body), body)
}

// A client over HTTP/1.1 that sends more while it waits, and closes the connection or its half of it, leaves the queue: net/http stops
// watching a connection at the next byte.
func TestGhostWaiters(t *testing.T) {
	h, lease := newWatchful(t)
	for name, more := range map[string]string{"nothing": "", "a byte": "x", "an empty line": "\r\n", "a request": "GET /healthz HTTP/1.1\r\nHost: gateway\r\n\r\n"} {
		for ending, end := range map[string]func(*net.TCPConn) error{
			"closed": (*net.TCPConn).Close, "half closed": (*net.TCPConn).CloseWrite,
			"reset": func(connection *net.TCPConn) error {
				_ = connection.SetLinger(0)
				return connection.Close()
			},
		} {
			t.Run(name+", "+ending, func(t *testing.T) {
				connection := h.wire(t, waitRequest("job", "ghost"))
				h.awaitQueue(t, "job", "ghost")
				if _, err := io.WriteString(connection, more); err != nil {
					t.Fatal(err)
				}
				if err := end(connection.(*net.TCPConn)); err != nil {
					t.Fatal(err)
				}
				h.awaitQueue(t, "job")
			})
		}
	}
	h.release(t, lease)
}

// A client over HTTP/1.1 that sends its next request while it waits stays in the queue, and has both answers.
func TestWaiterThatPipelines(t *testing.T) {
	h, lease := newWatchful(t)
	connection := h.wire(t, waitRequest("job", "eager"))
	h.awaitQueue(t, "job", "eager")
	if _, err := io.WriteString(connection, "GET /v1/locks/job HTTP/1.1\r\nHost: gateway\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	passed(t, 10*quickInterval)
	h.awaitQueue(t, "job", "eager")
	h.release(t, lease)
	reader := bufio.NewReader(connection)
	got, _ := heardBy(t, reader)
	granted := as[api.Lease](t, got, http.StatusOK)
	got, _ = heardBy(t, reader)
	if lock := as[api.Lock](t, got, http.StatusOK); lock.FencingToken != granted.FencingToken {
		t.Errorf("granted was %+v, and then the lock was %+v", granted, lock)
	}
}

// A stream of events over HTTP/1.1 ends with its client in the same way.
func TestGhostWatches(t *testing.T) {
	h, _ := newWatchful(t)
	connection := h.wire(t, "GET /v1/locks/job/watch HTTP/1.1\nHost: gateway\n\n")
	eventually(t, "the stream is open", func() bool { return h.gateway.streams.Load() == 1 })
	if _, err := io.WriteString(connection, "x"); err != nil {
		t.Fatal(err)
	}
	_ = connection.(*net.TCPConn).CloseWrite()
	eventually(t, "the stream has ended", func() bool { return h.gateway.streams.Load() == 0 })
}
