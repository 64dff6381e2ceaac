package endpoint

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
)

// Handler answers a request, or returns the error that answerProblem turns into an answer.
type Handler func(*Answer, *http.Request) error

// Methods are the handlers of one path.
type Methods map[string]Handler

// knownMethods are the methods that paths may have, in the order in which Allow names them.
var knownMethods = []string{"GET", "HEAD", "PUT", "POST", "DELETE", "LOCK", "UNLOCK"}

// RouteNone is the route of an unknown path.
const RouteNone = "none"

// AnyText matches a name in a path. Names may contain anything, even newlines: the handlers refuse invalid ones.
const AnyText = ":(?s:.*)}"

// CutRecord returns the names in the path of a record, like the regular expression of the route.
func CutRecord(path string) (resource, key string, isRecord bool) {
	const before, between = "/v1/resources/", "/records/"
	names, ok := strings.CutPrefix(path, before)
	at := strings.LastIndex(names, between)
	if !ok || at < 0 {
		return "", "", false
	}
	return names[:at], names[at+len(between):], true
}

// CutLeaseOperation returns the lock and the last segment of a path below a lock; "" for other paths.
func CutLeaseOperation(path string) (lock, operation string) {
	rest, ok := strings.CutPrefix(path, "/v1/locks/")
	at := strings.LastIndexByte(rest, '/')
	if !ok || at < 0 {
		return "", ""
	}
	return rest[:at], rest[at+1:]
}

// PathVariable returns a variable of the route of a request; "" if it has no such variable.
func PathVariable(r *http.Request, name string) string {
	if variables := mux.Vars(r); variables != nil {
		return variables[name]
	}
	resource, key, _ := CutRecord(r.URL.Path) // the request did not pass the router
	lock, _ := CutLeaseOperation(r.URL.Path)
	switch name {
	case "resource":
		return resource
	case "key":
		return key
	case "lock":
		return lock
	}
	return ""
}

// Route adds the handlers of a path. A request with another method is refused, and the answer names the known ones.
func (s *Server) Route(router *mux.Router, path string, handlers Methods) {
	var allowed []string
	template := RouteTemplate(path)
	for _, method := range knownMethods {
		if handle := handlers[method]; handle != nil {
			router.Path(path).Methods(method).Handler(s.Serving(template, s.RuleOf(method, template), handle))
			allowed = append(allowed, method)
		}
	}
	allow := strings.Join(allowed, ", ")
	router.Path(path).Handler(s.Serving(template, Public, func(w *Answer, _ *http.Request) error {
		w.Header().Set("Allow", allow)
		return Problem(http.StatusMethodNotAllowed, api.CodeInvalidRequest, "This path takes "+allow+".")
	}))
}

// RouteTemplate is a path as metrics show it, so that names don't become labels.
func RouteTemplate(path string) string { return strings.ReplaceAll(path, AnyText, "}") }

// methodOf returns the method if any path of the gateway has it: a client may send any word.
func methodOf(r *http.Request) string {
	if slices.Contains(knownMethods, r.Method) {
		return r.Method
	}
	return metrics.OtherMethod
}

// WithoutBody returns the handler of a request without a body, whose answer is what read returns. The context has the
// principal.
func (s *Server) WithoutBody(read func(context.Context, *http.Request) (any, error)) Handler {
	return func(w *Answer, r *http.Request) error {
		answer, err := read(withPrincipal(s.Work(r), w.Principal), r)
		return AnswerJSON(w, answer, err)
	}
}

// WithoutBodyNamed returns the handler of a request without a body for one entity, which the path names.
func WithoutBodyNamed[Key any](
	s *Server, readKey func(*http.Request) (Key, error), read func(context.Context, Key) (any, error),
) Handler {
	return s.WithoutBody(func(ctx context.Context, r *http.Request) (any, error) {
		key, err := readKey(r)
		if err != nil {
			return nil, err
		}
		if _, err := Query(r); err != nil {
			return nil, err
		}
		return read(ctx, key)
	})
}

// Action is a request with a JSON body. Most act on an entity, which the path names.
type Action[Key, Body any] struct {
	W    *Answer
	R    *http.Request
	Key  Key
	Body Body
}

// WithBody returns the handler of an action. It reads the path and then the body, and answers with the result of act.
// The context is that of Server.Work.
func WithBody[Key, Body any](
	s *Server, readKey func(*http.Request) (Key, error), act func(context.Context, Action[Key, Body]) (any, error),
) Handler {
	return func(w *Answer, r *http.Request) error {
		key, err := readKey(r)
		if err != nil {
			return err
		}
		a := Action[Key, Body]{W: w, R: r, Key: key}
		if err := s.readJSON(w, r, &a.Body); err != nil {
			return err
		}
		answer, err := act(s.Work(r), a)
		return AnswerJSON(w, answer, err)
	}
}

// bodyLinger is how long the rest of a body is read after an answer that did not need it.
const bodyLinger = time.Second

// Answer is an http.ResponseWriter that notes how a request was answered.
type Answer struct {
	http.ResponseWriter

	status    int
	Code      api.Code // of an error, like reason, for the log and the span
	reason    string
	leaving   *atomic.Bool      // of the gateway
	rule      *AccessRule       // of the route
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

// Serving returns the http.Handler of a route. It passes requests that the rule allows to the handler. It answers
// errors, and a panic like any other defect, and counts, times and logs every request.
func (s *Server) Serving(template string, rule AccessRule, handle Handler) http.Handler {
	route := s.Metrics.Route(template)
	tracer := s.routeTracer(template)
	record := strings.HasSuffix(template, "/records/{key}")
	checked := func(w *Answer, r *http.Request) error {
		if err := s.authorize(w, r, &rule); err != nil {
			return err
		}
		if s.ReadOnly && rule.changes {
			return readOnly()
		}
		if err := refuseUnsupported(w, r, record); err != nil {
			return err
		}
		return handle(w, r)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		s.Connections.handle(connectionOf(r))
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
		s.RefusalDelays.Hold(w, r, err)
		s.answerProblem(w, r, err)
	}
}

// LogPanic logs a recovered panic with its stack.
func (s *Server) LogPanic(r *http.Request, cause any) {
	s.Logger.ErrorContext(r.Context(), "panic", "error", fmt.Sprint(cause), "stack", string(debug.Stack()))
}
