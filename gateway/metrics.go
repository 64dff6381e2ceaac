package gateway

import (
	"cmp"
	"errors"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencegate/fencegate/store"
)

// Metrics are what /metrics shows. Labels are of bounded number: never a name or an owner.
type Metrics struct {
	registry *prometheus.Registry
	handler  http.Handler

	requests        *prometheus.HistogramVec
	inFlight        prometheus.Gauge
	leaseOperations *prometheus.CounterVec
	acquires        *prometheus.CounterVec
	acquireWaits    *prometheus.HistogramVec
	waiting         prometheus.Gauge
	watches         prometheus.Gauge
	sessions        *prometheus.CounterVec
	writes          *prometheus.CounterVec
	accepted        prometheus.Counter // of writes, by HTTP
	swept           *prometheus.CounterVec
}

// NewMetrics returns metrics in a registry of their own.
func NewMetrics(version string) *Metrics {
	registry := prometheus.NewRegistry()
	m := &Metrics{
		registry: registry,
		handler:  promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fencegate_http_request_duration_seconds", Help: "Time to answer HTTP requests.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"route", "method", "status"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fencegate_http_requests_in_flight", Help: "HTTP requests being answered.",
		}),
		leaseOperations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencegate_lease_operations_total", Help: "Acquires, renewals, releases and breaks, by result: ok, or the error's code.",
		}, []string{"operation", "result"}),
		acquires: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencegate_acquires_total", Help: "Acquires, campaigns included, by mode and result: ok, client_gone, or the error's code.",
		}, []string{"mode", "result"}),
		acquireWaits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fencegate_acquire_wait_duration_seconds", Help: "Time that acquires waited which were ready to, by result.",
			Buckets: []float64{.001, .005, .025, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 600},
		}, []string{"result"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fencegate_waiting_acquires", Help: "Acquires that this gateway answers when they are granted, or have waited long enough.",
		}),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fencegate_open_watches", Help: "Streams of events of this gateway: watches of locks and observers of elections.",
		}),
		sessions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencegate_session_operations_total", Help: "Sessions created, kept alive and ended, by result: ok, or the error's code.",
		}, []string{"operation", "result"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencegate_writes_total", Help: "Writes by door and result: accepted, or the error's code.",
		}, []string{"door", "result"}),
		swept: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fencegate_swept_total", Help: "What this gateway's sweeps tidied: leases that expired, leases and rejections that were forgotten.",
		}, []string{"kind"}),
	}
	m.accepted = m.writes.WithLabelValues(doorHTTP, "accepted")
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fencegate_build_info", Help: "1, with the version as a label.",
	}, []string{"version", "go_version"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	registry.MustRegister(m.requests, m.inFlight, m.leaseOperations, m.acquires, m.acquireWaits, m.waiting, m.watches, m.sessions,
		m.writes, m.swept, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// WatchPool shows the connections to the database.
func (m *Metrics) WatchPool(stats func() store.PoolStats) {
	gauge := func(state string, read func(store.PoolStats) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fencegate_database_connections", Help: "Connections to the database by state; max is the limit.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(read(stats())) })
	}
	m.registry.MustRegister(
		gauge("max", func(s store.PoolStats) int64 { return s.Max }),
		gauge("busy", func(s store.PoolStats) int64 { return s.Busy }),
		gauge("idle", func(s store.PoolStats) int64 { return s.Idle }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "fencegate_database_connection_waits_total", Help: "Statements that had to wait for a connection.",
		}, func() float64 { return float64(stats().Waited) }))
}

// WatchGroup shows how writes are committed together.
func (m *Metrics) WatchGroup(stats func() store.GroupStats) {
	m.registry.MustRegister(groupCollector(stats))
}

// WatchEarlyRefusals shows how many writes were refused without the database.
func (m *Metrics) WatchEarlyRefusals(refused func() uint64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "fencegate_early_refusals_total", Help: "Writes that were refused as superseded from memory, without the database. They are in fencegate_writes_total, too.",
	}, func() float64 { return float64(refused()) }))
}

// WatchRecorder shows how many rejections were not recorded.
func (m *Metrics) WatchRecorder(dropped func() uint64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "fencegate_rejections_dropped_total", Help: "Rejections that were not recorded because too many waited.",
	}, func() float64 { return float64(dropped()) }))
}

// WatchListener shows whether the database can notify this gateway; without that, who waits is served by polling.
func (m *Metrics) WatchListener(listening func() bool) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fencegate_database_listening", Help: "1 while the connection for notifications stands; otherwise waiters are served by polling.",
	}, func() float64 {
		if listening() {
			return 1
		}
		return 0
	}))
}

// Swept counts what a sweep did.
func (m *Metrics) Swept(swept store.Swept) {
	m.swept.WithLabelValues("lease_expired").Add(float64(swept.Expired))
	m.swept.WithLabelValues("lease_forgotten").Add(float64(swept.LeasesForgotten))
	m.swept.WithLabelValues("rejection_forgotten").Add(float64(swept.RejectionsForgotten))
}

func (m *Metrics) leaseOperation(operation string, err error) {
	m.leaseOperations.WithLabelValues(operation, resultOf(err, "ok")).Inc()
}

// acquired counts an acquire that took so long.
func (m *Metrics) acquired(request store.AcquireRequest, took time.Duration, err error) {
	m.leaseOperation("acquire", err)
	m.acquires.WithLabelValues(string(cmp.Or(request.Mode, store.Exclusive)), resultOf(err, "ok")).Inc()
	if request.Wait > 0 {
		m.acquireWaits.WithLabelValues(resultOf(err, "ok")).Observe(took.Seconds())
	}
}

func (m *Metrics) sessionOperation(operation string, err error) {
	m.sessions.WithLabelValues(operation, resultOf(err, "ok")).Inc()
}

func (m *Metrics) write(door string, err error) {
	if err == nil && door == doorHTTP {
		m.accepted.Inc()
		return
	}
	m.writes.WithLabelValues(door, resultOf(err, "accepted")).Inc()
}

// resultClientGone is the result of what nobody was there to hear.
const resultClientGone = "client_gone"

func resultOf(err error, ok string) string {
	switch {
	case err == nil:
		return ok
	case errors.Is(err, errClientGone):
		return resultClientGone
	}
	if rejected, ok := err.(*store.RejectedError); ok { //nolint:errorlint // as it comes from the store; problemOf knows the wrapped ones, at its price
		return string(rejectionKinds[rejected.Verdict].code)
	}
	return string(problemOf(err).Code)
}

func (m *Metrics) serve(w http.ResponseWriter, r *http.Request) error {
	m.handler.ServeHTTP(w, r)
	return nil
}
