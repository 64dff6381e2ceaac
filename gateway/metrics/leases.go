package metrics

import (
	"cmp"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// The operations on leases, as metrics name them.
const (
	operationAcquire = "acquire"
	operationRenew   = "renew"
	operationRelease = "release"
	operationBreak   = "break"
)

const (
	resultOK = "ok"
	// modeUnknown is the mode of a lease that the caller does not have.
	modeUnknown = "unknown"
)

var (
	leaseOperationLabel = Label{Name: "operation", Values: []string{
		operationAcquire, operationRenew, operationRelease, operationBreak,
	}}
	modeLabel    = Label{Name: "mode", Values: texts(store.Exclusive, store.Shared)}
	leaseResults = append([]string{resultOK}, texts(
		api.CodeLockHeld, api.CodeDeadlock, api.CodeLeaseLost, api.CodeNotFound, api.CodeInvalidRequest,
		api.CodeInvalidName, api.CodeUnauthenticated, api.CodeUnavailable, unavailableIn(store.ProviderRedis),
		unavailableIn(store.ProviderRedlock), api.CodeInternal, ClientGone,
	)...)
)

// unavailableIn is the result where the provider of the lease failed, and not the database.
func unavailableIn(provider store.Provider) api.Code {
	return api.Code(provider) + "_" + api.CodeUnavailable
}

// leaseResult is result, which names a provider that failed.
func (m *Metrics) leaseResult(err error) string {
	if failed, ok := errors.AsType[*store.ProviderError](err); ok && m.codeOf(err) == api.CodeUnavailable {
		return string(unavailableIn(failed.Provider))
	}
	return m.result(err, resultOK)
}

// quickBuckets are for what a database answers, in seconds.
var quickBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}

var leaseSubject = &subject{title: "Leases"}

var (
	leaseOperationsFamily = leaseSubject.counter("fencegate_lease_operations_total",
		"Acquires, renewals, releases and breaks, by mode and "+
			"result: ok, or the error's code.",
		"`unavailable` is the database's, `redis_unavailable` and `redlock_unavailable` are Redis's. `lock_held` is "+
			"contention. `lease_lost` of a renewal is a holder that was away for too long, and "+
			"becomes a zombie unless it stops. The mode is `unknown` where the caller does not have the lease.",
		leaseOperationLabel, Label{Name: "mode", Values: append([]string{modeUnknown}, modeLabel.Values...)},
		Label{Name: "result", Values: leaseResults})
	leaseOperationTimeFamily = leaseSubject.histogram("fencegate_lease_operation_duration_seconds",
		"Time that acquires, renewals, releases and breaks took, without acquires that waited in a queue.",
		"The database's latency, as holders feel it. A renewal that takes a third of the TTL is as dangerous as "+
			"a late one.",
		quickBuckets, leaseOperationLabel)
	leaseAgeFamily = leaseSubject.histogram("fencegate_lease_age_at_release_seconds",
		"Time from the grant of a lease to its release by the holder.",
		"How long locks are held. Many leases of a few milliseconds are work too small for a lock. Leases ended "+
			"by their session or by expiry are not counted.",
		[]float64{.001, .005, .025, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 21600, 86400}, modeLabel)
	latenessFamily = leaseSubject.histogram("fencegate_heartbeat_lateness_seconds",
		"How much later renewals and keepalives came than a third of the TTL after the one before; 0: in time. "+
			"Those that came too late are counted, too.",
		"Holders that pause: garbage collection, frozen machines, slow networks. At two thirds of the TTL the "+
			"lease is lost.",
		[]float64{0, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300})
)

var waitSubject = &subject{title: "Waiting and watching"}

var (
	waitTimeFamily = waitSubject.histogram("fencegate_acquire_wait_duration_seconds",
		"Time that acquires with a `wait_ms` took, by result.",
		"How long queues are, in time. `lock_held` are acquires whose `wait_ms` ran out.",
		[]float64{.001, .005, .025, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 600}, Label{Name: "result", Values: leaseResults})
	waitingFamily = waitSubject.gauge("fencegate_waiting_acquires",
		"Acquires that wait at this gateway for their grant, or for the end of their `wait_ms`.",
		"Each holds a connection.")
	streamsFamily = waitSubject.gauge("fencegate_open_watches",
		"Open event streams of this gateway.",
		"At `--watches-max` the next one is refused.")
)

var sessionSubject = &subject{title: "Sessions"}

var sessionOperationsFamily = sessionSubject.counter("fencegate_session_operations_total",
	"Sessions created, kept alive and ended, by result: ok, or the error's code.",
	"`lease_lost` of a keepalive is an owner that was away for too long: its session's leases are all lost.",
	Label{Name: "operation", Values: []string{"create", "keepalive", "end"}},
	Label{Name: "result", Values: append([]string{resultOK}, texts(
		api.CodeLeaseLost, api.CodeNotFound, api.CodeInvalidRequest, api.CodeUnavailable, api.CodeInternal,
	)...)})

