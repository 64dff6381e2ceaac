package metrics

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencegate/fencegate/gateway/auth"
)

// OtherMethod stands for a method that the gateway does not have.
const OtherMethod = "other"

// NoStatus is the status of a request that was not answered.
const NoStatus = -1

var httpSubject = &subject{title: "HTTP"}

var (
	requestsFamily = httpSubject.histogram("fencegate_http_request_duration_seconds",
		"Time to answer HTTP requests.",
		"By `status`: 5xx are failures of the gateway or the database, 412 rejected writes, 409 held locks. An "+
			"acquire that waits takes as long as it waits, an event stream as long as it is open.",
		quickBuckets,
		Label{Name: "route", Open: "the path's template, like `/v1/locks/{lock}/acquire`; `none` for an unknown path"},
		Label{Name: "method", Values: []string{"GET", "HEAD", "PUT", "POST", "DELETE", "LOCK", "UNLOCK", OtherMethod}},
		Label{Name: "status", Open: "the answer's; `none` where the client had left"})
	inFlightFamily = httpSubject.gauge("fencegate_http_requests_in_flight",
		"HTTP requests being answered, including acquires that wait and event streams.",
		"Minus `fencegate_waiting_acquires` and `fencegate_open_watches`: what the gateway works on.")
)

var unauthenticatedFamily = httpSubject.counter("fencegate_unauthenticated_total",
	"Requests that were refused since they showed no principal.",
	"`unknown`: the key was never issued, or was revoked; the token is of another issuer, for another audience, or "+
		"signed by a key that its issuer does not have: somebody guesses, or a client does not have the new credential. "+
		"`expired`: rotate keys before. `not_ready` ends soon after the start; for tokens, once the keys of their issuer "+
		"are read.",
	Label{Name: "reason", Values: reasonTexts()})

var certificateExpiryFamily = httpSubject.gauge("fencegate_certificate_expiry_timestamp_seconds",
	"When the certificate that the gateway shows expires, in seconds since 1970. 0 without TLS.",
	"Less than a week from now: its files were not renewed, or could not be read (the log says why).")

var drainingFamily = httpSubject.gauge("fencegate_draining",
	"1 while the gateway drains: after `fencegate drain`, or at its shutdown.",
	"If it stays 1, nobody has ended the drain or the gateway: `fencegate drain --undo`.")

// WatchDraining shows whether the gateway drains.
func (m *Metrics) WatchDraining(draining func() bool) {
	m.registry.onScrape(func(to *readings) { to.flag(drainingFamily, draining()) }, drainingFamily)
}

// WatchCertificate shows when the certificate of the gateway expires; the zero time: it has none.
func (m *Metrics) WatchCertificate(expiry func() time.Time) {
	m.registry.onScrape(func(to *readings) {
		to.value(certificateExpiryFamily, secondsSince1970(expiry()))
	}, certificateExpiryFamily)
}

// The limits at which requests are answered 429, and connections are closed.
const (
	LimitRequests    = "requests"
	LimitWaiting     = "waiting"
	LimitLeases      = "leases"
	LimitCreated     = "created"
	LimitStreams     = "streams"
	LimitBodies      = "bodies"
	LimitFailures    = "failures"
	LimitConnections = "connections"
)

var limitLabel = Label{Name: "limit", Values: []string{
	LimitRequests, LimitWaiting, LimitLeases, LimitCreated, LimitStreams, LimitBodies, LimitFailures, LimitConnections,
}}

var rateLimitedFamily = httpSubject.counter("fencegate_rate_limited_total",
	"Requests that were refused since their caller had asked for too much, and connections that were closed.",
	"`requests`, `waiting`, `leases`, `streams`: `--caller-requests-max`, `--caller-waiting-max`, "+
		"`--caller-leases-max`, `--caller-streams-max`. `created`: what a principal may create in the database. `bodies`: half of `--bodies-bytes-max`. "+
		"`failures`: an address sends many bad credentials, or sign-ins by an issuer. `connections`: `--connections-max`, "+
		"`--address-connections-max`, or [HTTP/2 without a credential](security.md#limits).", limitLabel)

// newRateLimited makes the counters, so that each limit is shown from the start.
func newRateLimited(r registry) *prometheus.CounterVec {
	counters := r.counters(rateLimitedFamily)
	for _, limit := range limitLabel.Values {
		counters.WithLabelValues(limit)
	}
	return counters
}

