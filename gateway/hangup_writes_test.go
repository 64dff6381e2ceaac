package gateway

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// putFor is put for a client that may hang up.
func (h *harness) putFor(ctx context.Context, t *testing.T, lease api.Lease, sequence int64, value string) (answer, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, h.base+recordPath(lease.Lock, "k"), strings.NewReader(value))
	if err != nil {
		t.Error(err)
		return answer{}, err
	}
	name, text, _ := strings.Cut(token(lease, sequence), ": ")
	request.Header.Set(name, text)
	return h.do(t, request)
}

// A client that hangs up while its write waits in the database changes nothing about the write: what was begun is finished, on the
// connections that there were.
func TestClientGoneWithinItsWrite(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h, lease := newBusyHarness(t, Config{})
		h.http = newHTTPClient(t, http2)
		letGo := h.holdFence(t, "job")
		ctx, hangUp := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := h.putFor(ctx, t, lease, 2, "nobody waits for it")
			gone <- err
		}()
		h.awaitWaiting(t, 1)
		before := h.sessions(t)
		hangUp()
		if err := <-gone; err == nil {
			t.Fatal("who hung up got an answer")
		}
		letGo()
		eventually(t, "the write is finished", func() bool {
			return string(h.get(t, recordPath("job", "k")).body) == "nobody waits for it"
		})
		if again := as[api.WriteResult](t, h.put(t, lease, 2, "nobody waits for it"), http.StatusOK); !again.Replayed || again.Version != 2 {
			t.Errorf("sent again: %+v", again)
		}
		if after := h.sessions(t); !containsAll(after, before) {
			t.Errorf("of the sessions %q are left %q", before, after)
		}
	}
}

// Wherever a client hangs up, a numbered write is applied once or not at all; sent again until it is answered, once (P4, P10).
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
	before := h.sessions(t)
	replays := 0
	const writes = 60
	for i := range int64(writes) {
		ctx, hangUp := context.WithCancel(t.Context())
		traced := httptrace.WithClientTrace(ctx, hangUps[i%int64(len(hangUps))](hangUp))
		_, _ = h.putFor(traced, t, lease, i+2, "value")
		hangUp()
		result := as[api.WriteResult](t, h.put(t, lease, i+2, "value"), http.StatusOK)
		if result.Version != i+2 {
			t.Fatalf("write %d gave version %d: it was applied more than once, or another was not", i+2, result.Version)
		}
		if result.Replayed {
			replays++
		}
	}
	t.Logf("%d of %d writes were applied before their clients hung up", replays, writes)
	if after := h.sessions(t); !containsAll(after, before) {
		t.Errorf("of the sessions %q are left %q", before, after)
	}
}

func containsAll(all, some []string) bool {
	for _, one := range some {
		if !slices.Contains(all, one) {
			return false
		}
	}
	return true
}
