package gateway

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/terraform"
	"github.com/fencegate/fencegate/internal/testenv/redis"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/redislease"
)

// newRedisProvider keeps leases in a server.
func newRedisProvider(t *testing.T, databaseURL string, server *redis.Server) *redislease.Leases {
	t.Helper()
	st, err := store.Open(t.Context(), store.Config{DatabaseURL: databaseURL, StatementTimeout: time.Hour})
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

// The lock of a state may be kept in Redis.
func TestTerraformLockInRedis(t *testing.T) {
	h, _ := newRedisHarness(t, Config{Terraform: true})
	h.setPolicy(t, "terraform", `{"leases":"redis"}`)
	c := h.terraform("prod")
	if token, again := c.mustLock(t, "a"), c.mustLock(t, "a"); token != again {
		t.Errorf("LOCK with the same ID was granted the tokens %s and %s", token, again)
	}
	as[terraform.LockInfo](t, c.lock(t, "b"), http.StatusLocked)
	c.mustWrite(t, "a", 1, "x")
	as[api.Broken](t, c.unlock(t, ""), http.StatusOK)
	expectReason(t, c.write(t, "a", 2, "late"), api.CodeLeaseLost, "released")
	c.mustLock(t, "b")
	c.mustWrite(t, "b", 2, "y")
	c.mustUnlock(t, "b")
	c.mustLock(t, "c")
	expectReason(t, c.write(t, "b", 3, "late"), api.CodeLeaseLost, "superseded")
}

// A lease in Redis is granted, renewed, shown, broken and released like one in PostgreSQL; PostgreSQL does not hear of
// its renewals.
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

	h.breakLock(t, "jobs/1", "it hangs")
	expectReason(t, h.post(t, lockPath("jobs/1", "/renew"), refOf(lease)), api.CodeLeaseLost, "broken")
	next := h.acquire(t, "jobs/1", "another")
	expectReason(t, h.put(t, lease, 2, "late"), api.CodeTokenStale, "superseded")
	h.release(t, next)
	expectReason(t, h.put(t, next, 1, "after the release"), api.CodeTokenStale, "released")

	// The policy changes while a lease runs. That stays where it is, and the lock is granted when it has ended.
	lease = h.acquire(t, "jobs/1", "worker")
	h.setPolicy(t, "jobs", `{"leases":"postgres"}`)
	h.renew(t, lease)
	expectProblem(t, h.post(t, lockPath("jobs/1", "/acquire"), `{"owner_id":"b"}`), api.CodeLockHeld)
	h.release(t, lease)
	if moved := h.acquire(t, "jobs/1", "b"); moved.Provider != "" {
		t.Errorf("after the change of the policy the lease is %+v, want it in PostgreSQL", moved)
	}
}

// refusedByRedis expects that the answer, the log and the metrics say of the acquires so far that Redis failed, and not
// the database.
func (h *harness) refusedByRedis(t *testing.T, log *logged, acquires int, got answer) {
	t.Helper()
	refused := expectProblem(t, got, api.CodeUnavailable)
	if refused.Title != store.ErrProviderUnavailable.Error() || !strings.Contains(refused.Detail, "in Redis (redis)") ||
		strings.Contains(refused.Detail, "database") {
		t.Errorf("%s: answered %+v, want a detail that names redis, and not the database", got.request, refused)
	}
	if named, other := log.lines(t, "redis unavailable"), log.lines(t, "database unavailable"); len(named) != acquires || len(other) > 0 {
		t.Errorf("logged are %v and %v, want %d that name redis, and none that names the database", named, other, acquires)
	}
	scraped, _ := h.scrape(t)
	scraped.want(t, []wanted{
		{float64(acquires), "fencegate_lease_operations_total", "operation acquire mode exclusive result redis_unavailable"},
		{0, "fencegate_lease_operations_total", "operation acquire mode exclusive result unavailable"},
	})
}

// What Redis can't keep is refused. Without Redis nothing is granted or renewed, and writes go on.
func TestLeaseInRedisIsRefused(t *testing.T) {
	log := &logged{}
	h, server := newRedisHarness(t, Config{Logger: slog.New(slog.NewJSONHandler(log, nil))})
	lease := h.acquire(t, "jobs/1", "worker")
	session := h.createSession(t, "worker", time.Hour)
	for _, body := range []string{
		`{"owner_id":"a","mode":"shared"}`, `{"owner_id":"a","scope":"subtree"}`,
		`{"owner_id":"a","session_id":"` + session.SessionID + `"}`,
	} {
		expectProblem(t, h.post(t, lockPath("jobs/2", "/acquire"), body), api.CodeUnsupported)
	}
	expectProblem(t, h.campaign(t, "jobs/2", api.CampaignRequest{Candidate: "a"}), api.CodeUnsupported)
	h.setPolicy(t, "votes", `{"leases":"redlock"}`) // of which this gateway has no servers
	expectProblem(t, h.post(t, lockPath("votes", "/acquire"), `{"owner_id":"a"}`), api.CodeUnsupported)
	for _, policy := range []string{`{"leases":"etcd"}`, `{"leases":"redis","require_live_lease":true}`} {
		expectProblem(t, h.send(t, http.MethodPut, "/v1/policies/bad", policy), api.CodeInvalidRequest)
	}

	server.Do("RPUSH", "jobs/list", "a")
	for i, c := range []struct{ lock, breaks, heals string }{
		{"jobs/list", "PING", "PING"},
		{"jobs/2", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"},
		{"jobs/2", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"},
	} {
		server.Do(strings.Fields(c.breaks)...)
		h.refusedByRedis(t, log, i+1, h.post(t, lockPath(c.lock, "/acquire"), `{"owner_id":"a"}`))
		server.Do(strings.Fields(c.heals)...)
	}
	server.Kill()
	h.refusedByRedis(t, log, 4, h.post(t, lockPath("jobs/2", "/acquire"), `{"owner_id":"a"}`))
	expectProblem(t, h.post(t, lockPath("jobs/1", "/renew"), refOf(lease)), api.CodeUnavailable)
	as[api.WriteResult](t, h.put(t, lease, 1, "value"), http.StatusCreated)
	if lock := h.lock(t, "jobs/1"); lock.State != "held" {
		t.Errorf("without Redis the lock is %+v, want what PostgreSQL believes", lock)
	}
}
