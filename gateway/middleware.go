package gateway

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/access"
)

// bodyLinger is how long the rest of a body is read after an answer that did not need it.
const bodyLinger = time.Second

// answerWriter notes how a request was answered.
type answerWriter struct {
	http.ResponseWriter

	status    int
	code      api.Code // of an error, like reason, for the log and the span
	reason    string
	leaving   *atomic.Bool      // of the gateway
	abandoned bool              // the client has left: the connection is closed without an answer; net/http would answer 200
	principal *access.Principal // whose request it is; nil: it has shown none
	caller    *limits.Caller    // whose request it is; nil: the route is public
	share     *bodyShare        // of the body, until the answer or a wait that does not need the body; nil: it is short
	bodyLeft  bool              // neither was the body read to its end nor will it be, so the answer ends the connection
}

func (w *answerWriter) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(body []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(body)
}

// begin notes the status before the answer is sent. Over HTTP/1, net/http reads a body to its end before it sends the
// answer, unless the answer ends the connection. It reads on for bodyLinger after the answer, so that a client that
// still sends receives the answer and no reset.
func (w *answerWriter) begin(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	if w.leaving.Load() {
		w.Header().Set("Connection", "close") // of HTTP/2: GOAWAY
	}
	if w.bodyLeft {
		w.Header().Set("Connection", "close")
		// Fails where the connection is gone.
		_ = http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Now().Add(bodyLinger))
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serving returns the http.Handler of a route. It passes on the requests that the rule allows. It answers errors, and a
// panic like any other defect, and counts, times and logs every request.
func (g *Gateway) serving(template string, rule accessRule, handle handler) http.Handler {
	route := g.metrics.Route(template)
	tracer := g.routeTracer(template)
	record := strings.HasSuffix(template, "/records/{key}")
	checked := func(w *answerWriter, r *http.Request) error {
		if err := g.authorize(w, r, &rule); err != nil {
			return err
		}
		if err := g.names.checkPath(r, &rule); err != nil {
			return err
		}
		if err := refuseUnsupported(w, r, record); err != nil {
			return err
		}
		return handle(w, r)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		answer := answerWriters.Get().(*answerWriter)
		answer.ResponseWriter, answer.bodyLeft = w, r.ProtoMajor == 1 && r.ContentLength != 0
		answer.leaving = &g.leaving
		g.metrics.InFlight.Inc()
		defer func() {
			g.metrics.InFlight.Dec()
			if answer != nil { // the handler has panicked
				answer.share.free()
			}
		}()
		if tracer == nil {
			g.answer(answer, r, checked)
		} else {
			r = tracer.answer(answer, r, checked)
		}

		took := time.Since(begun)
		status := answer.status
		if answer.abandoned {
			status = metrics.NoStatus
		}
		route.Observe(methodOf(r), status, took)
		g.logRequest(r, template, answer, took)
		if answer.abandoned {
			panic(http.ErrAbortHandler)
		}
		answer.share.free()
		*answer = answerWriter{} // it is not reused after a panic
		answerWriters.Put(answer)
		answer = nil // another request has it now
	})
}

var answerWriters = sync.Pool{New: func() any { return &answerWriter{} }}

// answer calls the handler, and answers its error or panic.
func (g *Gateway) answer(w *answerWriter, r *http.Request, handle handler) {
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case http.ErrAbortHandler:
			panic(cause)
		default:
			g.logPanic(r, cause)
			g.answerProblem(w, r, fmt.Errorf("panic: %v", cause))
		}
	}()
	if err := handle(w, r); err != nil {
		g.refusalDelays.hold(w, r, err)
		g.answerProblem(w, r, err)
	}
}

// logPanic logs a recovered panic with its stack.
func (g *Gateway) logPanic(r *http.Request, cause any) {
	g.config.Logger.ErrorContext(r.Context(), "panic", "error", fmt.Sprint(cause), "stack", string(debug.Stack()))
}
