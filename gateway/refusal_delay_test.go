package gateway

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// hammered is a gateway that was sent so many writes with a stale token that the next answer takes as long as it may: a minute.
func hammered(t *testing.T) (h *harness, zombie, current api.Lease, at answer) {
	h = newHarness(t, Config{RefusalDelayMax: time.Minute})
	zombie, current = h.zombie(t, "job")
	for range refusalsFree { // none of these waits
		at = h.put(t, zombie, 1, "late")
		refused(t, at, api.CodeTokenStale)
	}
	for range 20 {
		h.gateway.refusalDelays.count(&store.RejectedError{Resource: "job", Token: zombie.FencingToken})
	}
	return h, zombie, current, at
}

// The answer to a client that goes on after it was refused is delayed, and nobody else's is. When the gateway drains, the client gets the
// same answer as before.
func TestRefusedAgainIsDelayed(t *testing.T) {
	h, zombie, current, first := hammered(t)
	held := inBackground(func() answer { return h.put(t, zombie, 1, strings.Repeat("late", bodyFreeBytes)) })
	h.awaitMetric(t, 1, "fencegate_write_refusals_delayed")
	if used := h.bodyBytes(); used != 0 {
		t.Errorf("%d bytes of its body are held", used)
	}
	as[api.WriteResult](t, h.put(t, current, 1, "x"), http.StatusCreated)
	other, _ := h.zombie(t, "other")
	refused(t, h.put(t, other, 1, "late"), api.CodeTokenStale)
	for range refusalsFree + 2 { // which are ordinary, and no sign of a zombie
		got := h.send(t, http.MethodPut, recordPath("job", "key"), "x", token(current, 2), `If-Match: "7"`)
		refused(t, got, api.CodeVersionMismatch)
	}
	select {
	case got := <-held:
		t.Fatalf("it was answered at once: %s", got.body)
	default:
	}
	if busy := h.store.PoolStats().Busy; busy != 0 {
		t.Errorf("%d connections are busy", busy)
	}
	h.gateway.drain()
	last := <-held
	if refused(t, last, api.CodeTokenStale); !bytes.Equal(last.body, first.body) {
		t.Errorf("the answer is %s, and was %s", last.body, first.body)
	}
}

// A delay ends when the client is gone.
func TestDelayedClientGoes(t *testing.T) {
	h, zombie, _, _ := hammered(t)
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := h.putFor(ctx, t, zombie, 1, "late")
		gone <- err
	}()
	h.awaitMetric(t, 1, "fencegate_write_refusals_delayed")
	leave()
	if err := <-gone; err == nil {
		t.Error("it was answered")
	}
	h.awaitMetric(t, 0, "fencegate_write_refusals_delayed")
}

// Above the bound no answer is delayed.
func TestDelaysAreBounded(t *testing.T) {
	h, zombie, _, _ := hammered(t)
	h.gateway.refusalDelays.delayed.Add(refusalDelaysMax)
	refused(t, h.put(t, zombie, 1, "late"), api.CodeTokenStale)
	if now := h.gateway.refusalDelays.delayed.Load(); now != refusalDelaysMax {
		t.Errorf("%d are delayed", now)
	}
}

// A stream of which line after line is refused is read with pauses; each line has its verdict.
func TestBulkRefusedAgainIsRead(t *testing.T) {
	h := newHarness(t, Config{RefusalDelayMax: time.Minute})
	zombie, _ := h.zombie(t, "job")
	stream := h.openBulk(t)
	line := putLine(zombie, 1, "key", "1")
	for range 3 {
		stream.write(t, strings.Repeat(line, bulkRefusalsMax))
		for range bulkRefusalsMax {
			if verdict := stream.next(t); verdict.Code != api.CodeTokenStale {
				t.Fatalf("the verdict is %s", verdict.text)
			}
		}
	}
	_ = stream.send.Close()
	stream.ended(t, api.BulkComplete, 3*bulkRefusalsMax+1)
	h.awaitMetric(t, 0, "fencegate_write_refusals_delayed")
	metrics, _ := h.scrape(t)
	if pauses := metrics.value("fencegate_write_refusals_delayed_total"); pauses < 2 {
		t.Errorf("it was read with %g pauses", pauses)
	}
}

func TestRefusalDelays(t *testing.T) {
	d := newRefusalDelays(t.Context(), time.Second, nil)
	for refusals, want := range map[uint64]time.Duration{
		1: 0, refusalsFree: 0, refusalsFree + 1: refusalDelayMin, refusalsFree + 2: 2 * refusalDelayMin, refusalsFree + 6: time.Second, 1 << 16: time.Second,
	} {
		if got := d.after(refusals); got != want {
			t.Errorf("refusal %d is delayed by %s, want %s", refusals, got, want)
		}
	}
}
