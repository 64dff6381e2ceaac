package gateway

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/openapi"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/readiness"
)

// Many tests wait for a timeout or another process: at least four run at a time, unless -parallel says otherwise.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	if err := flag.Set("rapid.checks", "20"); err != nil {
		panic(err)
	}
	os.Exit(pgtest.Main(m))
}

// harness is a gateway on a database of its own, and a client of it.
type harness struct {
	client

	gateway     *Gateway
	engine      *engine.Engine
	store       *postgres.Store // that of the engine
	recorder    *postgres.Recorder
	databaseURL string
	db          *pgxpool.Pool // connections of the test itself
}

// newHarness serves a gateway on a migrated database.
func newHarness(t testing.TB, config Config) *harness {
	t.Helper()
	return newHarnessOn(t, config, patientDatabase(t))
}

// patientDatabase is a migrated database on which no statement times out because the machine is slow. The gateway does
// not own the schema.
func patientDatabase(t testing.TB) postgres.Config {
	t.Helper()
	return postgres.Config{DatabaseURL: pgtest.ForGateway(t), StatementTimeout: time.Hour}
}

// newHarnessOn serves a gateway and checks every exchange against openapi.yaml.
func newHarnessOn(t testing.TB, config Config, database postgres.Config) *harness {
	t.Helper()
	h := newGateway(t, config, database)
	h.client = serve(t, conforming(t, h.gateway))
	return h
}

// described is openapi.yaml.
var described = sync.OnceValue(func() *openapi.Description {
	described, err := openapi.Read(openAPI)
	if err != nil {
		panic(err)
	}
	return described
})

// conforming checks every exchange with a handler against openapi.yaml. A server in front of it must end before t does.
func conforming(t testing.TB, next http.Handler) http.Handler {
	t.Helper()
	return described().Conforming(t, next)
}

// newBusyHarness is newHarness with a lease on "job" that has written the record "k".
func newBusyHarness(t testing.TB, config Config) (*harness, api.Lease) {
	t.Helper()
	h := newHarness(t, config)
	lease := h.acquire(t, "job", "worker")
	as[api.WriteResult](t, h.put(t, lease, 1, "value"), http.StatusCreated)
	return h, lease
}

// newClusterHarness is newHarness on a PostgreSQL of its own, which the test may stop and restart.
func newClusterHarness(t testing.TB, config Config) (*harness, *pgtest.Cluster) {
	t.Helper()
	cluster := pgtest.NewCluster(t)
	h := newHarnessOn(t, config, postgres.Config{DatabaseURL: cluster.URL()})
	if err := h.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h, cluster
}

// newCramped is newHarness with a store that lets at most queueMax writes wait.
func newCramped(t testing.TB, queueMax int) *harness {
	t.Helper()
	queue := engine.Config{Group: groupcommit.Config{QueueMax: queueMax}}
	h := newGatewayWith(t, Config{}, patientDatabase(t), queue)
	h.client = serve(t, conforming(t, h.gateway))
	return h
}

// newGateway makes a harness that does not serve yet.
func newGateway(t testing.TB, config Config, database postgres.Config) *harness {
	t.Helper()
	return newGatewayWith(t, config, database, engine.Config{
		DeadAfter:     time.Minute, // heartbeats may be late
		ProbeInterval: 200 * time.Millisecond,
	})
}

func newGatewayWith(t testing.TB, config Config, database postgres.Config, service engine.Config) *harness {
	t.Helper()
	parallel(t)
	h := &harness{databaseURL: database.DatabaseURL}
	h.engine, h.store = newService(t, database, service)
	h.recorder = postgres.NewRecorder(h.store)
	if config.Logger == nil {
		config.Logger = slog.New(errorLog{slog.DiscardHandler, t})
	}
	config.RequestTimeout = cmp.Or(config.RequestTimeout, time.Minute)
	var err error
	if h.gateway, err = New(config, h.engine, h.recorder, h.newMetrics()); err != nil {
		t.Fatal(err)
	}
	if h.db, err = pgxpool.New(t.Context(), pgtest.AsOwner(database.DatabaseURL)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.db.Close)
	return h
}

