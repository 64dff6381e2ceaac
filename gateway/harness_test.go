package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/readiness"
)

// harness is a gateway on a database of its own, and a client of it.
type harness struct {
	client

	gateway     *Gateway
	store       *engine.Engine
	recorder    *store.Recorder
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
func patientDatabase(t testing.TB) store.Config {
	t.Helper()
	return store.Config{DatabaseURL: postgres.ForGateway(t), StatementTimeout: time.Hour}
}

// newHarnessOn serves a gateway and checks every exchange against openapi.yaml.
func newHarnessOn(t testing.TB, config Config, database store.Config) *harness {
	t.Helper()
	h := newGateway(t, config, database)
	h.client = serve(t, conforming(t, h.gateway))
	return h
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
func newClusterHarness(t testing.TB, config Config) (*harness, *postgres.Cluster) {
	t.Helper()
	cluster := postgres.NewCluster(t)
	h := newHarnessOn(t, config, store.Config{DatabaseURL: cluster.URL()})
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
func newGateway(t testing.TB, config Config, database store.Config) *harness {
	t.Helper()
	return newGatewayWith(t, config, database, engine.Config{
		DeadAfter:     time.Minute, // heartbeats may be late
		ProbeInterval: 200 * time.Millisecond,
	})
}

func newGatewayWith(t testing.TB, config Config, database store.Config, service engine.Config) *harness {
	t.Helper()
	parallel(t)
	backend, recorder := newService(t, database, service)
	h := &harness{store: backend, recorder: recorder, databaseURL: database.DatabaseURL}
	if config.Logger == nil {
		config.Logger = slog.New(errorLog{slog.DiscardHandler, t})
	}
	config.RequestTimeout = cmp.Or(config.RequestTimeout, time.Minute)
	var err error
	if h.gateway, err = New(config, backend, h.recorder, newMetrics(backend, recorder)); err != nil {
		t.Fatal(err)
	}
	if h.db, err = pgxpool.New(t.Context(), postgres.AsOwner(database.DatabaseURL)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.db.Close)
	return h
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

// newMetrics returns metrics of a store and a recorder.
func newMetrics(service *engine.Engine, recorder *store.Recorder) *metrics.Metrics {
	metrics := NewMetrics("test")
	metrics.Watch(service)
	metrics.WatchRecorder(recorder)
	metrics.WatchTracing(func() uint64 { return 0 })
	return metrics
}

// newService opens a store that listens until the test ends.
func newService(t testing.TB, database store.Config, config engine.Config) (*engine.Engine, *store.Recorder) {
	t.Helper()
	opened, err := store.Open(t.Context(), database)
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
	return service, store.NewRecorder(opened)
}

// another is a second gateway on the same database.
func (h *harness) another(t testing.TB, config Config) *harness {
	t.Helper()
	return newHarnessOn(t, config, store.Config{DatabaseURL: h.databaseURL, StatementTimeout: time.Hour})
}

// serve answers on a loopback listener until the test ends. It then waits for the requests in progress.
func serve(t testing.TB, handler http.Handler) client {
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return client{base: server.URL, http: newHTTPClient(t, false)}
}

// newHTTPClient returns a client with connections of its own, of one version of HTTP.
func newHTTPClient(t testing.TB, http2 bool) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// overBoth runs a test over HTTP/1.1 and over HTTP/2. Each run gets an HTTP client of its version.
func overBoth(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Helper()
	for name, http2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(name, func(t *testing.T) { test(t, http2) })
	}
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
