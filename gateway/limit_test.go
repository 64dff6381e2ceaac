package gateway

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/store"
)

// TestCallerLimits checks that one principal can use no more than its requests, waits and streams, and that the others
// are not affected. The lines of a bulk stream count, and are slowed down to the rate.
func TestCallerLimits(t *testing.T) {
	const rate = 30 // so few that a slow machine sends more
	h := newGateway(t, Config{Limits: limits.Config{RequestsPerSecond: rate, Waiting: 1, Streams: 1, BulkStreams: 1}},
		patientDatabase(t))
	h.guard(t)
	credential := h.key(t, "noisy", "lock,write,observe:")
	noisy, quiet := h.by(credential), h.by(h.key(t, "quiet", "all:"))
	noisy.awaitStatus(t, http.StatusOK)
	quiet.awaitStatus(t, http.StatusOK)
	lease := quiet.acquire(t, "job", "holder")
	limited := func(got answer) {
		t.Helper()
		if problem := expectProblem(t, got, api.CodeRateLimited); got.header.Get("Retry-After") == "" || !problem.Retryable {
			t.Errorf("answered %s %s, want a pause", got.header, got.body)
		}
	}
	waiting := noisy.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "first"})
	limited(noisy.post(t, lockPath("job", "/acquire"), `{"owner_id":"second","wait_ms":60000}`))
	noisy.open(t, lockPath("job", "/watch"))
	limited(noisy.get(t, lockPath("job", "/watch")))
	first := noisy.openBulk(t)
	limited(noisy.send(t, http.MethodPost, "/v1/writes", "", "Content-Type: "+api.BulkContentType))
	first.hangUp()

	begun := time.Now()
	const lines = 2 * rate
	var got answer
	await.True(t, "the stream that was hung up has ended", func() bool {
		got = noisy.send(t, http.MethodPost, "/v1/writes",
			strings.Repeat(`{"op":"delete","resource":"other","key":"k","fencing_token":1}`+"\n", lines),
			"Content-Type: "+api.BulkContentType)
		return got.status == http.StatusOK
	})
	if verdicts, took := bytes.Count(got.body, []byte(`{"line":`)), time.Since(begun); verdicts != lines ||
		took < (lines-rate)*time.Second/rate {
		t.Errorf("%d lines had a verdict within %s, want all %d, and no more than %d a second", verdicts, took, lines, rate)
	}
	for range 100 * rate { // each is forbidden, and counts
		if got = ask(h.gateway, "GET", "/v1/policies", credential); got.status != http.StatusForbidden {
			break
		}
	}
	limited(got)
	quiet.release(t, lease)
	as[api.Lease](t, <-waiting, http.StatusOK)
}

// TestLeasesOfOnePrincipal checks that a principal with as many leases and sessions as one may have gets no more of
// either until some have ended, and that others do.
func TestLeasesOfOnePrincipal(t *testing.T) {
	const most = store.LeasesListed
	h := newGateway(t, Config{CallerLeasesMax: most}, patientDatabase(t))
	h.guard(t)
	greedy, modest := h.by(h.key(t, "greedy", "lock:")), h.by(h.key(t, "modest", "lock:"))
	count := func() {
		h.exec(t, "update fence.inventory set due_at = '-infinity'")
		h.sample(t)
	}
	h.exec(t, `
		insert into fence.leases (lock, fencing_token, lease_id, owner_id, principal, ttl_ms, granted_at, expires_at)
		select 'held/' || n, n, gen_random_uuid(), 'w', 'greedy', 3600000, now(), now() + interval '1 hour'
		from generate_series(1, $1) n`, most/2)
	h.exec(t, `
		insert into fence.sessions (session_id, owner_id, principal, ttl_ms, created_at, expires_at)
		select gen_random_uuid(), 'w', 'greedy', 3600000, now(), now() + interval '1 hour'
		from generate_series(1, $1) n`, most/2)
	count()
	expectLimited(t, greedy.post(t, lockPath("one more", "/acquire"), `{"owner_id":"w"}`))
	expectLimited(t, greedy.post(t, endpoint.SessionsPath, `{"owner_id":"w"}`))
	modest.acquire(t, "another", "w")
	as[api.Session](t, modest.post(t, endpoint.SessionsPath, `{"owner_id":"w"}`), http.StatusCreated)
	h.exec(t, "delete from fence.leases where lock = 'held/1'")
	count()
	greedy.acquire(t, "one more", "w")
	as[api.Session](t, greedy.post(t, endpoint.SessionsPath, `{"owner_id":"w"}`), http.StatusCreated)
}

