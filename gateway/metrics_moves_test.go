package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// awaitMetric returns when a metric has a value.
func (h *harness) awaitMetric(t *testing.T, want float64, name string, labels ...string) {
	t.Helper()
	await.True(t, name+" has changed", func() bool {
		metrics, _ := h.scrape(t)
		return metrics.value(name, labels...) == want
	})
}

// onlooker notes which families changed since it first looked.
type onlooker struct {
	*harness
	first   map[string]float64
	changed map[string]bool
}

// look compares all families with what they were at first.
func (o *onlooker) look(t *testing.T) {
	t.Helper()
	metrics, _ := o.scrape(t)
	for name, family := range metrics {
		total := 0.0
		for _, metric := range family.GetMetric() {
			total += reading(metric)
		}
		if first, seen := o.first[name]; !seen {
			o.first[name] = total
		} else if first != total {
			o.changed[name] = true
		}
	}
}

// notShown is whether a gateway like this has none of a family: it has no issuer, and no cluster (see TestMetricsOfNodes in
// gateway/metrics, and TestWorkerFailsOver in internal/test/citus).
func notShown(family string) bool {
	return family == "fencegate_issuer_key_readings_total" || strings.HasPrefix(family, "fencegate_node_")
}

// constantFamilies change for nothing that is done here.
var constantFamilies = map[string]string{
	"fencegate_build_info":          "says what was built",
	"fencegate_database_listening":  "see TestDatabaseDown",
	"fencegate_spans_dropped_total": "nothing is traced",

	"fencegate_access_file_failures_total":           "see TestAccessFileChanges in gateway/auth",
	"fencegate_admin_actions_total":                  "see TestAuditLog",
	"fencegate_unauthenticated_total":                "see TestHostileCredentials",
	"fencegate_redis_voting":                         "see TestRestartedServerDoesNotVote in store/redislease",
	"fencegate_database_up":                          "see TestOutages",
	"fencegate_not_ready":                            "see TestOutages",
	"fencegate_database_synchronous_expected":        "see TestOutages",
	"fencegate_database_synchronous_standbys":        "see TestOutages",
	"fencegate_database_oldest_snapshot_seconds":     "see TestMetricsOfTheInventory",
	"fencegate_rate_limited_total":                   "see TestCallerLimits",
	"fencegate_queue_stuck_seconds":                  "see TestMetricsOfTheInventory",
	"fencegate_lease_overdue_seconds":                "see TestMetricsOfTheInventory",
	"fencegate_certificate_expiry_timestamp_seconds": "see TestTLSRenewal",
}

// Each family counts something that is really done.
func TestEveryMetricMoves(t *testing.T) {
	o := &onlooker{newCramped(t, 2), map[string]float64{}, map[string]bool{}}
	o.gateway.RefusalDelays = endpoint.NewRefusalDelays(o.gateway.Draining, time.Minute, &o.gateway.Metrics.RefusalDelays)
	sweeper, err := postgres.NewSweeper(o.store, postgres.SweeperConfig{})
	if err != nil {
		t.Fatal(err)
	}
	o.gateway.Metrics.WatchSweeper(sweeper.Stats)
	redis := redis.Start(t)
	provider := newRedisProvider(t, o.databaseURL, redis)
	o.gateway.Metrics.WatchRedis(provider)
	var probing sync.WaitGroup
	probing.Go(func() { provider.Run(t.Context(), func(error) {}) })
	t.Cleanup(probing.Wait)
	o.awaitMetric(t, 1, "fencegate_redis_up")
	o.recount(t)
	o.get(t, "/healthz")
	o.look(t)
	o.leasesMove(t)
	o.writesMove(t)
	o.queueMoves(t)
	o.sweepsMove(t, sweeper)
	o.tablesMove(t)
	redis.Kill()
	o.awaitMetric(t, 0, "fencegate_redis_up")
	o.endSessions(t)
	o.awaitMetric(t, 1, "fencegate_listener_reconnects_total")
	if _, err := o.gateway.SetDraining(true); err != nil {
		t.Fatal(err)
	}
	o.look(t)
	for _, f := range metrics.Families() {
		_, shown := o.first[f.Name]
		switch {
		case notShown(f.Name):
		case !shown:
			t.Errorf("%s is not shown from the start", f.Name)
		case !o.changed[f.Name] && constantFamilies[f.Name] == "":
			t.Errorf("%s has not changed", f.Name)
		}
	}
}