// leaseMetrics counts operations on leases, and waits.
type leaseMetrics struct {
	operations *prometheus.CounterVec
	took       map[string]prometheus.Observer // by operation
	ages       map[store.Mode]prometheus.Observer
	lateness   prometheus.Observer
	waits      *prometheus.HistogramVec
}

func newLeaseMetrics(r registry) leaseMetrics {
	m := leaseMetrics{
		operations: r.counters(leaseOperationsFamily),
		took:       map[string]prometheus.Observer{},
		ages:       map[store.Mode]prometheus.Observer{},
		lateness:   r.histograms(latenessFamily).WithLabelValues(),
		waits:      r.histograms(waitTimeFamily),
	}
	took, ages := r.histograms(leaseOperationTimeFamily), r.histograms(leaseAgeFamily)
	lockHeld, leaseLost, unavailable := string(api.CodeLockHeld), string(api.CodeLeaseLost), string(api.CodeUnavailable)
	for _, operation := range leaseOperationLabel.Values {
		m.took[operation] = took.WithLabelValues(operation)
	}
	for _, mode := range modeLabel.Values {
		m.ages[store.Mode(mode)] = ages.WithLabelValues(mode)
		for _, operation := range leaseOperationLabel.Values {
			m.operations.WithLabelValues(operation, mode, resultOK)
		}
		m.operations.WithLabelValues(operationAcquire, mode, lockHeld)
		m.operations.WithLabelValues(operationAcquire, mode, unavailable)
	}
	for _, operation := range []string{operationRenew, operationRelease} {
		m.operations.WithLabelValues(operation, modeUnknown, leaseLost)
		m.operations.WithLabelValues(operation, modeUnknown, unavailable)
	}
	m.waits.WithLabelValues(resultOK)
	m.waits.WithLabelValues(lockHeld)
	return m
}

func newSessionMetrics(r registry) *prometheus.CounterVec {
	sessions := r.counters(sessionOperationsFamily)
	for _, operation := range sessionOperationsFamily.Labels[0].Values {
		sessions.WithLabelValues(operation, resultOK)
	}
	sessions.WithLabelValues("keepalive", string(api.CodeLeaseLost))
	return sessions
}

// operation counts an operation on a lease; the mode is "" where it is not known.
func (m *Metrics) operation(operation string, mode store.Mode, took time.Duration, err error) {
	mode = cmp.Or(mode, modeUnknown)
	m.leases.operations.WithLabelValues(operation, string(mode), m.leaseResult(err)).Inc()
	m.leases.took[operation].Observe(took.Seconds())
}

// Acquired counts an acquire. The time of one that waited in the queue counts as waiting only.
func (m *Metrics) Acquired(request *store.AcquireRequest, lease *store.Lease, took time.Duration, err error) {
	result := m.leaseResult(err)
	mode := cmp.Or(request.Mode, store.Exclusive)
	m.leases.operations.WithLabelValues(operationAcquire, string(mode), result).Inc()
	if request.Wait > 0 {
		m.leases.waits.WithLabelValues(result).Observe(took.Seconds())
	}
	if request.Wait == 0 || err == nil && lease.Waited == 0 {
		m.leases.took[operationAcquire].Observe(took.Seconds())
	}
}

// Renewed counts a renewal.
func (m *Metrics) Renewed(lease store.Lease, took time.Duration, err error) {
	m.operation(operationRenew, lease.Mode, took, err)
	m.heartbeat(lease.Late, err)
}

// Released counts a release.
func (m *Metrics) Released(lease store.Released, took time.Duration, err error) {
	m.operation(operationRelease, lease.Mode, took, err)
	if lease.Age > 0 {
		m.leases.ages[lease.Mode].Observe(lease.Age.Seconds())
	}
}

// Broken counts a break.
func (m *Metrics) Broken(lease store.Lease, took time.Duration, err error) {
	m.operation(operationBreak, lease.Mode, took, err)
}

// SessionCreated counts the creation of a session.
func (m *Metrics) SessionCreated(err error) { m.session("create", err) }

// SessionEnded counts the end of a session by its owner.
func (m *Metrics) SessionEnded(err error) { m.session("end", err) }

// SessionKeptAlive counts a keepalive of a session.
func (m *Metrics) SessionKeptAlive(session store.Session, err error) {
	m.session("keepalive", err)
	m.heartbeat(session.Late, err)
}

func (m *Metrics) session(operation string, err error) {
	m.sessions.WithLabelValues(operation, m.result(err, resultOK)).Inc()
}

// heartbeat counts how late a renewal or keepalive was, if that is known.
func (m *Metrics) heartbeat(late time.Duration, err error) {
	if lost, ok := errors.AsType[*store.LostError](err); ok {
		late = lost.Late
	}
	if err == nil || late > 0 {
		m.leases.lateness.Observe(late.Seconds())
	}
}
