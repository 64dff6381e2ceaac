package gateway

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
)

// putFor is put with a context that may end.
func (h *harness) putFor(ctx context.Context, t testing.TB, lease api.Lease, sequence int64, value string) error {
	t.Helper()
	path := recordPath(lease.Lock, "k")
	_, err := h.tryFor(ctx, t, http.MethodPut, path, strings.NewReader(value), token(lease, sequence))
	return err
}

// A write whose client hangs up while it waits in the database is finished, on the same database connection.
func TestClientGoneDuringItsWrite(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h, lease := newBusyHarness(t, Config{})
		h.http = newHTTPClient(t, http2)
		unlock := h.holdFence(t, "job")
		ctx, hangUp := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- h.putFor(ctx, t, lease, 2, "unanswered") }()
		h.awaitWaiting(t, 1)
		expectKept := h.expectSessionsKept(t)
		hangUp()
		if err := <-gone; err == nil {
			t.Fatal("the request that was cancelled returned an answer")
		}
		unlock()
		await.True(t, "the write is finished", func() bool {
			return string(h.get(t, recordPath("job", "k")).body) == "unanswered"
		})
		again := as[api.WriteResult](t, h.put(t, lease, 2, "unanswered"), http.StatusOK)
		if !again.Replayed || again.Version != 2 {
			t.Errorf("the retry returned %+v, want a replay of version 2", again)
		}
		expectKept()
	})
}

// A numbered write is applied once or not at all, wherever its client hangs up. Retries until it is answered apply it
// once (P4, P10).
func TestClientsHangUp(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	hangUps := []func(hangUp func()) *httptrace.ClientTrace{
		func(hangUp func()) *httptrace.ClientTrace {
			return &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { hangUp() }}
		},
		func(hangUp func()) *httptrace.ClientTrace { return &httptrace.ClientTrace{WroteHeaders: hangUp} },
		func(hangUp func()) *httptrace.ClientTrace {
			return &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { hangUp() }}
		},
		func(hangUp func()) *httptrace.ClientTrace {
			return &httptrace.ClientTrace{GotFirstResponseByte: hangUp}
		},
	}
	expectKept := h.expectSessionsKept(t)
	replays := 0
	const writes = 60
	for i := range int64(writes) {
		ctx, hangUp := context.WithCancel(t.Context())
		traced := httptrace.WithClientTrace(ctx, hangUps[i%int64(len(hangUps))](hangUp))
		_ = h.putFor(traced, t, lease, i+2, "value")
		hangUp()
		result := as[api.WriteResult](t, h.put(t, lease, i+2, "value"), http.StatusOK)
		if result.Version != i+2 {
			t.Fatalf("write %d returned version %d: it was applied twice, or another was lost", i+2, result.Version)
		}
		if result.Replayed {
			replays++
		}
	}
	t.Logf("%d of %d writes were applied before their clients hung up", replays, writes)
	expectKept()
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(all, one) })
}
