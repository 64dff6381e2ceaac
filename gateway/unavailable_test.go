package gateway

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
)

// unavailable reads an answer that the database is to blame for.
func unavailable(t *testing.T, got answer, outcome api.Outcome) api.Problem {
	t.Helper()
	problem := refused(t, got, api.CodeUnavailable)
	if problem.Outcome != outcome || !problem.Retryable || got.header.Get("Retry-After") == "" {
		t.Errorf("%s: outcome %q, retryable %v, Retry-After %q, want %s: %s", got.request, problem.Outcome, problem.Retryable, got.header.Get("Retry-After"), outcome, got.body)
	}
	return problem
}

// ready is what /readyz says. /healthz is fine at all times: a database that is down is no reason to restart the gateway.
func (h *harness) ready(t *testing.T) answer {
	t.Helper()
	as[api.Health](t, h.get(t, "/healthz"), http.StatusOK)
	return h.get(t, "/readyz")
}

func (h *harness) notReady(t *testing.T, why string) {
	t.Helper()
	if problem := unavailable(t, h.ready(t), api.OutcomeNotApplied); !strings.Contains(problem.Detail, why) {
		t.Errorf("/readyz says %q, want %q in it", problem.Detail, why)
	}
}

// awaitReady returns when the gateway serves again, by itself.
func (h *harness) awaitReady(t *testing.T) {
	t.Helper()
	eventually(t, "the gateway is ready again", func() bool { return h.ready(t).status == http.StatusOK })
}

// requestsOf are one of every kind that asks the database.
func requestsOf(lease api.Lease) []badInput {
	json := []string{jsonType}
	return []badInput{
		{method: http.MethodPost, path: "/v1/locks/other/acquire", body: `{"owner_id":"w"}`, header: json},
		{method: http.MethodPost, path: "/v1/locks/job/renew", body: refOf(lease), header: json},
		{method: http.MethodPost, path: "/v1/locks/job/release", body: refOf(lease), header: json},
		{method: http.MethodPost, path: "/v1/locks/job/break", body: `{"reason":"r"}`, header: json},
		{method: http.MethodPost, path: "/v1/locks/other/acquire", body: `{"owner_id":"w","wait_ms":600000,"mode":"shared","scope":"subtree"}`, header: json},
		{method: http.MethodPost, path: "/v1/sessions", body: `{"owner_id":"w"}`, header: json},
		{method: http.MethodPost, path: "/v1/sessions/" + noSession + "/keepalive"},
		{method: http.MethodGet, path: "/v1/sessions/" + noSession},
		{method: http.MethodDelete, path: "/v1/sessions/" + noSession},
		{method: http.MethodPost, path: "/v1/elections/other/campaign", body: `{"candidate":"w"}`, header: json},
		{method: http.MethodPost, path: "/v1/elections/job/resign", body: resignOf(lease), header: json},
		{method: http.MethodGet, path: "/v1/elections/job"},
		{method: http.MethodGet, path: "/v1/elections/job/observe"},
		{method: http.MethodGet, path: "/v1/locks/job/watch"},
		{method: http.MethodGet, path: "/v1/locks/job"},
		{method: http.MethodGet, path: "/v1/locks"},
		{method: http.MethodPut, path: recordPath("job", "k"), body: "x", header: []string{token(lease, 2)}},
		{method: http.MethodDelete, path: recordPath("job", "k"), header: []string{token(lease, 2)}},
		{method: http.MethodGet, path: recordPath("job", "k")},
		{method: http.MethodGet, path: "/v1/resources/job/records"},
		{method: http.MethodGet, path: "/v1/resources/job/fence"},
		{method: http.MethodPost, path: "/v1/transactions", body: transaction(lease, 2), header: json},
		{method: http.MethodPut, path: "/v1/policies/job", body: "{}", header: json},
		{method: http.MethodGet, path: "/v1/policies/job"},
		{method: http.MethodDelete, path: "/v1/policies/job"},
		{method: http.MethodGet, path: "/v1/policies"},
		{method: http.MethodGet, path: "/v1/rejections"},
		{method: http.MethodGet, path: "/v1/rejections?format=csv&sort=last_seen"},
		{method: http.MethodGet, path: "/v1/rejections/summary"},
		{method: http.MethodGet, path: "/v1/rejections/stream"},
		{method: http.MethodGet, path: "/v1/rejections/stream?last_event_id=1"},
	}
}

