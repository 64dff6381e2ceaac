package gateway

import (
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// recount has a sample count the inventory, due or not.
func (h *harness) recount(t *testing.T) {
	t.Helper()
	h.exec(t, "update fence.inventory set due_at = '-infinity'")
	h.sample(t)
}

// The inventory of the database is shown as it is counted. Before the first count nothing is shown.
func TestMetricsOfTheInventory(t *testing.T) {
	h := newHarness(t, Config{})
	before, _ := h.scrape(t)
	before.want(t, []wanted{{-1, "fencegate_locks", ""}, {-1, "fencegate_token_jumps", ""}})
	h.expire(t, h.acquire(t, "expired", "w"))
	h.acquire(t, "expiring", "w")
	h.exec(t, `update fence.leases set expires_at = clock_timestamp() + interval '5 minutes', ttl_ms = 3600000
		where lock = 'expiring'`)
	held := h.acquire(t, "held", "w")
	session := h.createSession(t, "w", time.Hour)
	waiter := h.wait(t, "held", api.AcquireRequest{OwnerID: "x", SessionID: &session.SessionID})
	h.awaitQueue(t, "held", "x")
	h.exec(t, "update fence.waiters set queued_at = queued_at - interval '1000 seconds'")
	h.recount(t)
	during, _ := h.scrape(t)
	during.want(t, []wanted{
		{3, "fencegate_locks", ""},
		{2, "fencegate_leases", "state held"},
		{1, "fencegate_leases", "state expiring"},
		{1, "fencegate_leases", "state expired"},
		{1, "fencegate_waiters", ""}, {0, "fencegate_queue_stuck_seconds", ""},
		{1, "fencegate_sessions", ""},
		{float64(held.FencingToken), "fencegate_newest_token", ""},
		{0, "fencegate_token_jumps", ""},
		{0, "fencegate_database_synchronous_expected", ""},
		{0, "fencegate_database_synchronous_standbys", ""},
	})
	if wait := during.value("fencegate_oldest_wait_seconds"); wait < 1000 || wait > 1300 {
		t.Errorf("the oldest wait is %v s, want 1000 or a little more", wait)
	}
	if age := during.value("fencegate_inventory_age_seconds"); age < 0 || age > 300 {
		t.Errorf("the inventory, taken a moment ago, is %v s old", age)
	}
	h.release(t, held)
	granted(t, waiter)
	h.endSession(t, session)
	h.exec(t, "update fence.database_identity set timeline = 0") // as after a failover
	h.acquire(t, "held", "w")
	h.recount(t)
	h.exec(t, "update fence.inventory set at = at - interval '1000 seconds', stuck_ms = 5000")
	h.get(t, overviewPath)
	after, _ := h.scrape(t)
	after.want(t, []wanted{
		{0, "fencegate_waiters", ""}, {0, "fencegate_oldest_wait_seconds", ""}, {5, "fencegate_queue_stuck_seconds", ""},
		{0, "fencegate_sessions", ""}, {1, "fencegate_token_jumps", ""},
	})
	if age := after.value("fencegate_inventory_age_seconds"); age < 1000 {
		t.Errorf("the inventory of 1000 s ago is %v s old", age)
	}
	if newest := after.value("fencegate_newest_token"); newest < 1<<32 {
		t.Errorf("after the jump the newest token is %v", newest)
	}
}