// withoutDatabase is a gateway that has no database: a request that would need it fails with a panic.
func withoutDatabase(t testing.TB, config Config) *Gateway {
	t.Helper()
	g, err := New(config, nil, nil, NewMetrics("test"))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// started has every test that called parallel.
var started sync.Map

// parallel runs a test beside others. Calling it again has no effect.
func parallel(t testing.TB) {
	if test, ok := t.(*testing.T); ok {
		if _, again := started.LoadOrStore(test, true); !again {
			test.Parallel()
		}
	}
}

// newMetrics returns metrics of the engine, its store and the recorder.
func (h *harness) newMetrics() *metrics.Metrics {
	metrics := NewMetrics("test")
	metrics.Watch(h.engine)
	metrics.WatchRecorder(h.recorder)
	metrics.WatchTracing(func() uint64 { return 0 })
	return metrics
}

// newService opens a store, and an engine on it that runs until the test ends.
func newService(t testing.TB, database postgres.Config, config engine.Config) (*engine.Engine, *postgres.Store) {
	t.Helper()
	opened, err := postgres.Open(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	service, err := engine.New(opened, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { service.Run(ctx, func(error) {}) }) // it fails in tests that stop the database
	running.Go(func() { service.RunProber(ctx, func(*readiness.NotReadyError) {}) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return service, opened
}

// another is a second gateway on the same database.
func (h *harness) another(t testing.TB, config Config) *harness {
	t.Helper()
	return newHarnessOn(t, config, postgres.Config{DatabaseURL: h.databaseURL, StatementTimeout: time.Hour})
}

// errorLog fails the test for every error that the gateway logs: no request may cause one.
type errorLog struct {
	slog.Handler

	t testing.TB
}

func (l errorLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

func (l errorLog) Handle(_ context.Context, record slog.Record) error {
	var text strings.Builder
	record.Attrs(func(attr slog.Attr) bool {
		text.WriteString(" " + attr.String())
		return true
	})
	l.t.Errorf("the gateway logged the error %s%s, want no errors", record.Message, text.String())
	return nil
}

func (h *harness) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := h.db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// count returns the number that a query selects.
func (h *harness) count(t testing.TB, sql string, args ...any) (number int64) {
	t.Helper()
	if err := h.db.QueryRow(t.Context(), sql, args...).Scan(&number); err != nil {
		t.Fatal(err)
	}
	return number
}

// texts returns the texts that a query selects.
func (h *harness) texts(t testing.TB, sql string) []string {
	t.Helper()
	rows, err := h.db.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// dump returns every row of every table, and the last token.
func (h *harness) dump(t testing.TB) string {
	t.Helper()
	tables := h.texts(t, "select relname from pg_class where relnamespace = 'fence'::regnamespace and relkind = 'r'")
	if len(tables) < 5 {
		t.Fatalf("the schema has the tables %q, want at least 5", tables)
	}
	selects := []string{"select 'tokens: ' || last_value || is_called from fence.tokens"}
	for _, table := range tables {
		selects = append(selects, fmt.Sprintf("select '%[1]s: ' || r::text from fence.%[1]s r", table))
	}
	return strings.Join(h.texts(t, strings.Join(selects, " union all ")+" order by 1"), "\n")
}

// unchanged fails the test if a function changes the database.
func (h *harness) unchanged(t testing.TB, do func()) {
	t.Helper()
	before := h.dump(t)
	do()
	if after := h.dump(t); after != before {
		t.Errorf("the database was changed.\nbefore:\n%s\nafter:\n%s", before, after)
	}
}

// expire makes a lease end an hour ago, by the database's clock.
func (h *harness) expire(t testing.TB, lease api.Lease) {
	t.Helper()
	h.exec(t, `update fence.leases set granted_at = granted_at - interval '2 hours',
			expires_at = clock_timestamp() - interval '1 hour', check_at = '-infinity'
		where lock = $1 and fencing_token = $2`, lease.Lock, lease.FencingToken)
}

// zombie is a lease that ended an hour ago; current is the one that has replaced it.
func (h *harness) zombie(t testing.TB, lock string) (zombie, current api.Lease) {
	t.Helper()
	zombie = h.acquire(t, lock, "zombie")
	h.expire(t, zombie)
	return zombie, h.acquire(t, lock, "current")
}

// holdFence locks the row of a fence. Writes to the resource wait until unlock.
func (h *harness) holdFence(t testing.TB, resource string) (unlock func()) {
	t.Helper()
	return h.hold(t, "select from fence.fences where resource = $1 for update", resource)
}

// hold keeps the locks of a statement until unlock, or until the test ends.
func (h *harness) hold(t testing.TB, sql string, args ...any) (unlock func()) {
	t.Helper()
	tx, err := h.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// awaitWaiting returns when n database sessions of the gateway wait for a row.
func (h *harness) awaitWaiting(t testing.TB, n int64) {
	t.Helper()
	h.awaitWaitingFor(t, n, 0)
}

// awaitTurns waits until as many statements have a turn to wait for a lock: before that, each waits only briefly.
func (h *harness) awaitTurns(t testing.TB, n int64) {
	t.Helper()
	h.awaitWaitingFor(t, n, 500*time.Millisecond)
}

func (h *harness) awaitWaitingFor(t testing.TB, n int64, least time.Duration) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d database sessions wait for a row, for %s", n, least), func() bool {
		return h.count(t, `select count(*) from pg_stat_activity where datname = current_database()
			and application_name = 'fencegate' and wait_event_type = 'Lock'
			and clock_timestamp() - query_start >= $1`, least) == n
	})
}

// expectSessionsKept returns a check that the gateway still has all database sessions that it has now.
func (h *harness) expectSessionsKept(t testing.TB) (check func()) {
	t.Helper()
	const sessions = `select pid || ' since ' || backend_start from pg_stat_activity
		where datname = current_database() and application_name = 'fencegate' order by 1`
	before := h.texts(t, sessions)
	return func() {
		t.Helper()
		if after := h.texts(t, sessions); !containsAll(after, before) {
			t.Errorf("of the database sessions %q only %q are left: a statement was cut off", before, after)
		}
	}
}

// endSessions ends the database sessions of all gateways, as an administrator would, and waits until this one noticed.
func (h *harness) endSessions(t testing.TB) {
	t.Helper()
	h.exec(t, `select pg_terminate_backend(pid, 60000) from pg_stat_activity
		where datname = current_database() and application_name like 'fencegate%'`)
	h.awaitNoDeadConnection(t)
}

// awaitNoDeadConnection returns when the gateway has noticed every database connection that broke. Until then a
// statement may be sent over one, and its outcome is unknown.
func (h *harness) awaitNoDeadConnection(t testing.TB) {
	t.Helper()
	await.True(t, "no dead connection is left", func() bool {
		var dead *store.UnavailableError
		_, err := h.store.Policies(t.Context())
		return !errors.As(err, &dead) || dead.Outcome == store.OutcomeNotApplied
	})
}

// record writes the rejections noted so far. With its context ended, Run writes once.
func (h *harness) record(t testing.TB) {
	t.Helper()
	ended, end := context.WithCancel(t.Context())
	end()
	h.recorder.Run(ended, func(err error) { t.Fatal(err) })
}
