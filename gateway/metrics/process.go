package metrics

import "runtime"

var processSubject = &subject{title: "The process"}

var (
	buildFamily = processSubject.declare(Family{
		Kind: Gauge, Name: "fencegate_build_info",
		Help: "1, with the version as a label.",
		Look: "Which versions run.",
		Labels: []Label{
			{Name: "version", Open: "the program's, as `fencegate version` prints it"},
			{Name: "go_version", Open: "of the Go that built it"},
		},
	})
	spansDroppedFamily = processSubject.declare(Family{
		Kind: Counter, Name: "fencegate_spans_dropped_total",
		Help: "Spans that were not delivered: too many waited, or the collector did not accept them.",
		Look: "The collector is unreachable, or too slow for the load: sample less (`--trace-sample-ratio`). " +
			"0 without tracing.",
	})
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
