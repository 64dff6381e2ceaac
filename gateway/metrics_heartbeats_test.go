package gateway

import (
	"cmp"
	"net/http"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// A renewal is late when a third of the TTL is over; one that comes too late for its lease is so, too.
func TestMetricsOfHeartbeats(t *testing.T) {
	h := newHarness(t, Config{})
	hour := time.Hour.Milliseconds()
	lease := h.acquireAs(t, "a", api.AcquireRequest{OwnerID: "w", TTLMS: &hour})
	session := h.createSession(t, "w", time.Hour)
	keep := func() answer { return h.post(t, sessionPath(session)+"/keepalive", "") }
	renew := func() answer { return h.post(t, lockPath("a", "/renew"), refOf(lease)) }
	const lateness = "fencegate_heartbeat_lateness_seconds"
	late, reported := 0.0, 0.0
	for _, c := range []struct {
		what, change string
		heartbeat    func() answer
		status       int
		late         float64 // -1: it is not known
	}{
		{"in time", "update fence.leases set expires_at = expires_at - interval '15 minutes'", renew, http.StatusOK, 0},
		{"late", "update fence.leases set expires_at = expires_at - interval '25 minutes'", renew, http.StatusOK, 300},
		{"too late", "update fence.leases set expires_at = expires_at - interval '70 minutes'", renew, http.StatusConflict, 3000},
		{"after the next was granted", "", func() answer { h.acquire(t, "a", "other"); return renew() }, http.StatusConflict, 3000},
		{"after it was forgotten", "delete from fence.leases where owner_id = 'w'", renew, http.StatusConflict, -1},
		{"a session's, in time", "update fence.sessions set expires_at = expires_at - interval '15 minutes'", keep, http.StatusOK, 0},
		{"a session's, late", "update fence.sessions set expires_at = expires_at - interval '25 minutes'", keep, http.StatusOK, 300},
		{"a session's, too late", "update fence.sessions set expires_at = expires_at - interval '70 minutes'", keep, http.StatusConflict, 3000},
	} {
		h.exec(t, cmp.Or(c.change, "select"))
		if got := c.heartbeat(); got.status != c.status {
			t.Fatalf("%s: %d %s", c.what, got.status, got.body)
		}
		metrics, _ := h.scrape(t)
		now := metrics.value(lateness)
		if c.late >= 0 {
			reported++
			if by := metrics.sum(lateness) - late; by < c.late || by > c.late+300 || c.late == 0 && by != 0 {
				t.Errorf("%s: %v s late, want %v", c.what, by, c.late)
			}
		}
		if now != reported {
			t.Errorf("%s: %v heartbeats are counted, want %v", c.what, now, reported)
		}
		late = metrics.sum(lateness)
	}
}
