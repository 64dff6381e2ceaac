package gateway

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
)

// timeFormat is RFC 3339 in UTC with milliseconds.
var timeFormat = regexp.MustCompile(`"(granted_at|expires_at)":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`)

// A lease is granted with all its fields, renewed for its TTL or another, and released any number of times.
func TestLeaseFromGrantToRelease(t *testing.T) {
	h := newHarness(t, Config{})
	got := h.post(t, lockPath("jobs/42", "/acquire"), `{"owner_id":"worker-1","ttl_ms":60000,"metadata":{"pid":7}}`)
	lease := as[api.Lease](t, got, http.StatusOK)
	if lease.Lock != "jobs/42" || lease.OwnerID != "worker-1" || lease.Mode != "exclusive" || lease.Scope != "node" ||
		lease.TTLMS != 60000 || lease.FencingToken < 1 || lease.WaitedMS != 0 || string(lease.Metadata) != `{"pid":7}` {
		t.Errorf("a field of the lease is wrong: %s", got.body)
	}
	if _, err := uuid.Parse(lease.LeaseID); err != nil {
		t.Errorf("the lease_id is %q, want a UUID", lease.LeaseID)
	}
	if lasts := lease.ExpiresAt.Sub(lease.GrantedAt.Time); lasts != time.Minute {
		t.Errorf("the lease expires %s after its grant, want a minute", lasts)
	}
	if len(timeFormat.FindAllString(string(got.body), -1)) != 2 {
		t.Errorf("the times of %s are not RFC 3339 UTC with milliseconds", got.body)
	}

	renewed := h.renew(t, lease)
	if renewed.TTLMS != 60000 || renewed.FencingToken != lease.FencingToken || renewed.LeaseID != lease.LeaseID ||
		!renewed.GrantedAt.Equal(lease.GrantedAt.Time) || renewed.ExpiresAt.Before(lease.ExpiresAt.Time) {
		t.Errorf("the lease %+v was renewed as %+v", lease, renewed)
	}
	longer := encode(api.RenewRequest{
		OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken, TTLMS: new(int64(3_600_000)),
	})
	renewed = as[api.Lease](t, h.post(t, lockPath("jobs/42", "/renew"), longer), http.StatusOK)
	if renewed.TTLMS != 3_600_000 || renewed.ExpiresAt.Sub(lease.ExpiresAt.Time) < 58*time.Minute {
		t.Errorf("the lease was renewed as %+v, want an hour", renewed)
	}

	h.release(t, lease)
	h.release(t, lease)
	if again := h.acquire(t, "jobs/42", "worker-2"); again.FencingToken <= lease.FencingToken {
		t.Errorf("token %d was granted after %d", again.FencingToken, lease.FencingToken)
	}
}

func TestAcquireDefaults(t *testing.T) {
	h := newHarness(t, Config{})
	for name, body := range map[string]string{
		"absent": `{"owner_id":"w"}`,
		"null": `{"owner_id":"w","ttl_ms":null,"mode":null,"scope":null,"wait_ms":null,"session_id":null,` +
			`"request_id":null,"metadata":null}`,
		"given":  `{"owner_id":"w","ttl_ms":30000,"mode":"exclusive","scope":"node","wait_ms":0,"metadata":{}}`,
		"spaced": "\n\t{ \"owner_id\" : \"w\" }\n",
	} {
		got := as[api.Lease](t, h.post(t, lockPath(name, "/acquire"), body), http.StatusOK)
		if got.TTLMS != 30000 || got.Mode != "exclusive" || got.Scope != "node" || got.OwnerID != "w" {
			t.Errorf("%s: the lease is %+v, want the defaults", name, got)
		}
	}
}

