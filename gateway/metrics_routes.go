package gateway

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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
