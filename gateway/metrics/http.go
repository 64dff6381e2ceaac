package gateway

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var httpSubject = &subject{title: "HTTP"}

var (
	requestsFamily = httpSubject.declare(family{
		kind: kindHistogram, name: "fencegate_http_request_duration_seconds",
		help: "Time to answer HTTP requests.",
		look: "By `status`: 5xx are the gateway's or the database's failures, 412 rejected writes, 409 locks that are held. An acquire that waits takes as long as it waits, a stream of events as long as it is open.",
		labels: []label{
			{name: "route", open: "the path's template, like `/v1/locks/{lock}/acquire`; `none` for a path that there is not"},
			{name: "method", values: append(knownMethods, "other")},
			{name: "status", open: "the answer's; `none` where nobody was there to hear it"},
		},
		buckets: quickBuckets,
	})
	inFlightFamily = httpSubject.declare(family{
		kind: kindGauge, name: "fencegate_http_requests_in_flight",
		help: "HTTP requests being answered, those that wait in line and streams among them.",
		look: "Without `fencegate_waiting_acquires` and `fencegate_open_watches`: what the gateway works on.",
	})
)

// httpMetrics are of requests, whatever they are for.
type httpMetrics struct {
	requests *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

func newHTTPMetrics(r metricRegistry) httpMetrics {
	return httpMetrics{requests: r.histograms(requestsFamily), inFlight: r.gauge(inFlightFamily)}
}

// routeTimes are the times of the requests to one route. It keeps the histogram of each status that was answered, of which there are few:
// to look one up by its labels costs more than to count.
type routeTimes struct {
	metrics *Metrics
	route   string
	method  string // "": that of the request
	known   atomic.Pointer[[]statusTimes]
}

type statusTimes struct {
	status int
	times  prometheus.Observer
}

// statusNone is the status of a request that was not answered.
const statusNone = -1

func (t *routeTimes) observe(r *http.Request, answer *answerWriter, took time.Duration) {
	status := answer.status
	if answer.abandoned {
		status = statusNone
	}
	t.of(r, status).Observe(took.Seconds())
}

func (t *routeTimes) of(r *http.Request, status int) prometheus.Observer {
	if t.method == "" {
		return t.lookUp(methodOf(r), status)
	}
	known := t.known.Load()
	if known != nil {
		for _, seen := range *known {
			if seen.status == status {
				return seen.times
			}
		}
	}
	times := t.lookUp(t.method, status)
	more := []statusTimes{{status, times}}
	if known != nil {
		more = append(more, *known...)
	}
	t.known.CompareAndSwap(known, &more) // where another was faster, the next one adds it
	return times
}

func (t *routeTimes) lookUp(method string, status int) prometheus.Observer {
	text := "none"
	if status != statusNone {
		text = strconv.Itoa(status)
	}
	return t.metrics.requests.WithLabelValues(t.route, method, text)
}
