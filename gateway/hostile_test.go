package gateway

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

// TestRapidReset opens thousands of streams over one connection of HTTP/2, and resets each at once. The gateway works on
// no more of them at a time than a connection may have open. They end and leave the queue, and an honest client is
// served meanwhile.
func TestRapidReset(t *testing.T) {
	var running, most atomic.Int64
	e := newEncryptedWith(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 {
				for now := running.Add(1); ; {
					if seen := most.Load(); now <= seen || most.CompareAndSwap(seen, now) {
						break
					}
				}
				defer running.Add(-1)
			}
			next.ServeHTTP(w, r)
		})
	})
	lease := e.acquire(t, "job", "honest")
	reset := inBackground(func() int { return e.resetRapidly(t, 5000) })
	for ended := false; !ended; {
		e.renew(t, lease)
		select {
		case streams := <-reset:
			t.Logf("%d streams were reset, up to %d requests ran at a time", streams, most.Load())
			ended = true
		default:
		}
	}
	await.True(t, "the requests of the streams have ended", func() bool { return running.Load() == 0 })
	e.awaitQueue(t, "job")
	const limit = streamsOfOne
	if most.Load() == 0 || most.Load() > limit {
		t.Errorf("up to %d requests of one connection ran at a time, want some, and up to %d", most.Load(), limit)
	}
}

// resetRapidly opens a connection and sends acquires that would wait, each reset at once, until the gateway closes the
// connection or all are sent. It returns how many were sent.
func (e *encrypted) resetRapidly(t *testing.T, streams int) (sent int) {
	t.Helper()
	connection, err := tls.Dial("tcp", e.address, &tls.Config{RootCAs: e.authority.Pool(), NextProtos: []string{"h2"}})
	if err != nil {
		t.Error(err)
		return 0
	}
	defer connection.Close()
	go func() { _, _ = io.Copy(io.Discard, connection) }()
	const body = `{"owner_id":"hostile","wait_ms":600000}`
	var fields bytes.Buffer
	encoder := hpack.NewEncoder(&fields)
	encoder.SetMaxDynamicTableSize(0) // so that the same bytes are good for every stream
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "https"}, {":authority", e.address}, {":path", lockPath("job", "/acquire")},
		{"content-type", "application/json"}, {"content-length", fmt.Sprint(len(body))},
	} {
		_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	_, err = io.WriteString(connection, http2.ClientPreface)
	framer := http2.NewFramer(connection, nil)
	if err == nil {
		err = framer.WriteSettings()
	}
	for ; err == nil && sent < streams; sent++ {
		id := uint32(2*sent + 1)
		err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: fields.Bytes(), EndHeaders: true})
		if err == nil {
			err = framer.WriteData(id, true, []byte(body))
		}
		if err == nil {
			err = framer.WriteRSTStream(id, http2.ErrCodeCancel)
		}
	}
	return sent
}

// hostileStreams are requests over HTTP/2 without a credential.
var hostileStreams = map[string]struct {
	fields []hpack.HeaderField
	open   bool // the body is never sent
}{
	"document":  {fields: []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":path", Value: "/openapi.yaml"}}},
	"dashboard": {fields: []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":path", Value: "/ui/app.js"}}},
	"unknown":   {fields: []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":path", Value: "/none"}}},
	"refused":   {fields: []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":path", Value: "/v1/locks"}}},
	"refused with a body": {open: true, fields: []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":path", Value: "/v1/locks/job/acquire"}}},
	"sign-in without a body": {open: true, fields: []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":path", Value: "/v1/sign-in"}, {Name: "content-type", Value: jsonType}}},
	// net/http answers these before any handler.
	"forbidden field": {fields: []hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":path", Value: "/healthz"}, {Name: "connection", Value: "close"}}},
	"long header": {fields: []hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":path", Value: "/healthz"},
		{Name: "x", Value: strings.Repeat("~", endpoint.HeaderBytes)}, {Name: "y", Value: strings.Repeat("~", 512)}}},
}

// hostileBlock returns the header of a request of one kind, the same bytes for every stream.
func hostileBlock(kind string) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	encoder.SetMaxDynamicTableSize(0)
	for _, field := range append([]hpack.HeaderField{{Name: ":scheme", Value: "http"}}, hostileStreams[kind].fields...) {
		_ = encoder.WriteField(field)
	}
	return block.Bytes()
}

