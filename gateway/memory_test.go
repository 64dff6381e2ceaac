package gateway

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

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
	for limit, want := range map[int64]int{math.MaxInt64: 50_000, 400 << 20: 6_400, 1: 1} {
		if got := waitingWithin(limit); got != want {
			t.Errorf("with a memory limit of %d, %d acquires may wait, want %d", limit, got, want)
		}
	}
}
