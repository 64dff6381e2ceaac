package gateway

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/redislease"
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

// newRedisProvider keeps leases in a server.
func newRedisProvider(t *testing.T, databaseURL string, server *redis.Server) *redislease.Leases {
	t.Helper()
	st, err := postgres.Open(t.Context(), postgres.Config{DatabaseURL: databaseURL, StatementTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	provider, err := redislease.New(st, redislease.Config{
		Provider: store.ProviderRedis, URLs: []string{server.URL()}, Timeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(provider.Close)
	return provider
}

// newRedisHarness keeps leases on "jobs" and what is below in Redis.
func newRedisHarness(t *testing.T, config Config) (*harness, *redis.Server) {
	t.Helper()
	parallel(t)
	server := redis.Start(t)
	database := patientDatabase(t)
	provider := newRedisProvider(t, database.DatabaseURL, server)
	h := newGatewayWith(t, config, database, engine.Config{DeadAfter: time.Minute, Providers: []engine.LeaseProvider{provider}})
	h.client = serve(t, conforming(t, h.gateway))
	if policy := h.setPolicy(t, "jobs", `{"leases":"redis"}`); policy.Leases != "redis" {
		t.Fatalf("the policy is %+v", policy)
	}
	return h, server
}

// A lease in Redis is shown as one, and PostgreSQL does not hear of its renewals.
func TestLeaseInRedis(t *testing.T) {
	h, _ := newRedisHarness(t, Config{})
	lease := h.acquire(t, "jobs/1", "worker")
	if lease.Provider != "redis" || h.acquire(t, "other", "worker").Provider != "" {
		t.Errorf("the lease is %+v, want it in redis, and others not", lease)
	}
	as[api.WriteResult](t, h.put(t, lease, 1, "value"), http.StatusCreated)
	h.unchanged(t, func() {
		if renewed := h.renew(t, lease); renewed.FencingToken != lease.FencingToken || renewed.Provider != "redis" {
			t.Errorf("renewed is %+v, of %+v", renewed, lease)
		}
		held := expectProblem(t, h.post(t, lockPath("jobs/1", "/acquire"), `{"owner_id":"b"}`), api.CodeLockHeld)
		if held.Holder == nil || held.Holder.OwnerID != "worker" {
			t.Errorf("the lock is held by %+v, want worker", held.Holder)
		}
	})
	if lock := h.lock(t, "jobs/1"); lock.State != "held" || lock.Holders[0].Provider != "redis" {
		t.Errorf("the lock is %+v, want it held in redis", lock)
	} else if holder := lock.Holders[0]; time.Until(holder.ExpiresAt.Time) > time.Duration(holder.TTLMS)*time.Millisecond {
		t.Errorf("the lease expires at %s, want what Redis says: at most %d ms from now", holder.ExpiresAt, holder.TTLMS)
	}

	// The policy changes while a lease runs. That stays where it is, and the lock is granted when it has ended.
	h.setPolicy(t, "jobs", `{"leases":"postgres"}`)
	h.renew(t, lease)
	expectProblem(t, h.post(t, lockPath("jobs/1", "/acquire"), `{"owner_id":"b"}`), api.CodeLockHeld)
	h.release(t, lease)
	if moved := h.acquire(t, "jobs/1", "b"); moved.Provider != "" {
		t.Errorf("after the change of the policy the lease is %+v, want it in PostgreSQL", moved)
	}
}

// A lock is held, expired or free, and keeps its last token. A break ends a lease.
func TestLockStates(t *testing.T) {
	h := newHarness(t, Config{})
	expectProblem(t, h.get(t, lockPath("job", "")), api.CodeNotFound)
	lease := h.acquire(t, "job", "worker")
	held := h.lock(t, "job")
	want := api.LockHolder{OwnerID: "worker", FencingToken: lease.FencingToken, TTLMS: longTTL, Mode: "exclusive", Scope: "node",
		GrantedAt: lease.GrantedAt, ExpiresAt: lease.ExpiresAt}
	if held.State != "held" || held.FencingToken != lease.FencingToken || len(held.Holders) != 1 || held.Queue == nil ||
		encode(held.Holders[0]) != encode(want) {
		t.Fatalf("the lock is %s, want it held by %s", encode(held), encode(want))
	}
	h.expire(t, lease)
	if late := h.lock(t, "job"); late.State != "expired" || len(late.Holders) != 1 {
		t.Errorf("the lock with an expired lease is %+v", late)
	}
	broken := api.Broken{Broken: true, Lock: "job", OwnerID: "worker", FencingToken: lease.FencingToken}
	if got := h.breakLock(t, "job", "it hangs"); got != broken {
		t.Errorf("the break returned %+v, want %+v", got, broken)
	}
	expectReason(t, h.put(t, lease, 1, "late"), api.CodeTokenStale, "released")
	expectProblem(t, h.post(t, lockPath("job", "/break"), `{"reason":"again"}`), api.CodeNotFound)
	free := h.lock(t, "job")
	if free.State != "free" || free.Holders == nil || len(free.Holders) != 0 || free.FencingToken != lease.FencingToken {
		t.Errorf("the lock is %+v, want it free, with its last token", free)
	}
}

// A session is made, kept alive, shown and ended with its leases. The conformance suite of providers has its rules.
func TestSession(t *testing.T) {
	h := newHarness(t, Config{})
	created := h.post(t, "/v1/sessions", `{"owner_id":"worker-1","ttl_ms":60000,"metadata":{"pid":7}}`)
	session := as[api.Session](t, created, http.StatusCreated)
	if session.OwnerID != "worker-1" || session.TTLMS != 60000 || session.State != "live" || session.Leases != nil ||
		string(session.Metadata) != `{"pid":7}` || session.ExpiresAt.Sub(session.CreatedAt.Time) != time.Minute {
		t.Errorf("a field of the session is wrong: %s", created.body)
	}
	request := api.AcquireRequest{OwnerID: "worker-1", SessionID: &session.SessionID}
	lease := h.acquireAs(t, "a", request)
	if lease.SessionID != session.SessionID || lease.TTLMS != 60000 || !lease.ExpiresAt.Equal(session.ExpiresAt.Time) {
		t.Errorf("the lease %+v does not match its session %+v", lease, session)
	}
	for _, body := range []string{" {} ", ""} {
		kept := as[api.Session](t, h.post(t, sessionPath(session)+"/keepalive", body), http.StatusOK)
		if !kept.ExpiresAt.After(session.ExpiresAt.Time) || kept.State != "live" || kept.SessionID != session.SessionID {
			t.Errorf("the keepalive of %+v returned %+v", session, kept)
		}
	}
	for i, want := range []struct {
		state            string
		leases, released int64
	}{{"live", 1, 1}, {"ended", 0, 0}} {
		if shown := h.session(t, session); value(shown.Leases) != want.leases || shown.State != want.state {
			t.Errorf("the session is shown as %+v, want it %s with %d leases", shown, want.state, want.leases)
		}
		if ended := h.endSession(t, session); !ended.Ended || int64(ended.Released) != want.released {
			t.Errorf("end %d returned %+v, want %d released leases", i+1, ended, want.released)
		}
	}
	for _, got := range []answer{h.keepAlive(t, session), h.post(t, lockPath("b", "/acquire"), encode(request))} {
		lost := expectReason(t, got, api.CodeLeaseLost, "released")
		if !strings.Contains(lost.Detail, "The session has ended: released") || lost.Retryable {
			t.Errorf("%s: want not retryable, and the end of the session in the detail, got %s", got.request, got.body)
		}
	}
}
