// Package metrics holds what a gateway shows at /metrics.
//
// Every metric belongs to a Family, declared once beside the code that counts it. The declaration is all that the
// registry and docs/observability.md know of it. Some values are counted as things happen; the others are read at each scrape
// from the arguments of Watch and of the methods Watch….
package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
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

// Kind is the type of a family, as Prometheus names it.
type Kind string

// The kinds of families.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Family declares the metrics of one name.
type Family struct {
	Kind Kind
	Name string
	// Help says what it counts or measures, and in which unit.
	Help string
	// Look says what its values mean and what to do then. Only docs/observability.md shows it.
	Look   string
	Labels []Label
	// Buckets are the upper bounds of a histogram.
	Buckets []float64
}

// Label is a label of a family. It has few values, whatever clients send: never a name or an owner.
type Label struct {
	Name string
	// Values are all possible values.
	Values []string
	// Open describes the values where they can't be listed.
	Open string
}

// subject is the families of one part of the gateway, as docs/observability.md groups them.
type subject struct {
	title    string
	about    string // what its families have in common, if anything
	families []*Family
}

// subjects are in the order of docs/observability.md.
var subjects = []*subject{
	leaseSubject, waitSubject, sessionSubject, writeSubject, groupSubject, rejectionSubject, tableSubject,
	inventorySubject,
	databaseSubject, nodeSubject, redisSubject, sweepSubject, httpSubject, accessSubject, processSubject,
}

// declare adds a family. Every family is declared here, so docs/observability.md misses none.
func (s *subject) declare(f Family) *Family {
	s.families = append(s.families, &f)
	return &f
}

func (s *subject) counter(name, help, look string, labels ...Label) *Family {
	return s.declare(Family{Kind: Counter, Name: name, Help: help, Look: look, Labels: labels})
}

func (s *subject) gauge(name, help, look string, labels ...Label) *Family {
	return s.declare(Family{Kind: Gauge, Name: name, Help: help, Look: look, Labels: labels})
}

func (s *subject) histogram(name, help, look string, buckets []float64, labels ...Label) *Family {
	return s.declare(Family{Kind: Histogram, Name: name, Help: help, Look: look, Buckets: buckets, Labels: labels})
}

// Families returns every declared family, in the order of docs/observability.md.
func Families() []*Family {
	var all []*Family
	for _, s := range subjects {
		all = append(all, s.families...)
	}
	return all
}

func (f *Family) labelNames() []string {
	names := make([]string, len(f.Labels))
	for i, label := range f.Labels {
		names[i] = label.Name
	}
	return names
}

// registry makes and shows the metrics of families.
type registry struct{ *prometheus.Registry }

func (r registry) counters(f *Family) *prometheus.CounterVec {
	return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.labelNames())
}

func (r registry) gauges(f *Family) *prometheus.GaugeVec {
	return promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{Name: f.Name, Help: f.Help}, f.labelNames())
}

func (r registry) histograms(f *Family) *prometheus.HistogramVec {
	options := prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: f.Buckets}
	return promauto.With(r).NewHistogramVec(options, f.labelNames())
}

// gauge makes the gauge of a family without labels.
func (r registry) gauge(f *Family) prometheus.Gauge { return r.gauges(f).WithLabelValues() }

// onScrape reads the values of families at each scrape, all at once, so that they are consistent.
func (r registry) onScrape(read func(*readings), families ...*Family) {
	collector := scrapeCollector{read, map[*Family]*prometheus.Desc{}}
	for _, f := range families {
		collector.descs[f] = prometheus.NewDesc(f.Name, f.Help, f.labelNames(), nil)
	}
	r.MustRegister(collector)
}

// scrapeCollector reads values when they are scraped.
type scrapeCollector struct {
	read  func(*readings)
	descs map[*Family]*prometheus.Desc
}

// Describe is part of prometheus.Collector.
func (c scrapeCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		to <- desc
	}
}

// Collect is part of prometheus.Collector.
func (c scrapeCollector) Collect(to chan<- prometheus.Metric) { c.read(&readings{to, c.descs}) }

// readings receives the values of one scrape.
type readings struct {
	to    chan<- prometheus.Metric
	descs map[*Family]*prometheus.Desc
}

// value adds a counter or a gauge.
func (r *readings) value(f *Family, value float64, labels ...string) {
	kind := prometheus.GaugeValue
	if f.Kind == Counter {
		kind = prometheus.CounterValue
	}
	r.to <- prometheus.MustNewConstMetric(r.descs[f], kind, value, labels...)
}

// flag adds a gauge that is 1 for true.
func (r *readings) flag(f *Family, is bool, labels ...string) {
	value := 0.0
	if is {
		value = 1
	}
	r.value(f, value, labels...)
}

// histogram adds a histogram; upTo counts up to each of the family's buckets, the lower buckets included.
func (r *readings) histogram(f *Family, count uint64, sum float64, upTo []uint64, labels ...string) {
	buckets := make(map[float64]uint64, len(upTo))
	for i, bound := range f.Buckets {
		buckets[bound] = upTo[i]
	}
	r.to <- prometheus.MustNewConstHistogram(r.descs[f], count, sum, buckets, labels...)
}

// durations adds a histogram whose buckets are store.DurationBounds.
func (r *readings) durations(f *Family, took store.Durations, labels ...string) {
	r.histogram(f, took.Count, took.Sum.Seconds(), took.UpTo[:], labels...)
}

func (r *readings) reasons(f *Family, counts map[store.Reason]uint64) {
	for reason, count := range counts {
		r.value(f, float64(count), string(reason))
	}
}

// durationBuckets are store.DurationBounds in seconds.
var durationBuckets = func() []float64 {
	seconds := make([]float64, len(store.DurationBounds))
	for i, bound := range store.DurationBounds {
		seconds[i] = bound.Seconds()
	}
	return seconds
}()

// texts returns label values as strings.
func texts[T ~string](values ...T) []string {
	list := make([]string, len(values))
	for i, value := range values {
		list[i] = string(value)
	}
	return list
}

// secondsSince1970 is a time as Prometheus wants it; 0 for the zero time.
func secondsSince1970(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
