package gateway

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/metrics"
)

// bodyLinger is how long the rest of a body is read after an answer that did not need it.
const bodyLinger = time.Second

// answerWriter notes how a request was answered.
type answerWriter struct {
	http.ResponseWriter

	status    int
	code      api.Code
	reason    string
	abandoned bool       // the client has left: the connection is closed without an answer
	share     *bodyShare // of the body; nil: it is short
	bodyLeft  bool       // the body was not read to its end, so the answer ends the connection
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
	if w.bodyLeft {
		w.Header().Set("Connection", "close")
		// Fails where the connection is gone.
		_ = http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Now().Add(bodyLinger))
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// noteCode notes the code and the reason of an error for the log and the span.
func noteCode(w http.ResponseWriter, code api.Code, reason string) {
	if answer, ok := w.(*answerWriter); ok {
		answer.code, answer.reason = code, reason
	}
}

// shareUntilAnswered frees the share after the answer, if freeBody has not freed it before.
func shareUntilAnswered(w http.ResponseWriter, share *bodyShare) {
	if answer, ok := w.(*answerWriter); ok {
		answer.share = share
	}
}

// freeBody frees the body's share of the budget before a wait that does not need the body.
func freeBody(w http.ResponseWriter) {
	if answer, ok := w.(*answerWriter); ok {
		answer.share.free()
	}
}

// noteBodyRead notes that the body was read to its end, or that the handler reads the rest.
func noteBodyRead(w http.ResponseWriter) {
	if answer, ok := w.(*answerWriter); ok {
		answer.bodyLeft = false
	}
}

// abandon closes the connection without an answer. Otherwise net/http would answer 200.
func abandon(w http.ResponseWriter) {
	if answer, ok := w.(*answerWriter); ok {
		answer.abandoned = true
	}
}

// serving returns the http.Handler of a route. It answers errors, and a panic like any other defect, and counts, times
// and logs every request.
func (g *Gateway) serving(template string, handle handler) http.Handler {
	route := g.metrics.Route(template)
	tracer := g.routeTracer(template)
	record := strings.HasSuffix(template, "/records/{key}")
	checked := func(w http.ResponseWriter, r *http.Request) error {
		if err := refuseUnsupported(w, r, record); err != nil {
			return err
		}
		return handle(w, r)
	}
	traced := func(w http.ResponseWriter, r *http.Request) { g.answer(w, r, checked) }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		answer := answerWriters.Get().(*answerWriter)
		answer.ResponseWriter, answer.bodyLeft = w, r.ProtoMajor == 1 && r.ContentLength != 0
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
			r = tracer.answer(answer, r, traced)
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
func (g *Gateway) answer(w http.ResponseWriter, r *http.Request, handle handler) {
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
