package gateway

import (
	"cmp"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// What is done with leases, as metrics name it.
const (
	operationAcquire = "acquire"
	operationRenew   = "renew"
	operationRelease = "release"
	operationBreak   = "break"
)

const (
	resultOK = "ok"
	// resultClientGone is the result of what nobody was there to hear.
	resultClientGone = "client_gone"
	// modeUnknown is the mode of a lease that the caller does not have.
	modeUnknown = "unknown"
)

var (
	leaseOperationLabel = label{name: "operation", values: []string{operationAcquire, operationRenew, operationRelease, operationBreak}}
	modeLabel           = label{name: "mode", values: []string{string(store.Exclusive), string(store.Shared)}}
	leaseResults        = []string{
		resultOK, string(api.CodeLockHeld), string(api.CodeDeadlock), string(api.CodeLeaseLost), string(api.CodeNotFound), string(api.CodeInvalidRequest),
		string(api.CodeInvalidName), string(api.CodeUnavailable), string(api.CodeInternal), resultClientGone,
	}
)

// quickBuckets are for what a database answers, in seconds.
var quickBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}

var leaseSubject = &subject{title: "Leases"}

var (
	leaseOperationsFamily = leaseSubject.declare(family{
		kind: kindCounter, name: "fencegate_lease_operations_total",
		help: "Acquires (campaigns among them), renewals, releases (resignations among them) and breaks, by mode and result: ok, or the error's code.",
		look: "`lock_held` is contention; `lease_lost` of a renewal is a holder that was away for too long, and goes on as a zombie unless it stops. The mode is `unknown` where the caller does not have the lease that it names.",
		labels: []label{
			leaseOperationLabel, {name: "mode", values: append([]string{modeUnknown}, modeLabel.values...)}, {name: "result", values: leaseResults},
		},
	})
	leaseOperationTimeFamily = leaseSubject.declare(family{
		kind: kindHistogram, name: "fencegate_lease_operation_duration_seconds",
		help:   "Time that acquires, renewals, releases and breaks took, without acquires that stood in line.",
		look:   "The database's latency, as holders feel it. A renewal that takes a third of the TTL is as dangerous as one that comes late.",
		labels: []label{leaseOperationLabel}, buckets: quickBuckets,
	})
	leaseAgeFamily = leaseSubject.declare(family{
		kind: kindHistogram, name: "fencegate_lease_age_at_release_seconds",
		help:   "How long leases had lasted that their holders released, since the grant.",
		look:   "How long locks are held. Many that last a few milliseconds are work too small for a lock; leases that a session's end or an expiry ended are not in it.",
		labels: []label{modeLabel}, buckets: []float64{.001, .005, .025, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 21600, 86400},
	})
	latenessFamily = leaseSubject.declare(family{
		kind: kindHistogram, name: "fencegate_heartbeat_lateness_seconds",
		help:    "How much later renewals and keepalives came than a third of the TTL after the one before; 0: in time. Those that came too late are in it.",
		look:    "Holders that pause: garbage collection, frozen machines, slow networks. Two thirds of the TTL late is a lost lease.",
		buckets: []float64{0, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	})
)

var waitSubject = &subject{title: "Waiting and watching"}

var (
	waitTimeFamily = waitSubject.declare(family{
		kind: kindHistogram, name: "fencegate_acquire_wait_duration_seconds",
		help:   "Time that acquires took which were ready to wait, by result.",
		look:   "How long the lines are, in time; `lock_held` are those whose `wait_ms` was over.",
		labels: []label{{name: "result", values: leaseResults}}, buckets: []float64{.001, .005, .025, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 600},
	})
	waitingFamily = waitSubject.declare(family{
		kind: kindGauge, name: "fencegate_waiting_acquires",
		help: "Acquires that this gateway answers when they are granted, or have waited long enough.",
		look: "Each holds a connection.",
	})
	watchesFamily = waitSubject.declare(family{
		kind: kindGauge, name: "fencegate_open_watches",
		help: "Streams of events of this gateway that are open.",
		look: "At `--watches-max` the next one is refused.",
	})
)

var sessionSubject = &subject{title: "Sessions"}

var sessionOperationsFamily = sessionSubject.declare(family{
	kind: kindCounter, name: "fencegate_session_operations_total",
	help: "Sessions created, kept alive and ended, by result: ok, or the error's code.",
	look: "`lease_lost` of a keepalive is an owner that was away for too long: all leases of its session are lost.",
	labels: []label{
		{name: "operation", values: []string{"create", "keepalive", "end"}},
		{name: "result", values: []string{
			resultOK, string(api.CodeLeaseLost), string(api.CodeNotFound), string(api.CodeInvalidRequest), string(api.CodeUnavailable), string(api.CodeInternal),
		}},
	},
})

// leaseMetrics are of leases, lines and sessions.
type leaseMetrics struct {
	operations *prometheus.CounterVec
	took       map[string]prometheus.Observer // by operation
	ages       map[store.Mode]prometheus.Observer
	lateness   prometheus.Observer
	waits      *prometheus.HistogramVec
	waiting    prometheus.Gauge
	watches    prometheus.Gauge
	sessions   *prometheus.CounterVec
}

func newLeaseMetrics(r metricRegistry) leaseMetrics {
	m := leaseMetrics{
		operations: r.counters(leaseOperationsFamily),
		took:       map[string]prometheus.Observer{},
		ages:       map[store.Mode]prometheus.Observer{},
		lateness:   r.histogram(latenessFamily),
		waits:      r.histograms(waitTimeFamily),
		waiting:    r.gauge(waitingFamily),
		watches:    r.gauge(watchesFamily),
		sessions:   r.counters(sessionOperationsFamily),
	}
	took, ages := r.histograms(leaseOperationTimeFamily), r.histograms(leaseAgeFamily)
	for _, operation := range leaseOperationLabel.values {
		m.took[operation] = took.WithLabelValues(operation)
	}
	for _, mode := range modeLabel.values {
		m.ages[store.Mode(mode)] = ages.WithLabelValues(mode)
		for _, operation := range leaseOperationLabel.values {
			m.operations.WithLabelValues(operation, mode, resultOK)
		}
		m.operations.WithLabelValues(operationAcquire, mode, string(api.CodeLockHeld))
		m.operations.WithLabelValues(operationAcquire, mode, string(api.CodeUnavailable))
	}
	for _, operation := range []string{operationRenew, operationRelease} {
		m.operations.WithLabelValues(operation, modeUnknown, string(api.CodeLeaseLost))
		m.operations.WithLabelValues(operation, modeUnknown, string(api.CodeUnavailable))
	}
	for _, operation := range sessionOperationsFamily.labels[0].values {
		m.sessions.WithLabelValues(operation, resultOK)
	}
	m.sessions.WithLabelValues("keepalive", string(api.CodeLeaseLost))
	m.waits.WithLabelValues(resultOK)
	m.waits.WithLabelValues(string(api.CodeLockHeld))
	return m
}

// leaseOperation counts what was done with a lease of the mode, if that is known, and has taken so long.
func (m *leaseMetrics) leaseOperation(operation string, mode store.Mode, took time.Duration, err error) {
	m.operations.WithLabelValues(operation, cmp.Or(string(mode), modeUnknown), resultOf(err, resultOK)).Inc()
	m.took[operation].Observe(took.Seconds())
}

// acquired counts an acquire. The time of one that stood in line is that of the line.
func (m *leaseMetrics) acquired(request store.AcquireRequest, lease store.Lease, took time.Duration, err error) {
	result := resultOf(err, resultOK)
	m.operations.WithLabelValues(operationAcquire, string(cmp.Or(request.Mode, store.Exclusive)), result).Inc()
	if request.Wait > 0 {
		m.waits.WithLabelValues(result).Observe(took.Seconds())
	}
	if request.Wait == 0 || err == nil && lease.Waited == 0 {
		m.took[operationAcquire].Observe(took.Seconds())
	}
}

// renewed counts a renewal.
func (m *leaseMetrics) renewed(lease store.Lease, took time.Duration, err error) {
	m.leaseOperation(operationRenew, lease.Mode, took, err)
	m.heartbeat(lease.Late, err)
}

// released counts a release.
func (m *leaseMetrics) released(lease store.Released, took time.Duration, err error) {
	m.leaseOperation(operationRelease, lease.Mode, took, err)
	if lease.Age > 0 {
		m.ages[lease.Mode].Observe(lease.Age.Seconds())
	}
}

// keptAlive counts a keepalive of a session.
func (m *leaseMetrics) keptAlive(session store.Session, err error) {
	m.sessionOperation("keepalive", err)
	m.heartbeat(session.Late, err)
}

func (m *leaseMetrics) heartbeat(late time.Duration, err error) {
	var lost *store.LostError
	if errors.As(err, &lost) {
		late = lost.Late
	}
	if err == nil || late > 0 {
		m.lateness.Observe(late.Seconds())
	}
}

func (m *leaseMetrics) sessionOperation(operation string, err error) {
	m.sessions.WithLabelValues(operation, resultOf(err, resultOK)).Inc()
}
