package gateway

import (
	"net/http"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

func (c client) acquireAs(t testing.TB, lock string, request api.AcquireRequest) api.Lease {
	t.Helper()
	lease := as[api.Lease](t, c.post(t, lockPath(lock, "/acquire"), encode(request)), http.StatusOK)
	if request.Mode != "" && lease.Mode != request.Mode || request.Scope != "" && lease.Scope != request.Scope {
		t.Errorf("%+v was granted %+v", request, lease)
	}
	return lease
}

// Many read, none of them writes, and a writer who waits is not overtaken by readers who come later.
func TestSharedLeases(t *testing.T) {
	h := newHarness(t, Config{})
	var readers []api.Lease
	for _, owner := range []string{"r1", "r2"} {
		readers = append(readers, h.acquireAs(t, "job", api.AcquireRequest{OwnerID: owner, Mode: "shared"}))
	}
	if lock := as[api.Lock](t, h.get(t, lockPath("job", "")), http.StatusOK); len(lock.Holders) != 2 || lock.Holders[0].Mode != "shared" || lock.State != "held" {
		t.Errorf("the lock is %+v", lock)
	}
	got := h.put(t, readers[1], 1, "x")
	if stale := refused(t, got, api.CodeTokenStale); stale.Reason != "shared" {
		t.Errorf("a reader's write is told %s", got.body)
	}
	writer := h.wait(t, "job", api.AcquireRequest{OwnerID: "writer"})
	h.awaitQueue(t, "job", "writer")
	refused(t, h.post(t, lockPath("job", "/acquire"), `{"owner_id":"r3","mode":"shared"}`), api.CodeLockHeld)
	late := h.wait(t, "job", api.AcquireRequest{OwnerID: "r3", Mode: "shared"})
	h.awaitQueue(t, "job", "writer", "r3")
	for _, reader := range readers {
		h.release(t, reader)
	}
	lease := granted(t, writer)
	as[api.WriteResult](t, h.put(t, lease, 1, "x"), http.StatusCreated)
	h.release(t, lease)
	granted(t, late)
	metrics, _ := h.scrape(t)
	if got := metrics.value("fencegate_lease_operations_total", "operation", "acquire", "mode", "shared", "result", "ok"); got != 3 {
		t.Errorf("%v shared leases are counted", got)
	}
}

// A lease on a subtree is one on all names below, and may write there.
func TestSubtreeLeases(t *testing.T) {
	h := newHarness(t, Config{})
	below := h.acquire(t, "a/b/c", "below")
	refused(t, h.post(t, lockPath("a", "/acquire"), `{"owner_id":"w","scope":"subtree"}`), api.CodeLockHeld)
	waiter := h.wait(t, "a", api.AcquireRequest{OwnerID: "w", Scope: "subtree"})
	eventually(t, "the subtree is waited for", func() bool { return h.store.Waiting() == 1 })
	h.release(t, below)
	lease := granted(t, waiter)
	refused(t, h.post(t, lockPath("a/b/c", "/acquire"), `{"owner_id":"below"}`), api.CodeLockHeld)
	refused(t, h.put(t, below, 2, "late"), api.CodeTokenStale)
	as[api.WriteResult](t, h.send(t, http.MethodPut, recordPath("a/b/c", "k"), "x", token(lease, 1)), http.StatusCreated)
}