// openStreams opens streams of one kind over a connection of HTTP/2, and never lets the gateway send a byte of an answer.
// It returns when all are open, or when the gateway has closed the connection.
func openStreams(connection net.Conn, kind string, block []byte, streams int) {
	const frameMax = 16 << 10
	framer := http2.NewFramer(connection, nil)
	_, err := io.WriteString(connection, http2.ClientPreface)
	if err == nil {
		err = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	}
	for n := 0; err == nil && n < streams; n++ {
		id, fragments := uint32(2*n+1), slices.Collect(slices.Chunk(block, frameMax))
		err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: fragments[0],
			EndHeaders: len(fragments) == 1, EndStream: !hostileStreams[kind].open})
		for i := 1; err == nil && i < len(fragments); i++ {
			err = framer.WriteContinuation(id, i == len(fragments)-1, fragments[i])
		}
	}
}

// awaitStreams returns when the gateway has begun with all streams that were opened over a connection: it answers a ping
// after them.
func awaitStreams(t testing.TB, connection net.Conn) {
	t.Helper()
	if err := connection.SetDeadline(time.Now().Add(await.Limit)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(connection, connection)
	if err := framer.WritePing(false, [8]byte{}); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("the ping after the streams has no answer: %v", err)
		}
		if frame.Header().Type == http2.FramePing && frame.Header().Flags.Has(http2.FlagPingAck) {
			return
		}
	}
}

// TestHostileStreams checks that the gateway closes the connection without a credential that has been busy for the
// longest time when an address has too many, whatever their requests are, and that one with a credential stays open.
func TestHostileStreams(t *testing.T) {
	h := newGateway(t, Config{}, patientDatabase(t))
	h.guard(t)
	h.gateway.Connections.StrangersMax = 2 // one for each address
	h.serveUnchecked(t)
	known := h.by(h.key(t, "known", "all:"))
	known.awaitStatus(t, http.StatusOK)
	watch := known.open(t, lockPath("job", "/watch"))
	watch.next(t, api.EventState)
	var before net.Conn
	for kind := range hostileStreams {
		connection := h.dialFrom(t, "127.0.0.1")
		openStreams(connection, kind, hostileBlock(kind), 2)
		awaitStreams(t, connection)
		if before != nil {
			closes(t, before)
		}
		before = connection
	}
	known.acquire(t, "job", "honest")
	watch.next(t, api.EventState)
	h.client = known
	metrics, _ := h.scrape(t)
	if metrics.value("fencegate_rate_limited_total", "limit", "connections") == 0 {
		t.Error("no connection was closed for the next one: their time was over")
	}
}

// TestHostileMemory opens 300 connections of 250 streams each without a credential, whose answers are not taken. The
// memory of both ends grows by up to 128 MB, and honest clients are served meanwhile: how fast is logged.
func TestHostileMemory(t *testing.T) {
	if os.Getenv("FENCEGATE_CONNECTIONS") == "" {
		t.Skip("it uses the machine for a minute: make hostile")
	}
	h := newGateway(t, Config{}, patientDatabase(t))
	h.guard(t)
	h.serveUnchecked(t)
	honest := h.by(h.key(t, "honest", "all:"))
	honest.awaitStatus(t, http.StatusOK)
	atRest, _ := h.measure(t, honest, func() {
		for range 300 {
			h.get(t, "/healthz")
		}
	})
	for kind := range hostileStreams {
		t.Run(kind, func(t *testing.T) {
			slowest, grown := h.measure(t, honest, func() { h.attack(t, kind) })
			t.Logf("at most %d MB more than at rest; p99 of honest requests %s, and %s at rest", grown>>20, slowest, atRest)
			if grown > 128<<20 {
				t.Error("want up to 128 MB")
			}
		})
	}
}

