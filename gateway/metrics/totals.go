package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

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
