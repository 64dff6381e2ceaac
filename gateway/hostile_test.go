package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/issuertest"
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
	const limit = 250
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

// TestStreamsEndWithTheirToken checks that a stream of events ends soon after the token that opened it has expired, an
// idle one, too, and that the next line of a bulk stream is refused then.
func TestStreamsEndWithTheirToken(t *testing.T) {
	h := newGateway(t, Config{KeepAlive: 100 * time.Millisecond}, patientDatabase(t))
	issuer := issuertest.New(t)
	h.acceptTokens(t, issuer)
	const lifetime = 4 * time.Second // long enough to open the streams on a slow machine
	begun := time.Now()
	caller := h.by("Authorization: Bearer " + issuer.Token(t, map[string]any{"exp": begun.Add(lifetime).Unix()}))
	await.True(t, "the keys of the issuer are read", func() bool {
		return caller.get(t, "/v1/whoami").status == http.StatusOK
	})
	lease := caller.acquire(t, "job", "w")
	bulk, watch := caller.openBulk(t), caller.open(t, lockPath("job", "/watch"))
	bulk.write(t, putLine(lease, 1, "k", "1"))
	bulk.verdict(t, 1, http.StatusCreated)
	watch.next(t, api.EventState)

	watch.endedFor(t, "unauthenticated")
	if after := time.Since(begun); after < lifetime-time.Second {
		t.Errorf("the stream ended after %s, want the lifetime of the token, %s", after, lifetime)
	}
	bulk.write(t, putLine(lease, 2, "k", "2"))
	bulk.verdict(t, 2, http.StatusUnauthorized)
	expectProblem(t, caller.get(t, "/v1/whoami"), api.CodeUnauthenticated)
}

// TestEndOfUnverifiedStream checks that a stream is ended without an error in the log if the key of its token is
// withdrawn, and the issuer's keys have yet to be read again.
func TestEndOfUnverifiedStream(t *testing.T) {
	t.Parallel()
	g := newKeyedGateway(t, &keysInMemory{})
	var log bytes.Buffer
	g.config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if reason := g.endReason(t.Context(), g.unauthenticated(auth.NotReady)); reason != endUnavailable || log.Len() > 0 {
		t.Errorf("the stream ends for %q, want %q; logged: %s", reason, endUnavailable, &log)
	}
}

// acceptTokens has the gateway want tokens of an issuer, each of which may do everything, and serves it.
func (h *harness) acceptTokens(t *testing.T, issuer *issuertest.Issuer) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "access.yaml")
	text := fmt.Sprintf(`issuers: [{name: local, issuer: "%s", audiences: [fencegate], leeway: 0s,
		rules: [{when: {sub: "**"}, grants: ["all:"]}]}]`, issuer.URL)
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "\t", " ")), 0o600); err != nil {
		t.Fatal(err)
	}
	directory, err := auth.LoadDirectory(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	runBeside(t, func(ctx context.Context) { directory.Run(ctx, h.gateway.metrics) })
	h.gateway.config.Auth = auth.Tokens{Directory: directory}
	h.client = serve(t, conforming(t, h.gateway))
}