// The greatest and least values are accepted. Locks show the metadata, but not the lease_id.
func TestAcquireLimits(t *testing.T) {
	h := newHarness(t, Config{})
	longest := strings.Repeat("é", 128)
	metadata := `{"a":"` + strings.Repeat("x", 4096-8) + `"}`
	for name, field := range map[string]string{
		"ttl least": `"ttl_ms":100`, "ttl most": `"ttl_ms":86400000`, "request": `"request_id":"` + longest + `"`,
		"metadata": `"metadata":` + metadata, "content type": `"wait_ms":0`,
	} {
		got := h.send(t, http.MethodPost, lockPath(name, "/acquire"), `{"owner_id":"`+longest+`",`+field+`}`,
			`Content-Type: Application/JSON; charset="utf-8"`)
		as[api.Lease](t, got, http.StatusOK)
	}
	shown := h.get(t, lockPath("metadata", ""))
	lock := as[api.Lock](t, shown, http.StatusOK)
	if len(lock.Holders) != 1 || string(lock.Holders[0].Metadata) != metadata ||
		strings.Contains(string(shown.body), `"lease_id"`) {
		t.Errorf("the lock is shown as %s, want one holder with its metadata and no lease_id", shown.body)
	}
}

// An acquire that is sent again returns the same lease, or says how that lease ended.
func TestAcquireAgain(t *testing.T) {
	h := newHarness(t, Config{})
	acquire := func(body string) answer { return h.post(t, lockPath("job", "/acquire"), body) }
	const body = `{"owner_id":"w","request_id":"r-1"}`
	first := as[api.Lease](t, acquire(body), http.StatusOK)
	if again := as[api.Lease](t, acquire(body), http.StatusOK); again.LeaseID != first.LeaseID {
		t.Errorf("the acquire sent again was granted %+v, want the lease %+v", again, first)
	}
	expectProblem(t, acquire(`{"owner_id":"w","request_id":"r-1","ttl_ms":1000}`), api.CodeInvalidRequest)
	expectProblem(t, acquire(`{"owner_id":"w"}`), api.CodeLockHeld) // locks are not re-entrant
	h.release(t, first)
	expectReason(t, acquire(body), api.CodeLeaseLost, "released")
}

func TestLockHeld(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker-1")
	var got answer
	h.unchanged(t, func() { got = h.post(t, lockPath("job", "/acquire"), `{"owner_id":"worker-2"}`) })
	held := expectProblem(t, got, api.CodeLockHeld)
	if held.Holder == nil || held.Holder.OwnerID != "worker-1" || !held.Holder.ExpiresAt.Equal(lease.ExpiresAt.Time) {
		t.Errorf("the holder is missing or wrong: %s", got.body)
	}
	if held.QueueLength == nil || *held.QueueLength != 0 {
		t.Errorf("queue_length is missing or wrong: %s", got.body)
	}
	if held.RecommendedRetryMS == nil || *held.RecommendedRetryMS < 50 || *held.RecommendedRetryMS > 1250 ||
		!held.Retryable {
		t.Fatalf("recommended_retry_ms or retryable is missing or wrong: %s", got.body)
	}
	seconds, _ := strconv.ParseInt(got.header.Get("Retry-After"), 10, 64)
	if wait := seconds * 1000; wait < *held.RecommendedRetryMS || wait >= *held.RecommendedRetryMS+1000 {
		t.Errorf("Retry-After is %d s, want %d ms rounded up", seconds, *held.RecommendedRetryMS)
	}
	if strings.Contains(string(got.body), lease.LeaseID) {
		t.Errorf("the answer to another owner has the lease_id: %s", got.body)
	}
}

// A lock is held, expired or free, and keeps its last token.
func TestLockStates(t *testing.T) {
	h := newHarness(t, Config{})
	expectProblem(t, h.get(t, lockPath("job", "")), api.CodeNotFound)
	lease := h.acquire(t, "job", "worker-1")
	held := h.lock(t, "job")
	if held.State != "held" || held.FencingToken != lease.FencingToken || len(held.Holders) != 1 || held.Queue == nil {
		t.Fatalf("the lock with a holder is %+v", held)
	}
	holder := held.Holders[0]
	if holder.OwnerID != "worker-1" || holder.FencingToken != lease.FencingToken || holder.TTLMS != longTTL ||
		!holder.GrantedAt.Equal(lease.GrantedAt.Time) || !holder.ExpiresAt.Equal(lease.ExpiresAt.Time) ||
		holder.Mode != "exclusive" || holder.Scope != "node" {
		t.Errorf("the holder is %+v, want that of the lease %+v", holder, lease)
	}
	h.expire(t, lease)
	if late := h.lock(t, "job"); late.State != "expired" || len(late.Holders) != 1 {
		t.Errorf("the lock with an expired lease is %+v", late)
	}
	h.release(t, lease)
	free := h.lock(t, "job")
	if free.State != "free" || free.Holders == nil || len(free.Holders) != 0 || free.FencingToken != lease.FencingToken {
		t.Errorf("the released lock is %+v", free)
	}
}

