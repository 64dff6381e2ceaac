package gateway

var spansDroppedFamily = processSubject.declare(family{
	kind: kindCounter, name: "fencegate_spans_dropped_total",
	help: "Spans that were not delivered: too many waited, or the collector did not take them.",
	look: "The collector is away, or too slow for the load: sample less (`--trace-sample-ratio`). 0 where nothing is traced.",
})

// WatchTracing shows how many spans were not delivered.
func (m *Metrics) WatchTracing(dropped func() uint64) *Metrics {
	m.registry.onScrape(func(to *readings) { to.value(spansDroppedFamily, float64(dropped())) }, spansDroppedFamily)
	return m
}
