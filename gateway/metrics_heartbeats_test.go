package gateway

import (
	"cmp"
	"net/http"
	"testing"
	"time"
)

// A heartbeat is late if more than a third of the TTL has passed, also if it comes too late for its lease.
func TestMetricsOfHeartbeats(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "a", "w")
	session := h.createSession(t, "w", time.Hour)
	keep := func() answer { return h.keepAlive(t, session) }
	renew := func() answer { return h.post(t, lockPath("a", "/renew"), refOf(lease)) }
	const lateness = "fencegate_heartbeat_lateness_seconds"
	const leases = "update fence.leases set expires_at = expires_at - interval '"
	const sessions = "update fence.sessions set expires_at = expires_at - interval '"
	renewAfterOther := func() answer {
		h.acquire(t, "a", "other")
		return renew()
	}
	late, reported := 0.0, 0.0
	for _, c := range []struct {
		what, change string
		heartbeat    func() answer
		status       int
		late         float64 // -1: it is not known
	}{
		{"in time", leases + "15 minutes'", renew, http.StatusOK, 0},
		{"late", leases + "25 minutes'", renew, http.StatusOK, 300},
		{"too late", leases + "70 minutes'", renew, http.StatusConflict, 3000},
		{"after the next was granted", "", renewAfterOther, http.StatusConflict, 3000},
		{"after it was forgotten", "delete from fence.leases where owner_id = 'w'", renew, http.StatusConflict, -1},
		{"a session's, in time", sessions + "15 minutes'", keep, http.StatusOK, 0},
		{"a session's, late", sessions + "25 minutes'", keep, http.StatusOK, 300},
		{"a session's, too late", sessions + "70 minutes'", keep, http.StatusConflict, 3000},
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
