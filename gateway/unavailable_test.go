package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/readiness"
)

// ready asks /readyz. /healthz must succeed at all times: a database that is down is no reason to restart the gateway.
func (h *harness) ready(t testing.TB) answer {
	t.Helper()
	as[api.Health](t, h.get(t, "/healthz"), http.StatusOK)
	return h.get(t, "/readyz")
}

// awaitNotReady returns when /readyz says that the gateway is not ready, for this reason and with this text.
func (h *harness) awaitNotReady(t testing.TB, reason readiness.Reason, why string) {
	t.Helper()
	await.True(t, fmt.Sprintf("/readyz has the reason %s (%s)", reason, why), func() bool {
		got := h.ready(t)
		if got.status == http.StatusOK {
			return false
		}
		problem := expectUnavailable(t, got, api.OutcomeNotApplied)
		return problem.Reason == string(reason) && strings.Contains(problem.Detail, why)
	})
}

// awaitReady returns when the gateway is ready again, by itself.
func (h *harness) awaitReady(t testing.TB) {
	t.Helper()
	await.True(t, "the gateway is ready again", func() bool { return h.ready(t).status == http.StatusOK })
}

// requestsOf has one request of every kind that needs the database.
func requestsOf(lease api.Lease) []invalidInput {
	json, fenced := []string{jsonType}, []string{token(lease, 2)}
	session, record := "/v1/sessions/"+noSession, recordPath("job", "k")
	requests := []invalidInput{
		{method: "POST", path: "/v1/locks/other/acquire", body: `{"owner_id":"w"}`, headers: json},
		{method: "POST", path: "/v1/locks/job/renew", body: refOf(lease), headers: json},
		{method: "POST", path: "/v1/locks/job/release", body: refOf(lease), headers: json},
		{method: "POST", path: "/v1/locks/job/break", body: `{"reason":"r"}`, headers: json},
		{
			method: "POST", path: "/v1/locks/other/acquire", headers: json,
			body: `{"owner_id":"w","wait_ms":600000,"mode":"shared","scope":"subtree"}`,
		},
		{method: "POST", path: "/v1/sessions", body: `{"owner_id":"w"}`, headers: json},
		{method: "POST", path: session + "/keepalive"},
		{method: "DELETE", path: session},
		{method: "PUT", path: record, body: "x", headers: fenced},
		{method: "DELETE", path: record, headers: fenced},
		{method: "POST", path: "/v1/transactions", body: transaction(lease, 2), headers: json},
		{method: "PUT", path: "/v1/policies/job", body: "{}", headers: json},
		{method: "DELETE", path: "/v1/policies/job"},
	}
	for _, path := range []string{
		session, watchPath, "/v1/locks/job", "/v1/locks", record,
		"/v1/resources/job/records", "/v1/resources/job/fence", "/v1/policies/job", "/v1/policies", "/v1/tables",
		"/v1/sql-roles", "/v1/rejections",
		"/v1/rejections/summary", streamPath, streamPath + "?last_event_id=1",
	} {
		requests = append(requests, invalidInput{method: "GET", path: path})
	}
	return requests
}

// While the database is down, every request fails with unavailable and was not applied. Afterwards requests succeed.
func TestDatabaseDown(t *testing.T) {
	h, cluster := newClusterHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	as[api.WriteResult](t, h.put(t, lease, 1, "before"), http.StatusCreated)

	cluster.Kill()
	h.awaitNoDeadConnection(t)
	requests := requestsOf(lease)
	for _, r := range requests {
		expectUnavailable(t, h.send(t, r.method, r.path, r.body, r.headers...), api.OutcomeNotApplied)
	}
	h.awaitNotReady(t, readiness.Unreachable, "connect")
	h.awaitMetric(t, 0, "fencegate_database_listening")
	before, _ := h.scrape(t)
	failed := before.value("fencegate_database_errors_total", "reason", "connection")
	if failed < float64(len(requests)) {
		t.Errorf("%v statements without a database are counted, want at least %d", failed, len(requests))
	}
	cluster.Restart()
	h.awaitReady(t)
	h.awaitMetric(t, 1, "fencegate_database_listening")
	const reconnects = "fencegate_listener_reconnects_total"
	h.awaitMetric(t, before.value(reconnects)+1, reconnects)
	h.expectRecord(t, recordPath("job", "k"), "before", "application/octet-stream")
	as[api.WriteResult](t, h.put(t, lease, 2, "after"), http.StatusOK)
}

