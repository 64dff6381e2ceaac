package gateway

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// bodyLinger is how long the rest of a body is read after an answer that did not need it.
const bodyLinger = time.Second

// answerWriter remembers how a request was answered.
type answerWriter struct {
	http.ResponseWriter

	status    int
	code      api.Code
	reason    string
	abandoned bool       // there is nobody to answer
	share     *bodyShare // of the budget for bodies; nil: the body is short
	bodyLeft  bool       // the answer ends the connection, since the body was not read to its end
}

func (w *answerWriter) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(body []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(body)
}

// begin notes the status, before the answer is sent. Unless the answer ends the connection, net/http reads a body over HTTP/1 to its end
// before it sends the answer. It reads on for bodyLinger after the answer, so that a client that still sends receives the answer and no reset.
func (w *answerWriter) begin(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	if w.bodyLeft {
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Now().Add(bodyLinger)) // fails where the connection is gone
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// noteCode keeps the code and the reason of an error for the log and for the span.
func noteCode(w http.ResponseWriter, code api.Code, reason string) {
	if answer, ok := w.(*answerWriter); ok {
		answer.code, answer.reason = code, reason
	}
}

// shareUntilAnswered frees the share when the request was answered, if freeBody has not done so before.
func shareUntilAnswered(w http.ResponseWriter, share *bodyShare) {
	if answer, ok := w.(*answerWriter); ok {
		answer.share = share
	}
}

// freeBody gives back what the body has of the budget, before a wait that needs nothing of it.
func freeBody(w http.ResponseWriter) {
	if answer, ok := w.(*answerWriter); ok {
		answer.share.free()
	}
}

// noteBodyRead says that nothing of the body is left, or that the handler sees to the rest.
func noteBodyRead(w http.ResponseWriter) {
	if answer, ok := w.(*answerWriter); ok {
		answer.bodyLeft = false
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
	record := strings.HasSuffix(route, "/records/{key}")
	checked := func(w http.ResponseWriter, r *http.Request) error {
		if err := checkHeaders(w, r, record); err != nil {
			return err
		}
		return handle(w, r)
	}
	traced := func(w http.ResponseWriter, r *http.Request) { g.answer(w, r, checked) }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		answer := answerWriters.Get().(*answerWriter)
		answer.ResponseWriter, answer.bodyLeft = w, r.ProtoMajor == 1 && r.ContentLength != 0
		g.metrics.inFlight.Inc()
		defer func() {
			g.metrics.inFlight.Dec()
			if answer != nil { // the handler has panicked
				answer.share.free()
			}
		}()
		if tracer == nil {
			g.answer(answer, r, checked)
		} else {
			r = tracer.answer(answer, r, traced)
		}

		took := time.Since(begun)
		times.observe(r, answer, took)
		g.logRequest(r, route, answer, took)
		if answer.abandoned {
			panic(http.ErrAbortHandler)
		}
		answer.share.free()
		*answer = answerWriter{} // one that has panicked is not used again
		answerWriters.Put(answer)
		answer = nil // another request has it now
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
		g.refusals.hold(w, r, err)
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
