package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencegate/fencegate/store"
)

// What a sweep tidies, as metrics name it.
const (
	sweptLeases      = "lease_expired"
	sweptSessions    = "session_expired"
	forgotLeases     = "lease_forgotten"
	forgotRejections = "rejection_forgotten"
	forgotSamples    = "sample_forgotten"
)

var sweepSubject = &subject{title: "Sweeps"}

var (
	sweptFamily = sweepSubject.declare(family{
		kind: kindCounter, name: "fencegate_swept_total",
		help:   "What this gateway's sweeps tidied: leases and sessions that had expired, leases, rejections and samples of gateways that were forgotten.",
		look:   "`lease_expired` and `session_expired` are holders that did not give back: they crashed, or were cut off. Each expired lease is counted by one gateway; one that was granted anew before a sweep saw it is not in it.",
		labels: []label{{name: "kind", values: []string{sweptLeases, sweptSessions, forgotLeases, forgotRejections, forgotSamples}}},
	})
	sweepTimeFamily = sweepSubject.declare(family{
		kind: kindHistogram, name: "fencegate_sweep_duration_seconds",
		help:    "Time that sweeps took, those that failed left out.",
		look:    "Nothing waits for a sweep, but tables grow without: seconds are a lot.",
		buckets: secondsOf(store.DurationBounds[:]),
	})
	lastSweepFamily = sweepSubject.declare(family{
		kind: kindGauge, name: "fencegate_last_sweep_timestamp_seconds",
		help: "When this gateway's last sweep ended that did not fail, in seconds since 1970 by its own clock; 0: there was none yet.",
		look: "More than a minute ago: the database is away, or too slow for sweeps. Expired leases are grantable all the same.",
	})
)

func newSwept(r metricRegistry) *prometheus.CounterVec {
	swept := r.counters(sweptFamily)
	for _, kind := range sweptFamily.labels[0].values {
		swept.WithLabelValues(kind)
	}
	return swept
}

// Swept counts what a sweep did.
func (m *Metrics) Swept(swept store.Swept) {
	m.swept.WithLabelValues(sweptLeases).Add(float64(swept.Expired))
	m.swept.WithLabelValues(sweptSessions).Add(float64(swept.SessionsExpired))
	m.swept.WithLabelValues(forgotLeases).Add(float64(swept.LeasesForgotten))
	m.swept.WithLabelValues(forgotRejections).Add(float64(swept.RejectionsForgotten))
	m.swept.WithLabelValues(forgotSamples).Add(float64(swept.SamplesForgotten))
}

// WatchSweeper shows how sweeps go.
func (m *Metrics) WatchSweeper(stats func() store.SweepStats) {
	m.registry.onScrape(func(to *readings) {
		s := stats()
		to.durations(sweepTimeFamily, s.Took)
		last := 0.0
		if !s.Last.IsZero() {
			last = float64(s.Last.UnixMilli()) / 1000
		}
		to.value(lastSweepFamily, last)
	}, sweepTimeFamily, lastSweepFamily)
}