func (o *onlooker) leasesMove(t *testing.T) {
	t.Helper()
	lease := o.acquire(t, "job", "w")
	waiter := o.wait(t, "job", api.AcquireRequest{OwnerID: "x"})
	o.awaitQueue(t, "job", "x")
	o.recount(t)
	watch := o.open(t, lockPath("job", "/watch"))
	watch.next(t, api.EventState)
	o.look(t)
	watch.close()
	o.renew(t, lease)
	o.release(t, lease)
	granted(t, waiter)
	o.createSession(t, "w", time.Hour)
	o.exec(t, "update fence.database_identity set timeline = 0") // as after a failover
	o.acquire(t, "after", "w")
	refused := expectProblem(t, o.post(t, lockPath("known", "/acquire"), `{"owner_id":"w","newest_token":9007199254740991}`),
		api.CodeUnavailable)
	if refused.Outcome != api.OutcomeNotApplied || !strings.Contains(refused.Detail, "newest_token is 9007199254740991") {
		t.Errorf("an acquire with a greater newest_token was refused with %+v", refused)
	}
	o.recount(t)
}

func (o *onlooker) writesMove(t *testing.T) {
	t.Helper()
	zombie, current := o.zombie(t, "stale")
	as[api.WriteResult](t, o.put(t, current, 1, "x"), http.StatusCreated)
	expectProblem(t, o.put(t, zombie, 1, "x"), api.CodeTokenStale)
	expectProblem(t, o.put(t, zombie, 2, "x"), api.CodeTokenStale) // from memory
	ctx, leave := context.WithCancel(t.Context())
	var delayed sync.WaitGroup
	for i := range int64(endpoint.RefusalsFree + 12) { // the last answer is delayed for a minute, unless its client leaves
		delayed.Go(func() {
			got, err := o.tryFor(ctx, t, http.MethodPut, recordPath("stale", "k"), strings.NewReader("x"), token(zombie, 3+i))
			if err == nil {
				expectProblem(t, got, api.CodeTokenStale)
			}
		})
	}
	await.True(t, "an answer is delayed", func() bool { o.look(t); return o.changed["fencegate_write_refusals_delayed"] })
	leave()
	delayed.Wait()
	o.record(t)
	o.look(t)
	for i := range int64(10_001) { // more than a Recorder keeps in mind
		rejected := &store.RejectedError{Verdict: store.VerdictTokenStale, Resource: "stale", Token: i + 1}
		o.recorder.Record(rejected, metrics.SourceHTTP, "test", "")
	}
}

// queueMoves holds writes up.
func (o *onlooker) queueMoves(t *testing.T) {
	t.Helper()
	lease := o.acquire(t, "slow", "w")
	as[api.WriteResult](t, o.put(t, lease, 1, "x"), http.StatusCreated)
	letGo := o.holdFence(t, "slow")
	var held []<-chan answer
	for i := range int64(3) {
		held = append(held, inBackground(func() answer { return o.put(t, lease, i+2, "x") }))
		if i == 0 { // a batch of the lane is counted before it takes the write
			o.awaitMetric(t, 1, "fencegate_write_batches_in_flight", "lane", "lock_wait")
		}
		o.awaitMetric(t, float64(i), "fencegate_write_queue_writes")
	}
	o.look(t)
	await.True(t, "statements wait for a connection", func() bool {
		var reads []<-chan answer
		for range 16 {
			reads = append(reads, inBackground(func() answer { return o.get(t, lockPath("slow", "")) }))
		}
		for _, read := range reads {
			<-read
		}
		o.look(t)
		return o.changed["fencegate_database_connection_waits_total"] && o.changed["fencegate_database_connections"]
	})
	expectProblem(t, o.put(t, lease, 9, "x"), api.CodeUnavailable)
	letGo()
	for _, answer := range held {
		as[api.WriteResult](t, <-answer, http.StatusOK)
	}
}

