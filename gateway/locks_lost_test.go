package gateway

import (
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/gateway/api"
)

// A lease that is not the caller's can be neither renewed nor released, and the caller is told why (P6).
func TestLeaseLost(t *testing.T) {
	h := newHarness(t, Config{})
	for _, group := range []struct {
		reason  string
		end     func(t *testing.T, lease api.Lease)
		release api.Code // "": a release still succeeds
	}{
		{"expired", func(t *testing.T, lease api.Lease) { h.expire(t, lease) }, ""},
		{"released", func(t *testing.T, lease api.Lease) { h.release(t, lease) }, ""},
		{"broken", func(t *testing.T, lease api.Lease) {
			as[api.Broken](t, h.post(t, lockPath(lease.Lock, "/break"), `{"reason":"stuck"}`), http.StatusOK)
		}, api.CodeLeaseLost},
		{"superseded", func(t *testing.T, lease api.Lease) {
			h.expire(t, lease)
			h.acquire(t, lease.Lock, "next")
		}, api.CodeLeaseLost},
	} {
		t.Run(group.reason, func(t *testing.T) {
			lease := h.acquire(t, "lost/"+group.reason, "worker")
			group.end(t, lease)
			h.unchanged(t, func() {
				lost := refused(t, h.post(t, lockPath(lease.Lock, "/renew"), refOf(lease)), api.CodeLeaseLost)
				if lost.Reason != group.reason || lost.Retryable {
					t.Errorf("the renewal is told %q, retryable %v", lost.Reason, lost.Retryable)
				}
			})
			if group.release == "" {
				h.release(t, lease)
				return
			}
			if lost := refused(t, h.post(t, lockPath(lease.Lock, "/release"), refOf(lease)), group.release); lost.Reason != group.reason {
				t.Errorf("the release is told %q", lost.Reason)
			}
		})
	}
}

func TestLeaseMismatch(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	other := h.acquire(t, "other", "worker")
	for name, change := range map[string]func(*api.Lease){
		"owner":             func(l *api.Lease) { l.OwnerID = "someone" },
		"lease_id":          func(l *api.Lease) { l.LeaseID = uuid.NewString() },
		"another's":         func(l *api.Lease) { l.LeaseID = other.LeaseID },
		"token too great":   func(l *api.Lease) { l.FencingToken = 1<<53 - 1 },
		"token of another":  func(l *api.Lease) { l.FencingToken = other.FencingToken },
		"owner with spaces": func(l *api.Lease) { l.OwnerID = "worker " },
	} {
		t.Run(name, func(t *testing.T) {
			stolen := lease
			change(&stolen)
			h.unchanged(t, func() {
				for _, action := range []string{"/renew", "/release"} {
					if lost := refused(t, h.post(t, lockPath("job", action), refOf(stolen)), api.CodeLeaseLost); lost.Reason != "mismatch" {
						t.Errorf("%s: the reason is %q", action, lost.Reason)
					}
				}
			})
		})
	}
	h.release(t, lease)
}

func TestNoSuchLock(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	h.unchanged(t, func() {
		refused(t, h.post(t, lockPath("nowhere", "/renew"), refOf(lease)), api.CodeNotFound)
		refused(t, h.post(t, lockPath("nowhere", "/release"), refOf(lease)), api.CodeNotFound)
		refused(t, h.post(t, lockPath("nowhere", "/break"), `{"reason":"stuck"}`), api.CodeNotFound)
		refused(t, h.get(t, lockPath("nowhere", "")), api.CodeNotFound)
	})
}

func TestBreak(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	got := h.post(t, lockPath("job", "/break"), `{"reason":"it hangs"}`)
	broken := as[api.Broken](t, got, http.StatusOK)
	if want := (api.Broken{Broken: true, Lock: "job", OwnerID: "worker", FencingToken: lease.FencingToken}); broken != want {
		t.Errorf("broken: %+v, want %+v", broken, want)
	}
	stale := refused(t, h.put(t, lease, 1, "late"), api.CodeTokenStale)
	if stale.Reason != "released" {
		t.Errorf("the fence was closed; the reason is %q", stale.Reason)
	}
	refused(t, h.post(t, lockPath("job", "/break"), `{"reason":"again"}`), api.CodeNotFound)

	late := h.acquire(t, "job", "worker")
	h.expire(t, late)
	as[api.Broken](t, h.post(t, lockPath("job", "/break"), `{"reason":"late"}`), http.StatusOK)
	refused(t, h.put(t, late, 1, "late"), api.CodeTokenStale)
}
