package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// After a bulk stream over HTTP/1.1, its connection serves a request that waits. A read deadline that the stream left
// on the connection would count as the client's end, and the waiter would get no answer.
func TestBulkThenWaitOnItsConnection(t *testing.T) {
	h, lease := newWatchful(t)
	line := putLine(lease, 1, "k", "1") // the first one is applied, the others are replays
	body := encode(api.AcquireRequest{OwnerID: "waiter", WaitMS: 20})
	wait := fmt.Sprintf("POST /v1/locks/job/acquire HTTP/1.1\nHost: gateway\n%s\nContent-Length: %d\n\n%s",
		jsonType, len(body), body)
	for framing, lines := range map[string]string{
		fmt.Sprintf("Content-Length: %d", len(line)): line,
		"Transfer-Encoding: chunked":                 chunk(line) + "0\r\n\r\n",
	} {
		stream := strings.ReplaceAll(bulkHead+framing+"\n\n", "\n", "\r\n") + lines
		connection := h.wire(t, "")
		for range 20 {
			connection.write(t, stream)
			if verdicts, end := connection.bulkAnswer(t); len(verdicts) != 1 || end.End != api.BulkComplete {
				t.Fatalf("%s: the answer is %v %s, want one verdict and complete", framing, verdicts, end.text)
			}
			connection.write(t, strings.ReplaceAll(wait, "\n", "\r\n"))
			if got, _ := connection.answer(t); got.status != http.StatusConflict {
				t.Fatalf("%s: the acquire after the stream got %d, want 409", framing, got.status)
			}
		}
	}
}

// After the gateway has ended a stream whose body is not whole, the rest of the body is never taken for another request.
func TestRestOfABulkBodyIsNoRequest(t *testing.T) {
	parallel(t)
	h := newHarness(t, Config{BodyTimeout: 300 * time.Millisecond})
	for _, framing := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
		connection := h.wire(t, bulkHead+framing+"\n\n")
		if _, end := connection.bulkAnswer(t); end.End != api.BulkIdle {
			t.Fatalf("%s: the end is %s, want idle", framing, end.text)
		}
		_, _ = connection.Write([]byte("GET /healthz HTTP/1.1\r\nHost: gateway\r\n\r\n"))
		if n, err := connection.Read(make([]byte, 100)); err == nil {
			t.Errorf("%s: the rest of the body was answered with %d bytes, want the end of the connection", framing, n)
		}
	}
}
