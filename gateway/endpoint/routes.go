package endpoint

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/metrics"
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

// CutRecord returns the names in the path of a record. It finds the same as the regular expression of recordRoute.
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

// WithBody returns the handler of an action. It reads the path and then the body, and answers with what act returns. The
// context is that of g.work.
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
