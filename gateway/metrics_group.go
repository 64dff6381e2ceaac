package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencegate/fencegate/store"
)

// groupCollector shows the group commit. Each scrape reads its state once, so that the numbers belong together.
type groupCollector func() store.GroupStats

var (
	groupQueued = prometheus.NewDesc("fencegate_write_queue_writes",
		"Writes that wait for a batch.", nil, nil)
	groupQueuedBytes = prometheus.NewDesc("fencegate_write_queue_bytes",
		"Bytes of the writes that wait for a batch.", nil, nil)
	groupInFlight = prometheus.NewDesc("fencegate_write_batches_in_flight",
		"Batches that are being committed, by lane: quick; large, of large values; patient, of resources whose fence somebody else had locked.",
		[]string{"lane"}, nil)
	groupSizes = prometheus.NewDesc("fencegate_write_batch_size",
		"Writes in a batch.", nil, nil)
	groupBusy = prometheus.NewDesc("fencegate_write_busy_total",
		"Writes that went back to the queue, since somebody else had the fence locked.", nil, nil)
	groupRefused = prometheus.NewDesc("fencegate_write_queue_refused_total",
		"Writes that were refused because too many waited.", nil, nil)
)

// Describe is part of prometheus.Collector.
func (groupCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{groupQueued, groupQueuedBytes, groupInFlight, groupSizes, groupBusy, groupRefused} {
		to <- desc
	}
}

// Collect is part of prometheus.Collector.
func (c groupCollector) Collect(to chan<- prometheus.Metric) {
	stats := c()
	gauge := func(desc *prometheus.Desc, value int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	gauge(groupQueued, stats.Queued)
	gauge(groupQueuedBytes, stats.QueuedBytes)
	gauge(groupInFlight, stats.InFlight.Quick, "quick")
	gauge(groupInFlight, stats.InFlight.Large, "large")
	gauge(groupInFlight, stats.InFlight.Patient, "patient")
	to <- prometheus.MustNewConstMetric(groupBusy, prometheus.CounterValue, float64(stats.Busy))
	to <- prometheus.MustNewConstMetric(groupRefused, prometheus.CounterValue, float64(stats.Refused))
	sizes := map[float64]uint64{}
	for i, bound := range store.BatchSizeBounds {
		sizes[float64(bound)] = stats.BatchSizes[i]
	}
	to <- prometheus.MustNewConstHistogram(groupSizes, stats.Batches, float64(stats.Writes), sizes)
}
