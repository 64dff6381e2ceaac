package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencegate/fencegate/gateway/api"
)

// The sources by which writes come in.
const (
	sourceHTTP        = "http"        // one write in a request
	sourceBulk        = "bulk"        // a line of a stream of writes
	sourceTransaction = "transaction" // several writes under several claims, which count as one
)

const resultAccepted = "accepted"

var sourceLabel = label{name: "source", values: []string{sourceHTTP, sourceBulk, sourceTransaction}}

// rejectionCodes are those of the rule, in the order of its steps.
var rejectionCodes = []string{
	string(api.CodeTokenRequired), string(api.CodeTokenUnknown), string(api.CodeTokenStale), string(api.CodeLeaseMismatch), string(api.CodeLeaseExpired),
	string(api.CodeVersionMismatch),
}

var writeSubject = &subject{title: "Writes"}

var writesFamily = writeSubject.declare(family{
	kind: kindCounter, name: "fencegate_writes_total",
	help: "Writes by source and result: accepted, or the error's code. A transaction is one write.",
	look: "`token_stale` are the zombies: writers that were shut out. A few now and then show that the fence works; many at once, that holders lose their leases while they work. `token_unknown` are writers that make tokens up, or of another database. `version_mismatch` is ordinary optimism.",
	labels: []label{sourceLabel, {name: "result", values: append(append([]string{resultAccepted}, rejectionCodes...),
		string(api.CodeNotFound), string(api.CodeInvalidRequest), string(api.CodeInvalidName), string(api.CodeUnavailable), string(api.CodeInternal))}},
})

var (
	refusalDelaysFamily = writeSubject.declare(family{
		kind: kindCounter, name: "fencegate_write_refusals_delayed_total",
		help: "Refusals of single writes and transactions whose answer was delayed, and pauses of bulk streams, since the same token was refused again and again.",
		look: "Zombies that go on, and do not stop when they are refused (`--refusal-delay-max`). The delay is in `fencegate_http_request_duration_seconds`, too.",
	})
	refusalsDelayedFamily = writeSubject.declare(family{
		kind: kindGauge, name: "fencegate_write_refusals_delayed",
		help: "Answers and bulk streams that are delayed now.",
		look: "One for each zombie. At 8,192 no more are delayed: then limit clients in front of the gateway.",
	})
)

// refusalDelayMetrics are of answers that are delayed.
type refusalDelayMetrics struct {
	total prometheus.Counter
	now   prometheus.Gauge
}

func (m *refusalDelayMetrics) begin() {
	m.total.Inc()
	m.now.Inc()
}

func (m *refusalDelayMetrics) end() { m.now.Dec() }

// writeMetrics are of writes.
type writeMetrics struct {
	writes   *prometheus.CounterVec
	accepted map[string]prometheus.Counter // by source

	refusalDelays refusalDelayMetrics
}

func newWriteMetrics(r metricRegistry) writeMetrics {
	m := writeMetrics{writes: r.counters(writesFamily), accepted: map[string]prometheus.Counter{}}
	m.refusalDelays = refusalDelayMetrics{r.counters(refusalDelaysFamily).WithLabelValues(), r.gauge(refusalsDelayedFamily)}
	for _, source := range sourceLabel.values {
		m.accepted[source] = m.writes.WithLabelValues(source, resultAccepted)
		for _, code := range rejectionCodes {
			m.writes.WithLabelValues(source, code)
		}
		m.writes.WithLabelValues(source, string(api.CodeUnavailable))
	}
	return m
}

// write counts the verdict on a write.
func (m *writeMetrics) write(source string, err error) {
	if err == nil {
		m.accepted[source].Inc()
		return
	}
	m.writes.WithLabelValues(source, resultOf(err, resultAccepted)).Inc()
}