// A lease that ended, or is another's, can't be renewed or released, and the answer says why (P6).
func TestLeaseLost(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	stolen := lease
	stolen.OwnerID = "someone"
	expectLost := func(lease api.Lease, reason string) {
		t.Helper()
		h.unchanged(t, func() {
			for _, action := range []string{"/renew", "/release"} {
				lost := expectReason(t, h.post(t, lockPath("job", action), refOf(lease)), api.CodeLeaseLost, reason)
				if lost.Retryable {
					t.Errorf("%s of a lease that was %s is retryable", action, reason)
				}
				expectProblem(t, h.post(t, lockPath("nowhere", action), refOf(lease)), api.CodeNotFound)
			}
		})
	}
	expectLost(stolen, "mismatch")
	h.expire(t, lease)
	h.release(t, h.acquire(t, "job", "next"))
	expectLost(lease, "superseded")
}

// A break ends a lease, expired or not, and rejects its writes.
func TestBreak(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	want := api.Broken{Broken: true, Lock: "job", OwnerID: "worker", FencingToken: lease.FencingToken}
	if broken := h.breakLock(t, "job", "it hangs"); broken != want {
		t.Errorf("the break returned %+v, want %+v", broken, want)
	}
	expectReason(t, h.put(t, lease, 1, "late"), api.CodeTokenStale, "released")
	expectProblem(t, h.post(t, lockPath("job", "/break"), `{"reason":"again"}`), api.CodeNotFound)

	late := h.acquire(t, "job", "worker")
	h.expire(t, late)
	h.breakLock(t, "job", "late")
	expectProblem(t, h.put(t, late, 1, "late"), api.CodeTokenStale)
}

// Shared leases are held together and can't write.
func TestSharedLeases(t *testing.T) {
	h := newHarness(t, Config{})
	h.acquireAs(t, "job", api.AcquireRequest{OwnerID: "r1", Mode: "shared"})
	reader := h.acquireAs(t, "job", api.AcquireRequest{OwnerID: "r2", Mode: "shared"})
	if lock := h.lock(t, "job"); len(lock.Holders) != 2 || lock.Holders[0].Mode != "shared" || lock.State != "held" {
		t.Errorf("the lock is %+v, want two shared holders", lock)
	}
	expectReason(t, h.put(t, reader, 1, "x"), api.CodeTokenStale, "shared")
	expectProblem(t, h.post(t, lockPath("job", "/acquire"), `{"owner_id":"writer"}`), api.CodeLockHeld)
	metrics, _ := h.scrape(t)
	metrics.want(t, []wanted{{2, "fencegate_lease_operations_total", "operation acquire mode shared result ok"}})
}

// A lease on a subtree covers all names below: it waits for their leases, blocks new ones and may write there.
func TestSubtreeLeases(t *testing.T) {
	h := newHarness(t, Config{})
	below := h.acquire(t, "a/b/c", "below")
	expectProblem(t, h.post(t, lockPath("a", "/acquire"), `{"owner_id":"w","scope":"subtree"}`), api.CodeLockHeld)
	waiter := h.wait(t, "a", api.AcquireRequest{OwnerID: "w", Scope: "subtree"})
	await.True(t, "an acquire waits for the subtree", func() bool { return h.store.Waiting() == 1 })
	h.release(t, below)
	lease := granted(t, waiter)
	expectProblem(t, h.post(t, lockPath("a/b/c", "/acquire"), `{"owner_id":"below"}`), api.CodeLockHeld)
	expectProblem(t, h.put(t, below, 2, "late"), api.CodeTokenStale)
	as[api.WriteResult](t, h.putWith(t, "a/b/c", token(lease, 1)), http.StatusCreated)
}

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
