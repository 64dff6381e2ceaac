package gateway

import (
	"errors"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencegate/fencegate/store"
)

// Metrics are what /metrics shows, as docs/metrics.md tells it.
type Metrics struct {
	leaseMetrics
	writeMetrics
	httpMetrics

	version    string
	registry   metricRegistry
	handler    http.Handler
	writeTimes writeTimes
	swept      *prometheus.CounterVec
}

var processSubject = &subject{title: "The process"}

var buildFamily = processSubject.declare(family{
	kind: kindGauge, name: "fencegate_build_info",
	help: "1, with the version as a label.",
	look: "Which versions run.",
	labels: []label{
		{name: "version", open: "the program's, as `fencegate version` says it"},
		{name: "go_version", open: "of the Go that it was built with"},
	},
})

// NewMetrics returns metrics in a registry of their own.
func NewMetrics(version string) *Metrics {
	registry := metricRegistry{prometheus.NewRegistry()}
	m := &Metrics{
		leaseMetrics: newLeaseMetrics(registry),
		writeMetrics: newWriteMetrics(registry),
		httpMetrics:  newHTTPMetrics(registry),
		version:      version,
		registry:     registry,
		writeTimes:   newWriteTimes(registry),
		handler:      promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		swept:        newSwept(registry),
	}
	registry.gauges(buildFamily).WithLabelValues(version, runtime.Version()).Set(1)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Watched is what tells of itself when it is asked; *store.Service is one.
type Watched interface {
	PoolStats() store.PoolStats
	Listening() bool
	Reconnects() uint64
	Failures() map[store.Reason]uint64
	Retries() map[store.Reason]uint64
	GroupStats() store.GroupStats
	RefusedEarly() uint64
	RefusalsRemembered() int
}

// Watch shows how the database is used, how writes are committed together, and what is refused without the database.
func (m *Metrics) Watch(of Watched) {
	read, families := databaseReadings(of)
	m.registry.onScrape(read, families...)
	read, families = groupReadings(of.GroupStats)
	m.registry.onScrape(read, families...)
	m.registry.onScrape(func(to *readings) {
		to.value(earlyFamily, float64(of.RefusedEarly()))
		to.value(rememberedFamily, float64(of.RefusalsRemembered()))
	}, earlyFamily, rememberedFamily)
}

// resultOf is the value of a label result: ok, client_gone, or the code of the error's answer, of which there are few.
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
