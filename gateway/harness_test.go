package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

// harness is a gateway before a database of its own, and a client of it.
type harness struct {
	client

	gateway     *Gateway
	store       *engine.Engine
	recorder    *store.Recorder
	databaseURL string
	db          *pgxpool.Pool // the test's own way into the database
}

// newHarness serves a gateway with a database that is in order.
func newHarness(t testing.TB, config Config) *harness {
	t.Helper()
	return newHarnessOn(t, config, store.Config{DatabaseURL: pgtest.Migrated(t)})
}

// newHarnessOn serves a gateway whose every exchange is held against openapi.yaml.
func newHarnessOn(t testing.TB, config Config, database store.Config) *harness {
	t.Helper()
	h := newGateway(t, config, database)
	h.client = serve(t, conforming(t, h.gateway))
	return h
}

// newGateway is a harness that serves nothing yet.
func newGateway(t testing.TB, config Config, database store.Config) *harness {
	t.Helper()
	backend, recorder := newService(t, database)
	h := &harness{store: backend, recorder: recorder, databaseURL: database.DatabaseURL}
	if config.Logger == nil {
		config.Logger = slog.New(defects{slog.DiscardHandler, t})
	}
	var err error
	if h.gateway, err = New(config, backend, h.recorder, newMetrics(backend, recorder)); err != nil {
		t.Fatal(err)
	}
	if h.db, err = pgxpool.New(t.Context(), database.DatabaseURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.db.Close)
	return h
}

// newMetrics show a store and a recorder.
func newMetrics(service *engine.Engine, recorder *store.Recorder) *metrics.Metrics {
	metrics := NewMetrics("test")
	metrics.Watch(service)
	metrics.WatchRecorder(recorder)
	metrics.WatchTracing(func() uint64 { return 0 })
	return metrics
}

// newService is a store that listens until the test ends.
func newService(t testing.TB, database store.Config) (*engine.Engine, *store.Recorder) {
	t.Helper()
	opened, err := store.Open(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	service, err := engine.New(opened, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { service.Run(ctx, func(error) {}) }) // the tests of a database that is down make it fail
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return service, store.NewRecorder(opened)
}

// another is a second gateway before the same database.
func (h *harness) another(t testing.TB, config Config) *harness {
	t.Helper()
	return newHarnessOn(t, config, store.Config{DatabaseURL: h.databaseURL})
}

// serve answers on a loopback listener until the test ends, and then waits for the requests under way.
func serve(t testing.TB, handler http.Handler) client {
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return client{base: server.URL, http: newHTTPClient(t, false)}
}

// newHTTPClient is one with connections of its own, of one version of HTTP.
func newHTTPClient(t testing.TB, http2 bool) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// defects fails the test for everything that the gateway logs as an error: nothing that a client sends is one.
type defects struct {
	slog.Handler

	t testing.TB
}

func (d defects) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

func (d defects) Handle(_ context.Context, record slog.Record) error {
	var text strings.Builder
	record.Attrs(func(attr slog.Attr) bool {
		text.WriteString(" " + attr.String())
		return true
	})
	d.t.Errorf("the gateway logged: %s%s", record.Message, text.String())
	return nil
}
