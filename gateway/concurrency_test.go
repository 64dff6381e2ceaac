package gateway

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// Many clients increment records under locks, and write again after their release. No increment is lost and no late
// write is admitted (P1, P3, P4).
func TestManyClients(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := newHarness(t, Config{})
		h.http = newHTTPClient(t, http2)
		const clients, rounds, locks = 64, 1, 32
		var counted [locks]atomic.Int64
		var running sync.WaitGroup
		for id := range clients {
			running.Go(func() {
				for round := 0; round < rounds && !t.Failed(); {
					lock := rand.N(locks)
					if h.increment(t, "counter/"+strconv.Itoa(lock), strconv.Itoa(id)) {
						counted[lock].Add(1)
						round++
					}
				}
			})
		}
		running.Wait()
		for lock := range locks {
			got := h.get(t, recordPath("counter/"+strconv.Itoa(lock), "k"))
			stored, _ := strconv.ParseInt(string(got.body), 10, 64)
			if got.status != http.StatusOK {
				stored = 0 // no client took this lock
			}
			if stored != counted[lock].Load() {
				t.Errorf("counter %d is %d, want %d", lock, stored, counted[lock].Load())
			}
		}
		if got := h.get(t, "/healthz"); (got.proto == 2) != http2 {
			t.Errorf("the answers came over HTTP/%d", got.proto)
		}
	})
}

// increment acquires a lock, increments its record, releases the lock and writes late. It returns false if the lock is
// held.
func (h *harness) increment(t *testing.T, lock, owner string) bool {
	got := h.post(t, lockPath(lock, "/acquire"), encode(api.AcquireRequest{OwnerID: owner}))
	if got.status == http.StatusConflict {
		expectProblem(t, got, api.CodeLockHeld)
		return false
	}
	lease := as[api.Lease](t, got, http.StatusOK)
	read := h.get(t, recordPath(lock, "k"))
	stored, condition := int64(0), "If-None-Match: *"
	if read.status == http.StatusOK {
		stored, _ = strconv.ParseInt(string(read.body), 10, 64)
		condition = "If-Match: " + read.header.Get("ETag")
	}
	written := h.send(t, http.MethodPut, recordPath(lock, "k"), strconv.FormatInt(stored+1, 10), token(lease, 1),
		condition)
	as[api.WriteResult](t, written, written.status)
	h.release(t, lease)
	late := expectProblem(t, h.put(t, lease, 2, "0"), api.CodeTokenStale)
	if late.Reason != "released" && late.Reason != "superseded" {
		t.Errorf("the late write was rejected with the reason %q, want released or superseded", late.Reason)
	}
	return true
}
