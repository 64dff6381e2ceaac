package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fencegate/fencegate/store"
)

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
	databaseSubject, redisSubject, sweepSubject, httpSubject, accessSubject, processSubject,
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