func TestDatabaseDown(t *testing.T) {
	cluster := pgtest.NewCluster(t)
	h := newHarnessOn(t, Config{}, store.Config{DatabaseURL: cluster.URL()})
	if err := h.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	lease := h.acquire(t, "job", "worker")
	as[api.WriteResult](t, h.put(t, lease, 1, "before"), http.StatusCreated)

	for name, down := range map[string]func(){"stopped": cluster.Stop, "killed": cluster.Kill} {
		t.Run(name, func(t *testing.T) {
			down()
			// A connection from before may only now find out that it is dead, after something was sent.
			h.awaitNoDeadConnection(t)
			for _, r := range requestsOf(lease) {
				unavailable(t, h.send(t, r.method, r.path, r.body, r.header...), api.OutcomeNotApplied)
			}
			h.notReady(t, "connect")
			h.awaitMetric(t, 0, "fencegate_database_listening")
			before, _ := h.scrape(t)
			if before.value("fencegate_database_errors_total", "reason", "connection") < float64(len(requestsOf(lease))) {
				t.Error("statements that found no database were not counted")
			}
			cluster.Restart()
			h.awaitReady(t)
			h.awaitMetric(t, 1, "fencegate_database_listening")
			h.awaitMetric(t, before.value("fencegate_listener_reconnects_total")+1, "fencegate_listener_reconnects_total")
			if got := h.get(t, recordPath("job", "k")); string(got.body) != "before" || got.status != http.StatusOK {
				t.Errorf("the record is %d %q", got.status, got.body)
			}
		})
	}
	as[api.WriteResult](t, h.put(t, lease, 2, "after"), http.StatusOK)
}

func TestDatabaseReadOnly(t *testing.T) {
	h, lease := newBusyHarness(t, Config{})
	h.exec(t, "do $$begin execute format('alter database %I set default_transaction_read_only = on', current_database()); end$$")
	h.endSessions(t)
	h.unchanged(t, func() {
		for _, r := range requestsOf(lease) {
			if r.method != http.MethodGet {
				unavailable(t, h.send(t, r.method, r.path, r.body, r.header...), api.OutcomeNotApplied)
			}
		}
		h.notReady(t, "read-only")
	})
	if got := h.get(t, recordPath("job", "k")); string(got.body) != "value" {
		t.Errorf("reading is refused, too: %d %s", got.status, got.body)
	}
	h.exec(t, "set default_transaction_read_only = off; do $$begin execute format('alter database %I reset default_transaction_read_only', current_database()); end$$")
	h.endSessions(t)
	h.awaitReady(t)
	as[api.WriteResult](t, h.put(t, lease, 2, "after"), http.StatusOK)
}

// endSessions ends the sessions of the gateway, as an administrator would, and returns when it has found out.
func (h *harness) endSessions(t *testing.T) {
	t.Helper()
	h.exec(t, "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = current_database() and application_name = 'fencegate'")
	h.awaitNoDeadConnection(t)
}

func (h *harness) awaitNoDeadConnection(t *testing.T) {
	t.Helper()
	eventually(t, "no dead connection is left", func() bool {
		var dead *store.UnavailableError
		return !errors.As(h.store.Ready(t.Context()), &dead) || dead.Outcome == store.OutcomeNotApplied
	})
}

func TestDatabaseNotMigrated(t *testing.T) {
	h := newHarnessOn(t, Config{}, store.Config{DatabaseURL: pgtest.Empty(t)})
	lease := api.Lease{Lock: "job", OwnerID: "w", LeaseID: "2832c0ce-7279-4058-87b2-de75f89b0239", FencingToken: 1}
	for _, r := range requestsOf(lease) {
		unavailable(t, h.send(t, r.method, r.path, r.body, r.header...), api.OutcomeNotApplied)
	}
	h.notReady(t, "not migrated")
	if err := h.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	as[api.Health](t, h.ready(t), http.StatusOK)
	h.acquire(t, "job", "worker")
}