// measure sends honest requests during an attack. It returns the 99th percentile of their times, and by how much the
// memory has grown.
func (h *harness) measure(t *testing.T, honest client, attack func()) (slowest time.Duration, grown int64) {
	t.Helper()
	runtime.GC()
	rest := memoryUsed()
	attacked := make(chan struct{})
	go func() {
		defer close(attacked)
		attack()
	}()
	var took []time.Duration
	for ended := false; !ended; {
		begun := time.Now()
		as[api.Principal](t, honest.get(t, "/v1/whoami"), http.StatusOK)
		took = append(took, time.Since(begun))
		if len(took)%100 == 0 {
			runtime.GC()
		}
		grown = max(grown, memoryUsed()-rest)
		select {
		case <-attacked:
			ended = true
		case <-time.After(time.Millisecond):
		}
	}
	slices.Sort(took)
	return took[len(took)*99/100], grown
}

// attack returns when all streams were sent, or the gateway has closed their connections.
func (h *harness) attack(t *testing.T, kind string) {
	t.Helper()
	const connections, streams = 300, 250
	block := hostileBlock(kind) // shared, so that it is the gateway's memory that grows
	var sending sync.WaitGroup
	for range connections {
		connection := h.dialFrom(t, "127.0.0.2")
		go func() { _, _ = io.Copy(io.Discard, connection) }()
		sending.Go(func() { openStreams(connection, kind, block, streams) })
	}
	sending.Wait()
}

func memoryUsed() int64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapInuse + stats.StackInuse)
}

// TestEndOfUnverifiedStream checks that a stream is ended without an error in the log if the key of its token is
// withdrawn, and the issuer's keys have yet to be read again.
func TestEndOfUnverifiedStream(t *testing.T) {
	t.Parallel()
	g := newKeyedGateway(t, &keysInMemory{})
	var log bytes.Buffer
	g.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if reason := g.EndReason(t.Context(), g.Unauthenticated(nil, auth.NotReady)); reason != endpoint.EndUnavailable || log.Len() > 0 {
		t.Errorf("the stream ends for %q, want %q; logged: %s", reason, endpoint.EndUnavailable, &log)
	}
}

// TestSlow_MemoryOfWaiters checks that an acquire that waits over HTTP/1.1 uses at most 46 KiB of heap and stacks, the test's
// end of the connection included. net/http alone uses 20. With copies of leases in each frame, it was 55. It is a slow
// test, since these run without the race detector, which allocates, too.
func TestSlow_MemoryOfWaiters(t *testing.T) {
	h := newGateway(t, Config{}, patientDatabase(t))
	h.serveUnchecked(t)
	h.acquire(t, "job", "holder")
	const waiters, most = 400, 46 << 10
	body := `{"owner_id":"waiter","wait_ms":600000}`
	wait := func(count int) {
		before := h.engine.Waiting()
		for range count {
			connection := h.dialFrom(t, "127.0.0.1")
			if _, err := fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
				"Content-Length: %d\r\n\r\n%s", lockPath("job", "/acquire"), len(body), body); err != nil {
				t.Fatal(err)
			}
		}
		h.awaitQueueLength(t, "job", before+count)
	}
	used := func() (used runtime.MemStats) {
		for range 4 { // a stack shrinks by half at a time
			runtime.GC()
		}
		runtime.ReadMemStats(&used)
		return used
	}
	wait(40) // what the first ones make for all, such as connections to the database
	before := used()
	wait(waiters)
	// The database has them all. The gateway may still work on its answers.
	await.True(t, fmt.Sprintf("a waiter uses up to %d bytes", most), func() bool {
		after := used()
		heap := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / waiters
		stacks := (int64(after.StackInuse) - int64(before.StackInuse)) / waiters
		t.Logf("a waiter uses %d bytes of heap and %d of stacks", heap, stacks)
		return heap+stacks <= most
	})
}

// awaitQueueLength waits until that many acquires have a ticket.
func (h *harness) awaitQueueLength(t *testing.T, lock string, length int) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d wait for %s", length, lock), func() bool {
		return h.lock(t, lock).QueueLength == int64(length)
	})
}

// TestWaitingWithin checks how many acquires may wait by default.
func TestWaitingWithin(t *testing.T) {
	for limit, want := range map[int64]int{math.MaxInt64: 50_000, 400 << 20: 5_120, 1: 1} {
		if got := waitingWithin(limit); got != want {
			t.Errorf("with a memory limit of %d, %d acquires may wait, want %d", limit, got, want)
		}
	}
}
