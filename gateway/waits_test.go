package gateway

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// The wait graph has every waiter and the leases and earlier waiters that block it, up to the limit.
func TestWaits(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "a/1", hostile)
	other := h.acquire(t, "other", "idle")
	first := h.waitInQueue(t, "a/1", api.AcquireRequest{OwnerID: "w1"})
	second := h.waitInQueue(t, "a/1", api.AcquireRequest{OwnerID: "w2", Mode: "shared"})
	apart := h.waitInQueue(t, "other", api.AcquireRequest{OwnerID: "w3"})
	show := func(graph api.Waits) (text string) {
		for _, wait := range graph.Waits {
			text += fmt.Sprintf("%s waits for %s (%s, %s)", wait.OwnerID, wait.Lock, wait.Mode, wait.Scope)
			for _, in := range wait.For {
				text += fmt.Sprintf(" %s %s %s", in.OwnerID, in.Relation, in.Lock)
			}
			text += fmt.Sprintln()
		}
		return text + fmt.Sprint(graph.Truncated)
	}
	w1 := "w1 waits for a/1 (exclusive, node) " + hostile + " holds a/1\n"
	w2 := "w2 waits for a/1 (shared, node) " + hostile + " holds a/1 w1 before a/1\n"
	w3 := "w3 waits for other (exclusive, node) idle holds other\n"
	for query, want := range map[string]string{
		"": w1 + w2 + w3 + "false", "?lock=a%2F1": w1 + w2 + "false", "?lock=a/1&limit=2": w1 + w2 + "false",
		"?lock=a/1&limit=1": w1 + "true", "?lock=other": w3 + "false", "?limit=2": w1 + w2 + "true", "?lock=nothing": "false",
	} {
		if got := show(as[api.Waits](t, h.get(t, "/v1/waits"+query), http.StatusOK)); got != want {
			t.Errorf("%q: the graph is %s\nwant %s", query, got, want)
		}
	}
	h.release(t, lease)
	h.release(t, granted(t, first))
	granted(t, second)
	h.release(t, other)
	granted(t, apart)
}
