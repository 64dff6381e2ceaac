// Package metrics holds what a gateway shows at /metrics.
//
// Every metric belongs to a Family, declared once beside the code that counts it. The declaration is all that the
// registry and docs/observability.md know of it. Some values are counted as things happen; the others are read at each scrape
// from the arguments of Watch and of the methods Watch….
package metrics

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/readiness"
)

// ClientGone is the code of a request whose client left before the answer.
const ClientGone api.Code = "client_gone"

// Metrics counts what one gateway does, in a registry of its own. It is safe for concurrent use.
type Metrics struct {
	// InFlight counts the HTTP requests being answered, Waiting the acquires that wait, Streams the open event streams.
	InFlight, Waiting, Streams prometheus.Gauge
	// RefusalDelays counts the delayed answers to refused writes.
	RefusalDelays Delays

	version  string
	codeOf   func(error) api.Code
	registry registry
	handler  http.Handler

	leases   leaseMetrics
	sessions *prometheus.CounterVec
	writes   writeMetrics
	requests *prometheus.HistogramVec
	swept    *prometheus.CounterVec

	unauthenticated, rateLimited *prometheus.CounterVec
	actions                      *prometheus.CounterVec
	access                       accessMetrics
}

// New returns Metrics for a program of this version. codeOf returns the code of the answer to an error, "" for nil and
// ClientGone if the client had left. It must return one of few codes, whatever clients send.
func New(version string, codeOf func(error) api.Code) *Metrics {
	r := registry{prometheus.NewRegistry()}
	m := &Metrics{
		InFlight:      r.gauge(inFlightFamily),
		Waiting:       r.gauge(waitingFamily),
		Streams:       r.gauge(streamsFamily),
		RefusalDelays: newDelays(r),
		version:       version,
		codeOf:        codeOf,
		registry:      r,
		handler:       promhttp.HandlerFor(r, promhttp.HandlerOpts{}),
		leases:        newLeaseMetrics(r),
		sessions:      newSessionMetrics(r),
		writes:        newWriteMetrics(r),
		requests:      r.histograms(requestsFamily),
		swept:         newSwept(r),

		unauthenticated: newUnauthenticated(r),
		actions:         newActions(r),
		access:          newAccessMetrics(r),
		rateLimited:     newRateLimited(r),
	}
	m.registerProcess()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Version returns the version of the program.
func (m *Metrics) Version() string { return m.version }

// ServeHTTP answers a scrape.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// result is the value of a label result: the error's code, or ok for nil.
func (m *Metrics) result(err error, ok string) string {
	if err == nil {
		return ok
	}
	return string(m.codeOf(err))
}

// Watched is what connections, statements and group commit count.
type Watched interface {
	NotReady() *readiness.NotReadyError
	Listening() bool
	Reconnects() uint64
	GroupStats() groupcommit.Stats
	RefusedEarly() uint64
	RefusalsRemembered() int
	PoolStats() store.PoolStats
	Failures() map[store.Reason]uint64
	Retries() map[store.Reason]uint64
	WentBack() map[store.Sign]uint64
}

// Watch shows how the database is used, how writes are committed together, and which are refused without the database.
func (m *Metrics) Watch(service Watched) {
	m.registry.onScrape(func(to *readings) { to.database(service) }, databaseSubject.families...)
	m.registry.onScrape(func(to *readings) { to.group(service.GroupStats()) }, groupSubject.families...)
	m.registry.onScrape(func(to *readings) {
		to.value(earlyFamily, float64(service.RefusedEarly()))
		to.value(rememberedFamily, float64(service.RefusalsRemembered()))
	}, earlyFamily, rememberedFamily)
}

var processSubject = &subject{title: "The process"}

var (
	buildFamily = processSubject.gauge("fencegate_build_info",
		"1, with the version as a label.",
		"Which versions run.",
		Label{Name: "version", Open: "the program's, as `fencegate version` prints it"},
		Label{Name: "go_version", Open: "of the Go that built it"})
	spansDroppedFamily = processSubject.counter("fencegate_spans_dropped_total",
		"Spans that were not delivered: too many waited, or the collector did not accept them.",
		"The collector is unreachable, or too slow for the load: sample less (`--trace-sample-ratio`). "+
			"0 without tracing.")
)

func (m *Metrics) registerProcess() {
	m.registry.gauges(buildFamily).WithLabelValues(m.version, runtime.Version()).Set(1)
}

// WatchTracing shows how many spans were not delivered.
func (m *Metrics) WatchTracing(dropped func() uint64) *Metrics {
	m.registry.onScrape(func(to *readings) {
		to.value(spansDroppedFamily, float64(dropped()))
	}, spansDroppedFamily)
	return m
}
