package metrics

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
)

// The sources of writes.
const (
	SourceHTTP        = "http"        // one write in a request
	SourceBulk        = "bulk"        // a write of an array
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
		"Delayed refusals, because the same token was refused again and again.",
		"Zombies that do not stop when they are refused (`--refusal-delay-max`). The delay counts in "+
			"`fencegate_http_request_duration_seconds`, too.")
	delayedFamily = writeSubject.gauge("fencegate_write_refusals_delayed",
		"Answers that are delayed now.",
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

const (
	laneQuick    = "quick"
	laneLarge    = "large"
	laneLockWait = "lock_wait"
)

var laneLabel = Label{Name: "lane", Values: []string{laneQuick, laneLarge, laneLockWait}}

var groupSubject = &subject{title: "The group commit"}

var (
	commitTimeFamily = groupSubject.histogram("fencegate_write_commit_duration_seconds",
		"Time that a batch of writes took in the database until its commit, by lane: quick; large, of large "+
			"values; lock_wait, of resources whose fence another session had locked.",
		"The disk, or the standby that commits wait for; in `lock_wait`, locks. Failed batches are not counted.",
		durationBuckets, laneLabel)
	batchSizeFamily = groupSubject.histogram("fencegate_write_batch_size",
		"Writes in a batch.",
		"Grows with the load: that many writes share the cost of a commit.",
		batchSizes())
	batchesFamily = groupSubject.gauge("fencegate_write_batches_in_flight",
		"Batches being committed, by lane.",
		"All lanes together have at most `--write-batches-max`.",
		laneLabel)
	queueFamily = groupSubject.gauge("fencegate_write_queue_writes",
		"Writes that wait for a batch.",
		"Usually near 0. If it grows, the database does not keep up, or a fence is locked for long.")
	queueBytesFamily = groupSubject.gauge("fencegate_write_queue_bytes",
		"Bytes of the writes that wait for a batch.",
		"As above, for `--write-queue-bytes-max`.")
	queueRefusedFamily = groupSubject.counter("fencegate_write_queue_refused_total",
		"Writes that were refused because too many waited.",
		"More load than the database takes (`--write-queue-max`, `--write-queue-bytes-max`). Clients get "+
			"`unavailable`.")
)

func (r *readings) group(s groupcommit.Stats) {
	r.value(queueFamily, float64(s.Queued))
	r.value(queueBytesFamily, float64(s.QueuedBytes))
	r.value(queueRefusedFamily, float64(s.Refused))
	r.value(batchesFamily, float64(s.InFlight.Quick), laneQuick)
	r.value(batchesFamily, float64(s.InFlight.Large), laneLarge)
	r.value(batchesFamily, float64(s.InFlight.LockWait), laneLockWait)
	r.durations(commitTimeFamily, s.Commits.Quick, laneQuick)
	r.durations(commitTimeFamily, s.Commits.Large, laneLarge)
	r.durations(commitTimeFamily, s.Commits.LockWait, laneLockWait)
	r.histogram(batchSizeFamily, s.Batches, float64(s.Writes), s.BatchSizes[:])
}

func batchSizes() []float64 {
	sizes := make([]float64, len(groupcommit.SizeBounds))
	for i, bound := range groupcommit.SizeBounds {
		sizes[i] = float64(bound)
	}
	return sizes
}

// Totals returns what was counted since the start of this gateway, as /metrics shows it.
func (m *Metrics) Totals() (store.Totals, error) {
	totals := store.Totals{Rejected: map[store.RejectionClass]int64{}}
	err := each(m.writes.results, func(metric *dto.Metric) {
		writes := int64(metric.GetCounter().GetValue())
		switch result := labelOf(metric, "result"); {
		case result == resultAccepted:
			totals.Accepted += writes
		case result == string(api.CodeUnavailable), result == string(api.CodeInternal):
			totals.Failed += writes
		}
	})
	if err != nil {
		return totals, err
	}
	err = each(m.writes.rejected, func(metric *dto.Metric) {
		class := store.RejectionClass{
			Verdict: store.Verdict(labelOf(metric, "code")), Kind: store.RejectionKind(labelOf(metric, "kind")),
		}
		totals.Rejected[class] += int64(metric.GetCounter().GetValue())
	})
	if err != nil {
		return totals, err
	}
	return totals, each(m.writes.times, func(metric *dto.Metric) { addTimes(&totals.Took, metric.GetHistogram()) })
}

// addTimes adds a histogram, each of whose buckets includes the lower ones.
func addTimes(took *store.WriteTimes, histogram *dto.Histogram) {
	var below uint64
	for i, bucket := range histogram.GetBucket() {
		took[i] += int64(bucket.GetCumulativeCount() - below)
		below = bucket.GetCumulativeCount()
	}
	took[len(took)-1] += int64(histogram.GetSampleCount() - below)
}

// each calls read with every metric of a family.
func each(collector prometheus.Collector, read func(*dto.Metric)) error {
	metrics := make(chan prometheus.Metric)
	go func() {
		defer close(metrics)
		collector.Collect(metrics)
	}()
	var failed error
	for metric := range metrics {
		var written dto.Metric
		if err := metric.Write(&written); err != nil {
			failed = fmt.Errorf("%s: %w", metric.Desc(), err)
			continue
		}
		read(&written)
	}
	return failed
}

func labelOf(metric *dto.Metric, name string) string {
	for _, label := range metric.GetLabel() {
		if label.GetName() == name {
			return label.GetValue()
		}
	}
	return ""
}