func (o *onlooker) sweepsMove(t *testing.T, sweeper *postgres.Sweeper) {
	t.Helper()
	o.expire(t, o.acquire(t, "forsaken", "w"))
	swept, err := sweeper.Sweep(t.Context())
	if err != nil || swept.Expired == 0 {
		t.Fatalf("swept %+v, %v", swept, err)
	}
	o.gateway.Metrics.Swept(swept)
}

func (o *onlooker) tablesMove(t *testing.T) {
	t.Helper()
	o.exec(t, "create table moved (id integer); select fence.protect('moved', 'moved/{id}')")
	o.exec(t, "select fence.try_guard('moved/1', 1)")
	o.exec(t, "do $$ begin perform fence.guard('never/granted', 1); exception when others then null; end $$")
	o.exec(t, "select fence.sweep('reported', '0', 1000, '0', 0)")
	o.exec(t, fmt.Sprintf("select fence.guard('guarded', %d); select pg_stat_force_next_flush()",
		o.acquire(t, "guarded", "w").FencingToken))
	o.exec(t, "alter table moved disable trigger fencegate_insert")
	o.recount(t)
	o.look(t)
}

// The mode of a lease is reported, and how long its holder had it.
func TestMetricsOfReleases(t *testing.T) {
	h := newHarness(t, Config{})
	exclusive, shared := h.acquire(t, "a", "w"), h.acquireAs(t, "b", api.AcquireRequest{OwnerID: "w", Mode: "shared"})
	h.exec(t, "update fence.leases set granted_at = granted_at - interval '1000 seconds' where lock = 'a'")
	h.release(t, exclusive)
	h.release(t, exclusive) // which ends nothing
	h.release(t, shared)
	const operations, ages = "fencegate_lease_operations_total", "fencegate_lease_age_at_release_seconds"
	metrics, _ := h.scrape(t)
	metrics.want(t, []wanted{
		{1, operations, "operation acquire mode shared result ok"},
		{1, operations, "operation release mode shared result ok"},
		{1, operations, "operation release mode unknown result ok"},
		{3, "fencegate_lease_operation_duration_seconds", "operation release"},
		{1, ages, "mode exclusive"}, {1, ages, "mode shared"},
	})
	if sum := metrics.sum(ages, "mode", "exclusive"); sum < 1000 || sum > 1300 {
		t.Errorf("the lease lasted 1000 s and a little, and %v was counted", sum)
	}
}

// wanted is the value of a metric, its labels written as "name value name value".
type wanted struct {
	value  float64
	name   string
	labels string
}

func (s scraped) want(t *testing.T, all []wanted) {
	t.Helper()
	for _, want := range all {
		if got := s.value(want.name, strings.Fields(want.labels)...); got != want.value {
			t.Errorf("%s{%s} is %v, want %v", want.name, want.labels, got, want.value)
		}
	}
}

// sum is that of the durations in a histogram.
func (s scraped) sum(name string, labels ...string) float64 {
	return s.metric(name, labels...).GetHistogram().GetSampleSum()
}

// recount has a sample count the inventory, due or not.
func (h *harness) recount(t *testing.T) {
	t.Helper()
	h.exec(t, "update fence.inventory set due_at = '-infinity'")
	h.sample(t)
}

