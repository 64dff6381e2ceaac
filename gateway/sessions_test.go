package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// A keepalive extends all leases of a session, and the end of the session releases them, at any gateway.
func TestSessionFromCreationToEnd(t *testing.T) {
	h := newHarness(t, Config{})
	second := h.another(t, Config{})
	created := h.post(t, "/v1/sessions", `{"owner_id":"worker-1","ttl_ms":60000,"metadata":{"pid":7}}`)
	session := as[api.Session](t, created, http.StatusCreated)
	if session.OwnerID != "worker-1" || session.TTLMS != 60000 || session.State != "live" || session.Leases != nil ||
		string(session.Metadata) != `{"pid":7}` || session.ExpiresAt.Sub(session.CreatedAt.Time) != time.Minute {
		t.Errorf("a field of the session is wrong: %s", created.body)
	}
	var leases []api.Lease
	for _, lock := range []string{"a", "b"} {
		lease := second.acquireAs(t, lock, api.AcquireRequest{OwnerID: "worker-1", SessionID: &session.SessionID})
		if lease.SessionID != session.SessionID || lease.TTLMS != 60000 || !lease.ExpiresAt.Equal(session.ExpiresAt.Time) {
			t.Errorf("the lease %+v does not match its session %+v", lease, session)
		}
		as[api.WriteResult](t, h.put(t, lease, 1, "x"), http.StatusCreated)
		leases = append(leases, lease)
	}
	for _, got := range []answer{
		second.keepAlive(t, session), second.post(t, sessionPath(session)+"/keepalive", " {} "),
		second.post(t, sessionPath(session)+"/keepalive", ""),
	} {
		kept := as[api.Session](t, got, http.StatusOK)
		if !kept.ExpiresAt.After(session.ExpiresAt.Time) || kept.State != "live" || kept.SessionID != session.SessionID {
			t.Errorf("the keepalive of %+v returned %+v", session, kept)
		}
	}
	if shown := h.session(t, session); value(shown.Leases) != int64(2) || shown.State != "live" {
		t.Errorf("the session is shown as %+v, want it live with 2 leases", shown)
	}

	if ended := h.endSession(t, session); !ended.Ended || ended.Released != 2 {
		t.Errorf("the end returned %+v, want 2 released leases", ended)
	}
	if again := second.endSession(t, session); !again.Ended || again.Released != 0 {
		t.Errorf("the second end returned %+v, want no released leases", again)
	}
	if shown := second.session(t, session); *shown.Leases != 0 || shown.State != "ended" {
		t.Errorf("the session is shown as %+v, want it ended without leases", shown)
	}
	for _, lease := range leases {
		expectProblem(t, h.put(t, lease, 2, "late"), api.CodeTokenStale)
		h.acquire(t, lease.Lock, "next")
	}
	h.expectSessionLost(t, session, "released")
}

// expectSessionLost checks that requests in a session that ended return the reason.
func (h *harness) expectSessionLost(t *testing.T, session api.Session, reason string) {
	t.Helper()
	h.acquire(t, "held", "holder")
	request := api.AcquireRequest{OwnerID: "w", SessionID: &session.SessionID}
	for _, got := range []answer{
		h.keepAlive(t, session),
		h.post(t, lockPath("held", "/acquire"), encode(request)),
		<-h.wait(t, "held", request),
		h.campaign(t, "held", api.CampaignRequest{Candidate: "w", SessionID: &session.SessionID}),
	} {
		lost := expectReason(t, got, api.CodeLeaseLost, reason)
		if !strings.Contains(lost.Detail, "The session has ended: "+reason) || lost.Retryable {
			t.Errorf("%s: want not retryable, and the end of the session in the detail, got %s", got.request, got.body)
		}
	}
}

// A session that is not kept alive loses its leases to the waiters, without a sweep.
func TestSessionExpires(t *testing.T) {
	h := newHarness(t, Config{})
	session := h.createSession(t, "w", 4*time.Second)
	lease := h.acquireAs(t, "job", api.AcquireRequest{OwnerID: "w", SessionID: &session.SessionID})
	next := granted(t, h.wait(t, "job", api.AcquireRequest{OwnerID: "next"}))
	if next.FencingToken <= lease.FencingToken {
		t.Errorf("the lease %+v was followed by %+v, want a greater token", lease, next)
	}
	if shown := h.session(t, session); shown.State != "expired" || *shown.Leases != 0 {
		t.Errorf("the session is shown as %+v, want it expired without leases", shown)
	}
	h.expectSessionLost(t, session, "expired")
	expectProblem(t, h.delete(t, sessionPath(session)), api.CodeLeaseLost)
}

// The waiters of a session that ends leave their queues.
func TestSessionEndsItsWaiters(t *testing.T) {
	h := newHarness(t, Config{})
	session := h.createSession(t, "w", time.Hour)
	lease := h.acquire(t, "job", "holder")
	waiter := h.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "w", SessionID: &session.SessionID})
	other := h.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "other"})
	h.awaitQueue(t, "job", "w", "other")
	h.another(t, Config{}).endSession(t, session)
	expectReason(t, <-waiter, api.CodeLeaseLost, "released")
	h.awaitQueue(t, "job", "other")
	h.release(t, lease)
	granted(t, other)
}
