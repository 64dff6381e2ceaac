//go:build unix

package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

// The zombie is a gateway: it has received a write, and is frozen until the lease has expired and another gateway has
// granted the lock again. From then on the write is rejected, whether or not the new holder has written.
func TestFrozenGatewayComesTooLate(t *testing.T) {
	t.Parallel()
	for _, heirWrites := range []bool{false, true} {
		t.Run(fmt.Sprintf("the heir has written %t", heirWrites), func(t *testing.T) {
			t.Parallel()
			db, f := startMigrated(t, 2)
			lease := mustAcquire(t, f.at(0), "job", "zombie", 100)
			finish, status := beginPut(t, f.at(0), numbered(lease, 1))
			f.at(0).Freeze(t)
			finish()
			awaitExpiry(t, db, "job")
			heir := mustAcquire(t, f.at(1), "job", "heir", 0)
			writes := 0
			if heirWrites {
				mustPut(t, f.at(1), numbered(heir, 1))
				writes = 1
			}
			f.at(0).Thaw(t)

			code, problem := status()
			if code != http.StatusPreconditionFailed || problem.Code != api.CodeTokenStale || problem.Reason != "superseded" {
				t.Errorf("the frozen write was answered %d %+v", code, problem)
			}
			wantWrites(t, db, "job", writes)
			mustPut(t, f.at(1), numbered(heir, 2))
		})
	}
}

// beginPut sends all of a write but its last byte, which finish sends; status waits for the answer. The gateway works
// on the request when it returns.
func beginPut(t *testing.T, g *gateway, w write) (finish func(), status func() (int, api.Problem)) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(patient(t), "tcp", strings.TrimPrefix(g.URL, "http://"))
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	check(t, conn.SetDeadline(time.Now().Add(await.Limit)))
	body := w.value
	_, err = fmt.Fprintf(conn, "PUT /v1/resources/%s/records/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
		"application/json\r\n"+
		"Fencing-Token: %d.%d\r\nContent-Length: %d\r\n\r\n%s", w.resource, w.key, w.token, w.sequence, len(body),
		body[:len(body)-1])
	check(t, err)
	await.True(t, "the gateway works on the write", func() bool { return inFlight(t, g) == 2 })

	finish = func() {
		t.Helper()
		_, err := io.WriteString(conn, body[len(body)-1:])
		check(t, err)
	}
	status = func() (code int, problem api.Problem) {
		t.Helper()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		check(t, err)
		defer response.Body.Close()
		check(t, json.NewDecoder(response.Body).Decode(&problem))
		return response.StatusCode, problem
	}
	return finish, status
}

// inFlight is how many requests the gateway works on, that for its metrics included.
func inFlight(t *testing.T, g *gateway) (count int) {
	t.Helper()
	_, metrics := get(t, g, "/metrics")
	_, rest, found := strings.Cut(metrics, "\nfencegate_http_requests_in_flight ")
	if !found {
		t.Fatal("there is no such metric")
	}
	_, err := fmt.Sscan(rest, &count)
	check(t, err)
	return count
}