// The inventory of the database is shown as it is counted. Before the first count nothing is shown.
func TestMetricsOfTheInventory(t *testing.T) {
	h := newHarness(t, Config{})
	before, _ := h.scrape(t)
	before.want(t, []wanted{{-1, "fencegate_locks", ""}, {-1, "fencegate_token_jumps", ""}})
	h.expire(t, h.acquire(t, "expired", "w"))
	h.acquire(t, "expiring", "w")
	h.exec(t, `update fence.leases set expires_at = clock_timestamp() + interval '5 minutes', ttl_ms = 3600000
		where lock = 'expiring'`)
	held := h.acquire(t, "held", "w")
	session := h.createSession(t, "w", time.Hour)
	waiter := h.wait(t, "held", api.AcquireRequest{OwnerID: "x", SessionID: &session.SessionID})
	h.awaitQueue(t, "held", "x")
	h.exec(t, "update fence.waiters set queued_at = queued_at - interval '1000 seconds'")
	old, err := h.db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Rollback(context.WithoutCancel(t.Context())) }()
	var least float64
	const age = "select extract(epoch from clock_timestamp() - transaction_timestamp())"
	if err := old.QueryRow(t.Context(), age).Scan(&least); err != nil {
		t.Fatal(err)
	}
	h.recount(t)
	during, _ := h.scrape(t)
	during.want(t, []wanted{
		{3, "fencegate_locks", ""},
		{2, "fencegate_leases", "state held"},
		{1, "fencegate_leases", "state expiring"},
		{1, "fencegate_leases", "state expired"},
		{1, "fencegate_waiters", ""}, {0, "fencegate_queue_stuck_seconds", ""},
		{1, "fencegate_sessions", ""},
		{float64(held.FencingToken), "fencegate_newest_token", ""},
		{0, "fencegate_token_jumps", ""},
		{0, "fencegate_database_synchronous_expected", ""},
		{0, "fencegate_database_synchronous_standbys", ""},
	})
	if wait := during.value("fencegate_oldest_wait_seconds"); wait < 1000 || wait > 1300 {
		t.Errorf("the oldest wait is %v s, want 1000 or a little more", wait)
	}
	if snapshot := during.value("fencegate_database_oldest_snapshot_seconds"); snapshot < least || snapshot > 300 {
		t.Errorf("the snapshot, taken %v s ago or a little more, is %v s old", least, snapshot)
	}
	if age := during.value("fencegate_inventory_age_seconds"); age < 0 || age > 300 {
		t.Errorf("the inventory, taken a moment ago, is %v s old", age)
	}
	h.release(t, held)
	granted(t, waiter)
	h.endSession(t, session)
	h.exec(t, "update fence.database_identity set timeline = 0") // as after a failover
	h.acquire(t, "held", "w")
	h.recount(t)
	h.exec(t, "update fence.inventory set at = at - interval '1000 seconds', stuck_ms = 5000, overdue_ms = 7000")
	h.get(t, overviewPath)
	after, _ := h.scrape(t)
	after.want(t, []wanted{
		{0, "fencegate_waiters", ""}, {0, "fencegate_oldest_wait_seconds", ""}, {5, "fencegate_queue_stuck_seconds", ""},
		{0, "fencegate_sessions", ""}, {1, "fencegate_token_jumps", ""}, {7, "fencegate_lease_overdue_seconds", ""},
	})
	if age := after.value("fencegate_inventory_age_seconds"); age < 1000 {
		t.Errorf("the inventory of 1000 s ago is %v s old", age)
	}
	if newest := after.value("fencegate_newest_token"); newest < 1<<32 {
		t.Errorf("after the jump the newest token is %v", newest)
	}
}

// Every recorded rejection counts with its lateness and the age of its token, as far as its lease is known.
func TestMetricsOfRejectedWrites(t *testing.T) {
	const late, age = "fencegate_rejected_write_lateness_seconds", "fencegate_rejected_token_age_seconds"
	h := newHarness(t, Config{})
	zombie, current := h.zombie(t, "job")
	for sequence := range int64(5) {
		expectProblem(t, h.put(t, zombie, sequence+1, "late"), api.CodeTokenStale)
	}
	expectProblem(t, h.putWith(t, "job", token(current, 2), `If-Match: "7"`), api.CodeVersionMismatch)
	expectProblem(t, h.putWith(t, "job", "Fencing-Token: 9007199254740991"), api.CodeTokenUnknown)
	h.record(t)
	metrics, _ := h.scrape(t)
	metrics.want(t, []wanted{
		{5, late, "code token_stale"}, {5, age, "code token_stale"}, {0, late, "code lease_mismatch"},
		{0, late, "code version_mismatch"}, {1, age, "code version_mismatch"}, {-1, late, "code token_unknown"},
	})
	if sum := metrics.sum(late, "code", "token_stale"); sum < 5*3600 || sum > 5*7200 {
		t.Errorf("together they were late by %v s, want 5 times an hour and a little", sum)
	}
}
