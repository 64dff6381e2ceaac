package gateway

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metricKind is the type of a family, as Prometheus names it.
type metricKind string

const (
	kindCounter   metricKind = "counter"
	kindGauge     metricKind = "gauge"
	kindHistogram metricKind = "histogram"
)

// family declares metrics of one name. It is all that the registry and docs/metrics.md know of them.
type family struct {
	kind   metricKind
	name   string
	help   string // what it counts or measures, and in which unit
	look   string // what its values tell, and what to do then; for docs/metrics.md alone
	labels []label
	// buckets are the upper bounds of a histogram.
	buckets []float64
}

// label is a label of a family. Its values are few whatever clients send: never a name or an owner.
type label struct {
	name   string
	values []string // all that there can be
	open   string   // where they can't be listed here: what they are
}

// subject is the families of one part of the gateway, as docs/metrics.md shows them.
type subject struct {
	title    string
	about    string // what all of them have in common, if anything
	families []*family
}

// subjects are in the order of docs/metrics.md.
var subjects = []*subject{
	leaseSubject, waitSubject, sessionSubject, writeSubject, groupSubject, rejectionSubject, inventorySubject, databaseSubject, sweepSubject, httpSubject, processSubject,
}

// declare adds a family. There is no other way to one, so that none is missing in docs/metrics.md.
func (s *subject) declare(f family) *family {
	s.families = append(s.families, &f)
	return &f
}

func (f *family) labelNames() []string {
	names := make([]string, len(f.labels))
	for i, label := range f.labels {
		names[i] = label.name
	}
	return names
}

// metricRegistry makes and shows the metrics of families.
type metricRegistry struct{ *prometheus.Registry }

func (r metricRegistry) counters(f *family) *prometheus.CounterVec {
	made := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.name, Help: f.help}, f.labelNames())
	r.MustRegister(made)
	return made
}

func (r metricRegistry) gauge(f *family) prometheus.Gauge {
	made := prometheus.NewGauge(prometheus.GaugeOpts{Name: f.name, Help: f.help})
	r.MustRegister(made)
	return made
}

func (r metricRegistry) gauges(f *family) *prometheus.GaugeVec {
	made := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.name, Help: f.help}, f.labelNames())
	r.MustRegister(made)
	return made
}

func (r metricRegistry) histograms(f *family) *prometheus.HistogramVec {
	made := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.name, Help: f.help, Buckets: f.buckets}, f.labelNames())
	r.MustRegister(made)
	return made
}

// histogram is of a family without labels.
func (r metricRegistry) histogram(f *family) prometheus.Observer {
	return r.histograms(f).WithLabelValues()
}

// onScrape has the values of families read at each scrape, together, so that they belong together.
func (r metricRegistry) onScrape(read func(*readings), families ...*family) {
	collector := scrapeCollector{read, map[*family]*prometheus.Desc{}}
	for _, f := range families {
		collector.descs[f] = prometheus.NewDesc(f.name, f.help, f.labelNames(), nil)
	}
	r.MustRegister(collector)
}

// scrapeCollector asks for values when they are scraped.
type scrapeCollector struct {
	read  func(*readings)
	descs map[*family]*prometheus.Desc
}

// Describe is part of prometheus.Collector.
func (c scrapeCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		to <- desc
	}
}

// Collect is part of prometheus.Collector.
func (c scrapeCollector) Collect(to chan<- prometheus.Metric) { c.read(&readings{to, c.descs}) }

// readings are the values of one scrape.
type readings struct {
	to    chan<- prometheus.Metric
	descs map[*family]*prometheus.Desc
}

// value is of a counter or a gauge.
func (r *readings) value(f *family, value float64, labels ...string) {
	kind := prometheus.GaugeValue
	if f.kind == kindCounter {
		kind = prometheus.CounterValue
	}
	r.to <- prometheus.MustNewConstMetric(r.descs[f], kind, value, labels...)
}

// flag is 1 for what is so.
func (r *readings) flag(f *family, is bool, labels ...string) {
	value := 0.0
	if is {
		value = 1
	}
	r.value(f, value, labels...)
}

// histogram is of counts up to each bound, the lower ones included.
func (r *readings) histogram(f *family, count uint64, sum float64, upTo map[float64]uint64, labels ...string) {
	r.to <- prometheus.MustNewConstHistogram(r.descs[f], count, sum, upTo, labels...)
}