// A commit that takes long, in a database that answers, has a reason of its own.
func TestDatabaseSlow(t *testing.T) {
	h := newHarness(t, Config{})
	source, _ := migrations.GuardSource("probe")
	h.exec(t, strings.Replace(source, "begin", "begin perform pg_sleep(3600);", 1))
	h.awaitNotReady(t, readiness.Slow, "PgSleep")
	h.exec(t, source)
	h.exec(t, `select pg_cancel_backend(pid) from pg_stat_activity where datname = current_database()
		and application_name = 'fencegate prober'`)
	h.awaitReady(t)
}

func TestDatabaseMigratedByAnotherVersion(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	serves := func(revision int) {
		h.exec(t, fmt.Sprintf("update fence.guard_revision set serves_from = %d", revision))
	}
	for _, column := range []string{"fence.guard_revision set revision = revision",
		"fence.tables_version set version = version"} {
		serves(migrations.GuardRevision + 1)
		h.exec(t, "update "+column+" + 1")
		h.awaitNotReady(t, readiness.NotMigrated, "a newer fencegate")
		serves(migrations.GuardRevision)
		h.awaitReady(t)
		h.exec(t, "update "+column+" - 2")
		h.awaitNotReady(t, readiness.NotMigrated, "run `fencegate migrate`")
		h.exec(t, "update "+column+" + 1")
		h.awaitReady(t)
	}
}

// A request that gets no database connection in time fails and changes nothing.
func TestNoConnectionFree(t *testing.T) {
	patient := newHarnessOn(t, Config{}, postgres.Config{
		DatabaseURL: pgtest.Migrated(t), ConnectionsMax: 2, LockTimeout: time.Minute, StatementTimeout: time.Hour,
	})
	hasty, err := New(Config{RequestTimeout: 200 * time.Millisecond}, patient.engine, patient.recorder, NewMetrics("test"))
	if err != nil {
		t.Fatal(err)
	}
	lease, other := patient.acquire(t, "job", "worker"), patient.acquire(t, "other", "worker")
	unlock := patient.holdFence(t, "job")
	change := api.TransactionRequest{Fences: []api.WriteToken{writeToken(lease, 1)}, Ops: []api.Op{putOp(lease, "k", "1")}}
	first := inBackground(func() answer { return patient.transact(t, change) })
	second := inBackground(func() answer { return patient.transact(t, change) })
	patient.awaitTurns(t, 1) // the other connection is reserved for renewals
	patient.unchanged(t, func() {
		expectUnavailable(t, serve(t, conforming(t, hasty)).put(t, other, 1, "hasty"), api.OutcomeNotApplied)
	})
	unlock()
	for _, got := range []answer{<-first, <-second} {
		as[api.TransactionResult](t, got, http.StatusOK) // one of them is a replay
	}
}

// A read changes nothing, so its outcome is never unknown.
func TestOutcomeOfReads(t *testing.T) {
	h, _ := newBusyHarness(t, Config{RequestTimeout: 4 * time.Second})
	h.hold(t, "lock table fence.records in access exclusive mode")
	problem := expectUnavailable(t, h.get(t, recordPath("job", "k")), api.OutcomeNotApplied)
	if strings.Contains(problem.Detail, "may have been") {
		t.Errorf("the detail of a read is %q", problem.Detail)
	}
}

// A write that finds the queue of writes full is refused with the name of the flag.
func TestTooManyWritesWait(t *testing.T) {
	h := newCramped(t, 1)
	held, free := h.acquire(t, "held", "w"), h.acquire(t, "free", "w")
	unlock := h.holdFence(t, "held")
	first := inBackground(func() answer { return h.put(t, held, 1, "x") })
	// In the quick lane, the next would go with it. A batch of the lane is counted before it takes the write.
	await.True(t, "the lock-wait lane has taken the first write", func() bool {
		stats := h.engine.GroupStats()
		return stats.InFlight.LockWait == 1 && stats.Queued == 0
	})
	behind := inBackground(func() answer { return h.put(t, held, 2, "x") })
	await.True(t, "one write is queued", func() bool { return h.engine.GroupStats().Queued == 1 })
	problem := expectUnavailable(t, h.put(t, free, 1, "x"), api.OutcomeNotApplied)
	if problem.Title != store.ErrOverloaded.Error() || !strings.Contains(problem.Detail, "--write-queue-max") {
		t.Errorf("the write beyond the queue got %+v, want ErrOverloaded and --write-queue-max", problem)
	}
	unlock()
	as[api.WriteResult](t, <-first, http.StatusCreated)
	as[api.WriteResult](t, <-behind, http.StatusOK)
}

