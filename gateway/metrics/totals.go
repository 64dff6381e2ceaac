package gateway

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

var writeTimeFamily = writeSubject.declare(family{
	kind: kindHistogram, name: "fencegate_write_duration_seconds",
	help:    "Time from a write's arrival to its verdict, of accepted writes. Those of others would blur it: what is refused from memory takes no time, and what fails as long as patience lasts.",
	look:    "How fast writes are, as the gateway sees them. Much more than `fencegate_write_commit_duration_seconds`: they wait for a batch, or for a fence.",
	labels:  []label{sourceLabel},
	buckets: store.WriteTimeBounds[:],
})

// writeTimes are how long accepted writes took.
type writeTimes struct {
	vec                     *prometheus.HistogramVec
	http, bulk, transaction prometheus.Observer // looking one up by its labels costs more than to count
}

func newWriteTimes(r metricRegistry) writeTimes {
	vec := r.histograms(writeTimeFamily)
	return writeTimes{vec, vec.WithLabelValues(sourceHTTP), vec.WithLabelValues(sourceBulk), vec.WithLabelValues(sourceTransaction)}
}

// totals are what was counted since the start of this gateway, as /metrics shows it.
func (m *Metrics) totals() (store.Totals, error) {
	totals := store.Totals{Rejected: map[store.Verdict]int64{}}
	err := each(m.writes, func(metric *dto.Metric) {
		writes := int64(metric.GetCounter().GetValue())
		switch result := labelOf(metric, "result"); {
		case result == resultAccepted:
			totals.Accepted += writes
		case rejectionKinds[store.Verdict(result)].code != "":
			totals.Rejected[store.Verdict(result)] += writes
		case result == string(api.CodeUnavailable), result == string(api.CodeInternal):
			totals.Failed += writes
		}
	})
	if err != nil {
		return totals, err
	}
	return totals, each(m.writeTimes.vec, func(metric *dto.Metric) { addTimes(&totals.Took, metric.GetHistogram()) })
}

// addTimes adds a histogram, whose buckets hold those below, too.
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
