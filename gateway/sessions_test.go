package gateway

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
)

func sessionPath(session api.Session) string { return "/v1/sessions/" + session.SessionID }

func (c client) session(t testing.TB, session api.Session) api.Session {
	t.Helper()
	return as[api.Session](t, c.get(t, sessionPath(session)), http.StatusOK)
}

// One heartbeat keeps any number of leases, and one end releases them, at whichever gateway.
func TestSessionLife(t *testing.T) {
	h := newHarness(t, Config{})
	second := h.another(t, Config{})
	created := h.post(t, "/v1/sessions", `{"owner_id":"worker-1","ttl_ms":60000,"metadata":{"pid":7}}`)
	session := as[api.Session](t, created, http.StatusCreated)
	if session.OwnerID != "worker-1" || session.TTLMS != 60000 || session.State != "live" || string(session.Metadata) != `{"pid":7}` ||
		session.ExpiresAt.Sub(session.CreatedAt.Time) != time.Minute || session.Leases != nil {
		t.Errorf("the session is %s", created.body)
	}
	var leases []api.Lease
	for _, lock := range []string{"a", "b"} {
		lease := second.acquireAs(t, lock, api.AcquireRequest{OwnerID: "worker-1", SessionID: &session.SessionID})
		if lease.SessionID != session.SessionID || lease.TTLMS != 60000 || !lease.ExpiresAt.Equal(session.ExpiresAt.Time) {
			t.Errorf("in %+v was granted %+v", session, lease)
		}
		as[api.WriteResult](t, h.put(t, lease, 1, "x"), http.StatusCreated)
		leases = append(leases, lease)
	}
	for _, keepAlive := range []func() answer{
		func() answer { return second.send(t, http.MethodPost, sessionPath(session)+"/keepalive", "") },
		func() answer { return second.post(t, sessionPath(session)+"/keepalive", " {} ") },
		func() answer { return second.post(t, sessionPath(session)+"/keepalive", "") },
	} {
		kept := as[api.Session](t, keepAlive(), http.StatusOK)
		if !kept.ExpiresAt.After(session.ExpiresAt.Time) || kept.State != "live" || kept.SessionID != session.SessionID {
			t.Errorf("kept alive, %+v is %+v", session, kept)
		}
	}
	if shown := h.session(t, session); shown.Leases == nil || *shown.Leases != 2 || shown.State != "live" {
		t.Errorf("it is shown as %+v", shown)
	}

	if ended := as[api.SessionEnded](t, h.send(t, http.MethodDelete, sessionPath(session), ""), http.StatusOK); !ended.Ended || ended.Released != 2 {
		t.Errorf("it ended with %+v", ended)
	}
	if again := as[api.SessionEnded](t, second.send(t, http.MethodDelete, sessionPath(session), ""), http.StatusOK); !again.Ended || again.Released != 0 {
		t.Errorf("it ended again with %+v", again)
	}
	if shown := second.session(t, session); *shown.Leases != 0 || shown.State != "ended" {
		t.Errorf("ended it is shown as %+v", shown)
	}
	for _, lease := range leases {
		refused(t, h.put(t, lease, 2, "late"), api.CodeTokenStale)
		h.acquire(t, lease.Lock, "next")
	}
	h.sessionLost(t, session, "released")
}

// sessionLost holds what can't be done any more in a session against what it is told.
func (h *harness) sessionLost(t *testing.T, session api.Session, reason string) {
	t.Helper()
	h.acquire(t, "held", "holder")
	request := api.AcquireRequest{OwnerID: "w", SessionID: &session.SessionID}
	for _, got := range []answer{
		h.send(t, http.MethodPost, sessionPath(session)+"/keepalive", ""),
		h.post(t, lockPath("held", "/acquire"), encode(request)),
		<-h.wait(t, "held", request),
		h.post(t, "/v1/elections/held/campaign", encode(api.CampaignRequest{Candidate: "w", SessionID: &session.SessionID})),
	} {
		lost := refused(t, got, api.CodeLeaseLost)
		if lost.Reason != reason || !strings.Contains(lost.Detail, "The session has ended: "+reason) || lost.Retryable {
			t.Errorf("%s: answered %s", got.request, got.body)
		}
	}
}

