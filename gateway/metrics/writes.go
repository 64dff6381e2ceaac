package metrics

import (
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// The sources of writes.
const (
	SourceHTTP        = "http"        // one write in a request
	SourceBulk        = "bulk"        // a line of a bulk stream
	SourceTransaction = "transaction" // several writes under several tokens, which count as one
)

const resultAccepted = "accepted"

var sourceLabel = Label{Name: "source", Values: []string{SourceHTTP, SourceBulk, SourceTransaction}}

// rejectionCodes are those of the rule, in the order of its steps.
var rejectionCodes = texts(
	api.CodeTokenRequired, api.CodeTokenUnknown, api.CodeTokenStale, api.CodeLeaseMismatch, api.CodeLeaseExpired,
	api.CodeVersionMismatch,
)

var writeSubject = &subject{title: "Writes"}

var (
	writesFamily = writeSubject.counter("fencegate_writes_total",
		"Writes by source and result: accepted, or the error's code. A transaction is one write.",
		"Most `token_stale` are zombies, writers with an old token: `fencegate_rejected_writes_total` has the kinds. A few "+
			"now and then show that the fence works; many at once, that holders lose their leases while they work. `token_unknown` are writers that invent "+
			"tokens, or took them from another database. `version_mismatch` is ordinary optimistic concurrency.",
		sourceLabel, Label{Name: "result", Values: append(
			append([]string{resultAccepted}, rejectionCodes...), texts(
				api.CodeNotFound, api.CodeInvalidRequest, api.CodeInvalidName, api.CodeUnavailable, api.CodeInternal,
			)...,
		)})
	delaysFamily = writeSubject.counter("fencegate_write_refusals_delayed_total",
		"Delayed refusals of single writes and transactions, and pauses of bulk streams, because the same token "+
			"was refused again and again.",
		"Zombies that do not stop when they are refused (`--refusal-delay-max`). The delay counts in "+
			"`fencegate_http_request_duration_seconds`, too.")
	delayedFamily = writeSubject.gauge("fencegate_write_refusals_delayed",
		"Answers and bulk streams that are delayed now.",
		"One for each zombie. At 8,192 no more are delayed: then limit clients in front of the gateway.")
	writeTimeFamily = writeSubject.histogram("fencegate_write_duration_seconds",
		"Time from a write's arrival to its verdict, of accepted writes only. Refusals from memory take no time "+
			"and failures take a whole timeout: both would blur it.",
		"How fast writes are, as the gateway sees them. Much more than "+
			"`fencegate_write_commit_duration_seconds`: they wait for a batch, or for a fence.",
		store.WriteTimeBounds[:], sourceLabel)
)

// Delays counts delayed answers.
type Delays struct {
	total prometheus.Counter
	now   prometheus.Gauge
}

func newDelays(r registry) Delays {
	return Delays{r.counters(delaysFamily).WithLabelValues(), r.gauge(delayedFamily)}
}

// Begin counts a delay that begins.
func (d *Delays) Begin() {
	d.total.Inc()
	d.now.Inc()
}

// End counts a delay that ends.
func (d *Delays) End() { d.now.Dec() }

// writeMetrics counts writes.
type writeMetrics struct {
	results  *prometheus.CounterVec
	rejected *prometheus.CounterVec
	times    *prometheus.HistogramVec
	accepted map[string]acceptedWrites // by source: finding them by their labels costs more than counting
}

type acceptedWrites struct {
	count prometheus.Counter
	took  prometheus.Observer
}

func newWriteMetrics(r registry) writeMetrics {
	m := writeMetrics{
		results: r.counters(writesFamily), rejected: r.counters(rejectedFamily),
		times: r.histograms(writeTimeFamily), accepted: map[string]acceptedWrites{},
	}
	for _, class := range store.RejectionClasses() {
		if slices.Contains(rejectionCodes, string(class.Verdict)) {
			m.rejected.WithLabelValues(string(class.Verdict), string(class.Kind))
		}
	}
	for _, source := range sourceLabel.Values {
		m.accepted[source] = acceptedWrites{
			m.results.WithLabelValues(source, resultAccepted), m.times.WithLabelValues(source),
		}
		for _, code := range rejectionCodes {
			m.results.WithLabelValues(source, code)
		}
		m.results.WithLabelValues(source, string(api.CodeUnavailable))
	}
	return m
}

// Write counts a write, its verdict, and how long an accepted one took.
func (m *Metrics) Write(source string, took time.Duration, err error) {
	if err != nil {
		if rejected, ok := errors.AsType[*store.RejectedError](err); ok {
			m.writes.rejected.WithLabelValues(string(rejected.Verdict), string(rejected.Kind())).Inc()
		}
		m.writes.results.WithLabelValues(source, string(m.codeOf(err))).Inc()
		return
	}
	accepted := m.writes.accepted[source]
	accepted.count.Inc()
	accepted.took.Observe(took.Seconds())
}