// newHostile is a gateway that serves with the bounds of a real one, but for the time for a header.
func newHostile(t *testing.T, config Config, headerTimeout time.Duration) *harness {
	t.Helper()
	h := newGateway(t, config, patientDatabase(t))
	h.gateway.headerTimeout = headerTimeout
	h.serveItself(t)
	return h
}

// closes expects that the gateway closes a connection.
func closes(t testing.TB, connection net.Conn) {
	t.Helper()
	if err := connection.SetReadDeadline(time.Now().Add(await.Limit)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	for {
		if _, err := connection.Read(buffer); err != nil {
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // of a connection
				t.Error("a connection stays open, want it closed")
			}
			return
		}
	}
}

// TestConnectionsFromOneAddress checks that connections beyond the limit are closed at once, that another address is
// served meanwhile, and that the places of those that have ended are free again.
func TestConnectionsFromOneAddress(t *testing.T) {
	const most = 5
	h := newHostile(t, Config{AddressConnectionsMax: most}, 2*time.Second)
	var kept []net.Conn
	for range most {
		connection := h.dialFrom(t, "127.0.0.2")
		_, _ = fmt.Fprintf(connection, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := connection.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, connection)
	}
	closes(t, h.dialFrom(t, "127.0.0.2"))
	as[api.Health](t, h.get(t, "/healthz"), http.StatusOK) // from 127.0.0.1
	_ = kept[0].Close()
	await.True(t, "the place of the closed connection is free", func() bool {
		connection := h.dialFrom(t, "127.0.0.2")
		_, _ = fmt.Fprintf(connection, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
		_, err := connection.Read(make([]byte, 1))
		return err == nil
	})
}

// TestHostileConnections checks that connections which send nothing, or a header that never ends, are closed after the
// time for a header, and that an honest client is served meanwhile. FENCEGATE_CONNECTIONS sets how many there are. Then
// it also checks that each uses little memory; by default, that of other tests counts, too.
func TestHostileConnections(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("FENCEGATE_CONNECTIONS"))
	alone, headerTimeout := err == nil, time.Minute
	if !alone {
		count, headerTimeout = 200, 2*time.Second
	}
	h := newHostile(t, Config{}, headerTimeout)
	h.get(t, "/healthz")
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	hostile := make([]net.Conn, count)
	for i := range hostile {
		hostile[i] = h.dialFrom(t, "127.0.0.2")
		if i%2 == 0 {
			_, _ = fmt.Fprintf(hostile[i], "GET /healthz HTTP/1.1\r\nHost: a\r\nX-Endless: ")
		}
	}
	lease := h.acquire(t, "job", "honest")
	as[api.WriteResult](t, h.put(t, lease, 1, "v"), http.StatusCreated)
	if alone {
		await.True(t, "all connections are open", func() bool { return h.gateway.Connections.Open() >= count })
	}
	runtime.GC()
	runtime.ReadMemStats(&during)
	each := int64(during.HeapAlloc+during.StackInuse-before.HeapAlloc-before.StackInuse) / int64(count)
	t.Logf("%d bytes a connection, both of its ends", each)
	if alone && each > 64<<10 {
		t.Errorf("a connection uses %d bytes, want up to 64 KiB", each)
	}
	var closing sync.WaitGroup
	for i, connection := range hostile {
		closing.Go(func() {
			if i%2 == 0 { // a byte now and then does not keep it open
				_, _ = connection.Write([]byte("x"))
			}
			closes(t, connection)
		})
	}
	closing.Wait()
	h.renew(t, lease)
}
