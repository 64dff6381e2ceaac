package metrics

import "runtime"

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
