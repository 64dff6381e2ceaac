package endpoint

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

// Answer is an http.ResponseWriter that notes how a request was answered.
type Answer struct {
	http.ResponseWriter

	status    int
	Code      api.Code // of an error, like reason, for the log and the span
	reason    string
	leaving   *atomic.Bool      // of the gateway
	abandoned bool              // the client has left: the connection is closed without an answer; net/http would answer 200
	Principal *access.Principal // whose request it is; nil: it has shown none
	Caller    *limits.Caller    // whose request it is; nil: the route is public
	Share     *BodyShare        // of the body, until the answer or a wait that does not need the body; nil: it is short
	BodyLeft  bool              // neither was the body read to its end nor will it be, so the answer ends the connection
}

// WriteHeader notes the status.
func (w *Answer) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write notes the status 200 if there is none yet.
func (w *Answer) Write(body []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(body)
}

// begin notes the status before the answer is sent. Over HTTP/1, net/http reads a body to its end before it sends the
// answer, unless the answer ends the connection. It reads on for bodyLinger after the answer, so that a client that
// still sends receives the answer and no reset.
func (w *Answer) begin(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	if w.leaving.Load() {
		w.Header().Set("Connection", "close") // of HTTP/2: GOAWAY
	}
	if w.BodyLeft {
		w.Header().Set("Connection", "close")
		// Fails where the connection is gone.
		_ = http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Now().Add(bodyLinger))
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *Answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Serving returns the http.Handler of a route. It passes on the requests that the rule allows. It answers errors, and a
// panic like any other defect, and counts, times and logs every request.
func (s *Server) Serving(template string, rule AccessRule, handle Handler) http.Handler {
	route := s.Metrics.Route(template)
	tracer := s.routeTracer(template)
	record := strings.HasSuffix(template, "/records/{key}")
	checked := func(w *Answer, r *http.Request) error {
		if err := s.authorize(w, r, &rule); err != nil {
			return err
		}
		if err := s.names.checkPath(r, &rule); err != nil {
			return err
		}
		if err := refuseUnsupported(w, r, record); err != nil {
			return err
		}
		return handle(w, r)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		connectionOf(r).handle()
		answer := answerWriters.Get().(*Answer)
		answer.ResponseWriter, answer.BodyLeft = w, r.ProtoMajor == 1 && r.ContentLength != 0
		answer.leaving = &s.Leaving
		s.Metrics.InFlight.Inc()
		defer func() {
			s.Metrics.InFlight.Dec()
			if answer != nil { // the handler has panicked
				answer.Share.Free()
			}
		}()
		if tracer == nil {
			s.answer(answer, r, checked)
		} else {
			r = tracer.answer(answer, r, checked)
		}

		took := time.Since(begun)
		status := answer.status
		if answer.abandoned {
			status = metrics.NoStatus
		}
		route.Observe(methodOf(r), status, took)
		s.logRequest(r, template, answer, took)
		if answer.abandoned {
			panic(http.ErrAbortHandler)
		}
		answer.Share.Free()
		*answer = Answer{} // it is not reused after a panic
		answerWriters.Put(answer)
		answer = nil // another request has it now
	})
}

var answerWriters = sync.Pool{New: func() any { return &Answer{} }}

// answer calls the handler, and answers its error or panic.
func (s *Server) answer(w *Answer, r *http.Request, handle Handler) {
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case http.ErrAbortHandler:
			panic(cause)
		default:
			s.LogPanic(r, cause)
			s.answerProblem(w, r, fmt.Errorf("panic: %v", cause))
		}
	}()
	if err := handle(w, r); err != nil {
		s.RefusalDelays.hold(w, r, err)
		s.answerProblem(w, r, err)
	}
}

// LogPanic logs a recovered panic with its stack.
func (s *Server) LogPanic(r *http.Request, cause any) {
	s.Logger.ErrorContext(r.Context(), "panic", "error", fmt.Sprint(cause), "stack", string(debug.Stack()))
}