func TestDatabaseMigratedByNewer(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	for name, table := range map[string]string{"functions": "fence.guard_revision set revision = revision", "schema": "fence.migration_version set version = version"} {
		t.Run(name, func(t *testing.T) {
			h.exec(t, "update "+table+" + 1")
			h.notReady(t, "a newer fencegate")
			h.exec(t, "update "+table+" - 2")
			h.notReady(t, "run `fencegate migrate`")
			h.exec(t, "update "+table+" + 1")
			as[api.Health](t, h.ready(t), http.StatusOK)
		})
	}
}

// A statement that the database gave up was rolled back; one whose session ended, or that the gateway stopped waiting for, may have
// been committed. What was never sent was not applied.
func TestOutcomes(t *testing.T) {
	for _, group := range []struct {
		name     string
		config   Config
		database store.Config
		during   func(t *testing.T, h *harness)
		outcome  api.Outcome
	}{
		{"statement timeout", Config{}, store.Config{StatementTimeout: 100 * time.Millisecond}, func(*testing.T, *harness) {}, api.OutcomeNotApplied},
		{"request timeout", Config{RequestTimeout: 300 * time.Millisecond}, store.Config{}, func(*testing.T, *harness) {}, api.OutcomeUnknown},
		{"session ended", Config{}, store.Config{}, func(t *testing.T, h *harness) {
			h.exec(t, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
		}, api.OutcomeUnknown},
		{"statement cancelled", Config{}, store.Config{}, func(t *testing.T, h *harness) {
			h.exec(t, "select pg_cancel_backend(pid) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
		}, api.OutcomeNotApplied},
	} {
		t.Run(group.name, func(t *testing.T) {
			group.database.DatabaseURL = pgtest.Migrated(t)
			h := newHarnessOn(t, group.config, group.database)
			lease := h.acquire(t, "job", "worker")
			letGo := h.holdFence(t, "job")
			h.unchanged(t, func() {
				answers := inBackground(func() answer { return h.put(t, lease, 1, "value") })
				if group.config.RequestTimeout == 0 && group.database.StatementTimeout == 0 {
					h.awaitWaiting(t, 1)
				}
				group.during(t, h)
				unavailable(t, <-answers, group.outcome)
			})
			letGo()
			as[api.WriteResult](t, h.put(t, lease, 1, "value"), http.StatusCreated) // sent again, with the same number
		})
	}
}

// A request that finds no connection free is refused in time, and changes nothing.
func TestDatabaseOverloaded(t *testing.T) {
	patient := newHarnessOn(t, Config{}, store.Config{DatabaseURL: pgtest.Migrated(t), ConnectionsMax: 2, LockTimeout: time.Minute})
	hasty, err := New(Config{RequestTimeout: 200 * time.Millisecond}, patient.store, patient.recorder, NewMetrics("test"))
	if err != nil {
		t.Fatal(err)
	}
	lease, other := patient.acquire(t, "job", "worker"), patient.acquire(t, "other", "worker")
	letGo := patient.holdFence(t, "job")
	change := api.TransactionRequest{Fences: []api.WriteToken{claim(lease, 1)}, Ops: []api.Op{putOp(lease, "k", "1")}}
	first := inBackground(func() answer { return patient.transact(t, change) })
	second := inBackground(func() answer { return patient.transact(t, change) })
	patient.awaitWaiting(t, 1) // the other connection is reserved for renewals
	patient.unchanged(t, func() {
		unavailable(t, serve(t, conforming(t, hasty)).put(t, other, 1, "hasty"), api.OutcomeNotApplied)
	})
	letGo()
	for _, got := range []answer{<-first, <-second} {
		as[api.TransactionResult](t, got, http.StatusOK) // one of them is a replay
	}
}

// A read changes nothing, whatever became of it.
func TestOutcomeOfReads(t *testing.T) {
	h, _ := newBusyHarness(t, Config{RequestTimeout: 200 * time.Millisecond})
	tx, err := h.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "lock table fence.records in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	problem := unavailable(t, h.get(t, recordPath("job", "k")), api.OutcomeNotApplied)
	if strings.Contains(problem.Detail, "may have been") {
		t.Errorf("the detail is %q", problem.Detail)
	}
}
