package gateway

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/store"
)

// newHammered is a gateway that refused so many writes of one zombie that it delays the next answer by a minute. It
// also returns the last answer.
func newHammered(t *testing.T) (h *harness, zombie, current api.Lease, last answer) {
	t.Helper()
	h = newHarness(t, Config{RefusalDelayMax: time.Minute})
	zombie, current = h.zombie(t, "job")
	for range endpoint.RefusalsFree { // without a delay
		last = h.put(t, zombie, 1, "late")
		expectProblem(t, last, api.CodeTokenStale)
	}
	for range 20 {
		h.gateway.RefusalDelays.Count(&store.RejectedError{Resource: "job", Token: zombie.FencingToken})
	}
	return h, zombie, current, last
}

// The answer to a zombie that goes on writing is delayed. It holds no body and no connection. Other clients are not
// delayed. When the gateway drains, the zombie gets the same answer as before.
func TestRepeatedRefusalIsDelayed(t *testing.T) {
	h, zombie, current, first := newHammered(t)
	held := inBackground(func() answer { return h.put(t, zombie, 1, strings.Repeat("late", endpoint.BodyFreeBytes)) })
	h.awaitMetric(t, 1, "fencegate_write_refusals_delayed")
	if used := h.bodyBytes(); used != 0 {
		t.Errorf("the delayed request holds %d bytes of its body, want none", used)
	}
	as[api.WriteResult](t, h.put(t, current, 1, "x"), http.StatusCreated)
	other, _ := h.zombie(t, "other")
	expectProblem(t, h.put(t, other, 1, "late"), api.CodeTokenStale)
	for range endpoint.RefusalsFree + 2 { // version mismatches are no sign of a zombie
		expectProblem(t, h.putWith(t, "job", token(current, 2), `If-Match: "7"`), api.CodeVersionMismatch)
	}
	select {
	case got := <-held:
		t.Fatalf("the zombie was answered %s, want a delay", got.body)
	default:
	}
	// The prober has one for a moment.
	await.True(t, "no database connection is busy during the delay", func() bool { return h.store.PoolStats().Busy == 0 })
	h.gateway.Drain()
	last := <-held
	if expectProblem(t, last, api.CodeTokenStale); !bytes.Equal(last.body, first.body) {
		t.Errorf("the delayed answer is %s, want %s", last.body, first.body)
	}
}

// A delay ends when its client hangs up.
func TestDelayedClientHangsUp(t *testing.T) {
	h, zombie, _, _ := newHammered(t)
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- h.putFor(ctx, t, zombie, 1, "late") }()
	h.awaitMetric(t, 1, "fencegate_write_refusals_delayed")
	leave()
	if err := <-gone; err == nil {
		t.Error("the request that was cancelled returned an answer")
	}
	h.awaitMetric(t, 0, "fencegate_write_refusals_delayed")
}

// At most refusalDelaysMax answers are delayed at the same time.
func TestDelaysAreBounded(t *testing.T) {
	h, zombie, _, _ := newHammered(t)
	h.gateway.RefusalDelays.Delayed.Add(endpoint.RefusalDelaysMax)
	expectProblem(t, h.put(t, zombie, 1, "late"), api.CodeTokenStale)
	if now := h.gateway.RefusalDelays.Delayed.Load(); now != endpoint.RefusalDelaysMax {
		t.Errorf("%d answers are delayed, want %d", now, endpoint.RefusalDelaysMax)
	}
}

// The gateway pauses reading from a stream whose lines are all refused. Each line gets its verdict.
func TestBulkRefusalsPauseReading(t *testing.T) {
	h := newHarness(t, Config{RefusalDelayMax: time.Minute})
	zombie, _ := h.zombie(t, "job")
	stream := h.openBulk(t)
	line := putLine(zombie, 1, "key", "1")
	for range 3 {
		stream.write(t, strings.Repeat(line, endpoint.BulkRefusalsMax))
		for range endpoint.BulkRefusalsMax {
			if verdict := stream.next(t); verdict.Code != api.CodeTokenStale {
				t.Fatalf("the verdict is %s, want token_stale", verdict.text)
			}
		}
	}
	_ = stream.send.Close()
	stream.ended(t, api.BulkComplete, 3*endpoint.BulkRefusalsMax+1)
	h.awaitMetric(t, 0, "fencegate_write_refusals_delayed")
	metrics, _ := h.scrape(t)
	if pauses := metrics.value("fencegate_write_refusals_delayed_total"); pauses < 2 {
		t.Errorf("the stream was read with %g pauses, want at least 2", pauses)
	}
}
