package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencegate/fencegate/store"
)

// The rows that a sweep ends or deletes, as metrics name them.
const (
	sweptLeases      = "lease_expired"
	sweptSessions    = "session_expired"
	forgotLeases     = "lease_forgotten"
	forgotRejections = "rejection_forgotten"
	forgotAudit      = "audit_forgotten"
)

var sweepSubject = &subject{title: "Sweeps"}

var (
	sweptFamily = sweepSubject.counter("fencegate_swept_total",
		"Rows that this gateway's sweeps tidied: expired leases and sessions that they ended or counted; old leases, "+
			"rejections and entries of the audit log that they deleted.",
		"`lease_expired` and `session_expired` are holders that did not release: they crashed, or were cut off. "+
			"One gateway counts each expired lease, also those of an expired session, and those whose lock was granted "+
			"again before the sweep.",
		Label{Name: "kind", Values: []string{sweptLeases, sweptSessions, forgotLeases, forgotRejections, forgotAudit}})
	sweepTimeFamily = sweepSubject.histogram("fencegate_sweep_duration_seconds",
		"Time that successful sweeps took.",
		"Nothing waits for a sweep, but tables grow without it. Seconds are a lot.",
		durationBuckets)
	lastSweepFamily = sweepSubject.gauge("fencegate_last_sweep_timestamp_seconds",
		"When this gateway's last successful sweep ended, in seconds since 1970 by its own clock; 0 before the "+
			"first.",
		"More than a minute ago: the database is unreachable, or too slow for sweeps. Expired leases are "+
			"grantable all the same.")
)

func newSwept(r registry) *prometheus.CounterVec {
	swept := r.counters(sweptFamily)
	for _, kind := range sweptFamily.Labels[0].Values {
		swept.WithLabelValues(kind)
	}
	return swept
}

// Swept counts the work of one sweep.
func (m *Metrics) Swept(swept store.Swept) {
	m.swept.WithLabelValues(sweptLeases).Add(float64(swept.Expired))
	m.swept.WithLabelValues(sweptSessions).Add(float64(swept.SessionsExpired))
	m.swept.WithLabelValues(forgotLeases).Add(float64(swept.LeasesForgotten))
	m.swept.WithLabelValues(forgotRejections).Add(float64(swept.RejectionsForgotten))
	m.swept.WithLabelValues(forgotAudit).Add(float64(swept.AuditForgotten))
}

// WatchSweeper shows how long sweeps take, and when the last one ended.
func (m *Metrics) WatchSweeper(stats func() store.SweepStats) {
	m.registry.onScrape(func(to *readings) {
		s := stats()
		to.durations(sweepTimeFamily, s.Took)
		to.value(lastSweepFamily, secondsSince1970(s.Last))
	}, sweepTimeFamily, lastSweepFamily)
}
