package gateway

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// answerWriter remembers how a request was answered.
type answerWriter struct {
	http.ResponseWriter

	status    int
	code      api.Code
	reason    string
	abandoned bool // there is nobody to answer
}

func (w *answerWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(body []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(body)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// noteCode keeps the code and the reason of an error for the log and for the span.
func noteCode(w http.ResponseWriter, code api.Code, reason string) {
	if answer, ok := w.(*answerWriter); ok {
		answer.code, answer.reason = code, reason
	}
}

// abandon has the connection closed without an answer: one that is not from a handler would be a 200.
func abandon(w http.ResponseWriter) {
	if answer, ok := w.(*answerWriter); ok {
		answer.abandoned = true
	}
}

// answering makes an http.Handler of the handler of a route: it answers errors, and a panic like any other defect, and counts, times and
// logs every request. method is the one that the route takes, or "" where it takes all.
func (g *Gateway) answering(route, method string, handle handler) http.Handler {
	times := &routeTimes{metrics: g.metrics, route: route, method: method}
	tracer := g.routeTracer(route)
	traced := func(w http.ResponseWriter, r *http.Request) { g.answer(w, r, handle) }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		answer := answerWriters.Get().(*answerWriter)
		answer.ResponseWriter = w
		g.metrics.inFlight.Inc()
		defer g.metrics.inFlight.Dec()
		if tracer == nil {
			g.answer(answer, r, handle)
		} else {
			r = tracer.answer(answer, r, traced)
		}

		took := time.Since(begun)
		times.observe(r, answer, took)
		g.logRequest(r, route, answer, took)
		if answer.abandoned {
			panic(http.ErrAbortHandler)
		}
		*answer = answerWriter{} // one that has panicked is not used again
		answerWriters.Put(answer)
	})
}

var answerWriters = sync.Pool{New: func() any { return &answerWriter{} }}

// answer calls the handler and answers what went wrong.
func (g *Gateway) answer(w http.ResponseWriter, r *http.Request, handle handler) {
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case http.ErrAbortHandler:
			panic(cause)
		default:
			g.config.Logger.ErrorContext(r.Context(), "panic", "error", fmt.Sprint(cause), "stack", string(debug.Stack()))
			g.answerProblem(w, r, fmt.Errorf("panic: %v", cause))
		}
	}()
	if err := handle(w, r); err != nil {
		g.refusals.hold(r, err)
		g.answerProblem(w, r, err)
	}
}

// hurry gives the body of a request its time to arrive, whoever waits for it: the handler, or the server, which drops what a handler that
// refused the request has left.
func (g *Gateway) hurry(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		// Fails where the connection is gone, which the first read will tell, and in tests without one. When the body has come, the
		// server waits without a deadline for the connection's end, so that a request may take longer than this.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.config.BodyTimeout))
	}
}

// methodOf is the method if the gateway has it anywhere: a client may send any word.
func methodOf(r *http.Request) string {
	if slices.Contains(knownMethods, r.Method) {
		return r.Method
	}
	return "other"
}