// defective is an engine whose reads of locks fail.
type defective struct {
	Service

	fail func() error
}

func (d defective) LockAndFence(context.Context, store.Name) (store.Lock, *store.Fence, error) {
	return store.Lock{}, nil, d.fail()
}

// An unknown error is answered with 500 and no cause. The log has the cause.
func TestDefects(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"error":         func() error { return errors.New("relation secret does not exist") },
		"panic":         func() error { panic("secret") },
		"wrapped error": func() error { return fmt.Errorf("at: %w", context.Canceled) },
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			config := Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
			gateway, err := New(config, defective{fail: fail}, nil, NewMetrics("test"))
			if err != nil {
				t.Fatal(err)
			}
			recorder := httptest.NewRecorder()
			gateway.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/locks/job", nil))
			var problem api.Problem
			if err := json.Unmarshal(recorder.Body.Bytes(), &problem); err != nil {
				t.Fatal(err)
			}
			if recorder.Code != http.StatusInternalServerError || problem.Code != api.CodeInternal || problem.Retryable ||
				recorder.Header().Get("Content-Type") != api.ProblemContentType {
				t.Errorf("answered %d %s, want the problem internal, not retryable", recorder.Code, recorder.Body)
			}
			if strings.Contains(recorder.Body.String(), "secret") || !strings.Contains(log.String(), "path=/v1/locks/job") {
				t.Errorf("the cause must be only in the log: answered %s, logged %s", recorder.Body, log.String())
			}
			if name == "panic" && (!strings.Contains(log.String(), "secret") ||
				!strings.Contains(log.String(), "unavailable_test.go")) {
				t.Errorf("the log lacks the place of the panic: %s", log.String())
			}
		})
	}
}

// A limit out of range is refused with the name and value of its flag.
func TestConfigLimits(t *testing.T) {
	for flag, config := range map[string]Config{
		"--body-bytes-max is 1023":                         {BodyBytesMax: 1023},
		"--body-bytes-max is 268435457":                    {BodyBytesMax: 256<<20 + 1},
		"--body-timeout is 99ms":                           {BodyTimeout: 99 * time.Millisecond},
		"--request-timeout is 99ms":                        {RequestTimeout: 99 * time.Millisecond},
		"--shutdown-timeout is -1ns, it must be 0 or more": {ShutdownTimeout: -1},
		"--drain-delay is 1s, it must be 0 or more, and less than --shutdown-timeout, 1s": {
			DrainDelay: time.Second, ShutdownTimeout: time.Second,
		},
		"--event-keep-alive is 99ms":                                   {KeepAlive: 99 * time.Millisecond},
		"--watches-max is -1":                                          {WatchesMax: -1},
		"--terraform-lock-ttl is 25h0m0s":                              {TerraformLockTTL: 25 * time.Hour},
		"--terraform-versions-max is 1001":                             {TerraformVersionsMax: 1001},
		"--terraform-state-bytes-max is 1":                             {TerraformStateBytesMax: 1},
		"--bodies-bytes-max is 33554432, it must be at least 67108864": {Terraform: true, BodiesBytesMax: 32 << 20},
		"--access-log-sample":                                          {AccessLogSample: -1},
	} {
		_, err := New(config, nil, nil, NewMetrics("test"))
		if !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), flag) {
			t.Errorf("%+v: %v, want ErrInvalidConfig with %q", config, err, flag)
		}
	}
	for _, config := range []Config{
		{}, {BodyBytesMax: 1024}, {BodyBytesMax: 256 << 20},
		{BodyTimeout: 100 * time.Millisecond, RequestTimeout: 100 * time.Millisecond, ShutdownTimeout: 1},
	} {
		if _, err := New(config, nil, nil, NewMetrics("test")); err != nil {
			t.Errorf("%+v: %v", config, err)
		}
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