// A session that is not kept alive takes its leases and its waiters with it; nobody need sweep.
func TestSessionExpires(t *testing.T) {
	h := newHarness(t, Config{})
	session := h.createSession(t, "w", time.Second)
	lease := h.acquireAs(t, "job", api.AcquireRequest{OwnerID: "w", SessionID: &session.SessionID})
	heir := h.wait(t, "job", api.AcquireRequest{OwnerID: "heir"})
	if next := granted(t, heir); next.FencingToken <= lease.FencingToken {
		t.Errorf("after %+v came %+v", lease, next)
	}
	if shown := h.session(t, session); shown.State != "expired" || *shown.Leases != 0 {
		t.Errorf("it is shown as %+v", shown)
	}
	h.sessionLost(t, session, "expired")
	refused(t, h.send(t, http.MethodDelete, sessionPath(session), ""), api.CodeLeaseLost)
}

// The waiters of a session that ends leave their lines.
func TestSessionEndsItsWaiters(t *testing.T) {
	h := newHarness(t, Config{})
	session := h.createSession(t, "w", time.Hour)
	lease := h.acquire(t, "job", "holder")
	waiter := h.wait(t, "job", api.AcquireRequest{OwnerID: "w", SessionID: &session.SessionID})
	h.awaitQueue(t, "job", "w")
	other := h.wait(t, "job", api.AcquireRequest{OwnerID: "other"})
	h.awaitQueue(t, "job", "w", "other")
	as[api.SessionEnded](t, h.another(t, Config{}).send(t, http.MethodDelete, sessionPath(session), ""), http.StatusOK)
	if lost := refused(t, <-waiter, api.CodeLeaseLost); lost.Reason != "released" {
		t.Errorf("the waiter is told %+v", lost)
	}
	h.awaitQueue(t, "job", "other")
	h.release(t, lease)
	granted(t, other)
}

// A session's ID is not in the log, wherever in a path it stands, and not in what others may hear of a request.
func TestSessionsAreNotLogged(t *testing.T) {
	var log strings.Builder
	h := newGateway(t, Config{}, store.Config{DatabaseURL: pgtest.Migrated(t)})
	h.gateway.config.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h.client = serve(t, conforming(t, h.gateway))
	session := h.createSession(t, "w", time.Hour)
	path := sessionPath(session)
	as[api.Session](t, h.send(t, http.MethodPost, path+"/keepalive", ""), http.StatusOK)
	h.session(t, session)
	for _, path := range []string{path + "/nothing", path + "/", "/" + path, path + "?x=1", strings.Replace(path, "sessions/", "sessions//", 1), "/v1/sessions/" + noSession} {
		got := h.get(t, path)
		if got.status < http.StatusBadRequest || strings.Contains(string(got.body), session.SessionID) || strings.Contains(string(got.body), noSession) {
			t.Errorf("%s: answered %d %s", path, got.status, got.body)
		}
	}
	h.acquireAs(t, "job", api.AcquireRequest{OwnerID: "w", SessionID: &session.SessionID})
	h.send(t, http.MethodPatch, path, "")
	as[api.SessionEnded](t, h.send(t, http.MethodDelete, path, ""), http.StatusOK)
	refused(t, h.send(t, http.MethodPost, path+"/keepalive", ""), api.CodeLeaseLost)
	h.get(t, "/healthz")
	if text := log.String(); containsAny(text, session.SessionID, noSession) || !strings.Contains(text, "path=/v1/sessions/…") {
		t.Errorf("the log is %s", text)
	}
}