// RateLimited counts what was refused at a limit.
func (m *Metrics) RateLimited(limit string) { m.rateLimited.WithLabelValues(limit).Inc() }

func reasonTexts() (texts []string) {
	for _, reason := range auth.Reasons {
		texts = append(texts, string(reason))
	}
	return texts
}

// newUnauthenticated makes the counters, so that each reason is shown from the start.
func newUnauthenticated(r registry) *prometheus.CounterVec {
	counters := r.counters(unauthenticatedFamily)
	for _, reason := range reasonTexts() {
		counters.WithLabelValues(reason)
	}
	return counters
}

// Unauthenticated counts a request without a principal, for one of auth.Reasons.
func (m *Metrics) Unauthenticated(reason auth.Reason) {
	m.unauthenticated.WithLabelValues(string(reason)).Inc()
}

// Route counts the requests to one route. It caches the histogram of each method and status, of which there are few:
// finding one by its labels costs more than counting.
type Route struct {
	requests *prometheus.HistogramVec
	route    string
	known    atomic.Pointer[[]routeTimes]
}

type routeTimes struct {
	method string
	status int
	times  prometheus.Observer
}

// Route returns the counter of a route, given by its template.
func (m *Metrics) Route(template string) *Route { return &Route{requests: m.requests, route: template} }

// Observe counts a request. The method is one that the gateway has, or OtherMethod; the status may be NoStatus.
func (r *Route) Observe(method string, status int, took time.Duration) {
	r.times(method, status).Observe(took.Seconds())
}

func (r *Route) times(method string, status int) prometheus.Observer {
	known := r.known.Load()
	if known != nil {
		for _, seen := range *known {
			if seen.status == status && seen.method == method {
				return seen.times
			}
		}
	}
	return r.add(known, method, status)
}

// add adds a histogram to the known ones. If another goroutine is faster, the next call adds it.
func (r *Route) add(known *[]routeTimes, method string, status int) prometheus.Observer {
	text := "none"
	if status != NoStatus {
		text = strconv.Itoa(status)
	}
	times := r.requests.WithLabelValues(r.route, method, text)
	more := []routeTimes{{method, status, times}}
	if known != nil {
		more = append(more, *known...)
	}
	r.known.CompareAndSwap(known, &more)
	return times
}

var accessSubject = &subject{
	title: "Tokens and client certificates",
	about: "A gateway with `--access-file` shows these.",
}

var (
	accessFileFamily = accessSubject.counter("fencegate_access_file_failures_total",
		"Readings of `--access-file` that failed. There is one every 2 s while the file can't be used.",
		"The gateway uses the former version of the file meanwhile. The log says what is wrong.")
	issuerKeysFamily = accessSubject.counter("fencegate_issuer_key_readings_total",
		"Readings of the keys of an issuer of tokens.",
		"`failed`: the former keys stay in use, so tokens of a new key are refused. The log says why.",
		Label{Name: "issuer", Open: "its name in the access file"}, Label{Name: "result", Values: []string{"ok", "failed"}})
)

// accessMetrics count what an auth.Directory reads.
type accessMetrics struct {
	fileFailures prometheus.Counter
	issuerKeys   *prometheus.CounterVec
}

func newAccessMetrics(r registry) accessMetrics {
	return accessMetrics{r.counters(accessFileFamily).WithLabelValues(), r.counters(issuerKeysFamily)}
}

// AccessFileFailed counts a reading of the access file that failed.
func (m *Metrics) AccessFileFailed() { m.access.fileFailures.Inc() }

// IssuerKeysRead counts a reading of the keys of an issuer.
func (m *Metrics) IssuerKeysRead(issuer string, err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.access.issuerKeys.WithLabelValues(issuer, result).Inc()
}

var actionsFamily = httpSubject.counter("fencegate_admin_actions_total",
	"Actions of administrators that this gateway did. `GET /v1/audit` has each of them.",
	"`lease_broken` and `fence_set` override the fence of a client: rare in a healthy system.",
	Label{Name: "action", Values: []string{
		"policy_set", "policy_deleted", "lease_broken", "fence_set", "key_created", "key_rotated", "key_revoked",
	}})

func newActions(r registry) *prometheus.CounterVec {
	counters := r.counters(actionsFamily)
	for _, action := range actionsFamily.Labels[0].Values {
		counters.WithLabelValues(action)
	}
	return counters
}

// AdminAction counts an action of an administrator.
func (m *Metrics) AdminAction(action string) { m.actions.WithLabelValues(action).Inc() }
