package gateway

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
)

// answerWriter remembers how a request was answered.
type answerWriter struct {
	http.ResponseWriter

	status    int
	code      api.Code
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

// noteCode keeps the code of an error for the log.
func noteCode(w http.ResponseWriter, code api.Code) {
	if answer, ok := w.(*answerWriter); ok {
		answer.code = code
	}
}

// abandon has the connection closed without an answer: one that is not from a handler would be a 200.
func abandon(w http.ResponseWriter) {
	if answer, ok := w.(*answerWriter); ok {
		answer.abandoned = true
	}
}

// recovered answers a panic like any other defect.
func (g *Gateway) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch cause := recover(); cause {
			case nil:
			case http.ErrAbortHandler:
				panic(cause)
			default:
				g.config.Logger.Error("panic", "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
				g.answerProblem(w, r, fmt.Errorf("panic: %v", cause))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// observed counts, times and logs every request.
func (g *Gateway) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		answer := &answerWriter{ResponseWriter: w}
		g.metrics.inFlight.Inc()
		defer g.metrics.inFlight.Dec()
		next.ServeHTTP(answer, r)

		took := time.Since(begun)
		status := strconv.Itoa(answer.status)
		if answer.abandoned {
			status = "none"
		}
		g.metrics.requests.WithLabelValues(routeOf(r), methodOf(r), status).Observe(took.Seconds())
		g.config.Logger.Debug("request", "method", r.Method, "path", discreet(r.URL.Path), "status", answer.status, "code", string(answer.code),
			"took_ms", float64(took.Microseconds())/1000, "address", address(r))
		if answer.abandoned {
			panic(http.ErrAbortHandler)
		}
	})
}

// hurried gives the body of a request its time to arrive, whoever waits for it: the handler, or the server, which drops what a
// handler that refused the request has left.
func (g *Gateway) hurried(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// Fails where the connection is gone, which the first read will tell, and in tests without one. When the body has come, the
			// server waits without a deadline for the connection's end, so that a request may take longer than this.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.config.BodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}

// discreet is a path without the secret that may stand in it: who knows a session's ID can end it.
func discreet(path string) string {
	const sessions = "/v1/sessions/"
	before, _, secret := strings.Cut(path, sessions)
	if !secret {
		return path
	}
	return before + sessions + "…"
}

// methodOf is the method if the gateway has it anywhere: a client may send any word.
func methodOf(r *http.Request) string {
	if slices.Contains(knownMethods, r.Method) {
		return r.Method
	}
	return "other"
}

// routeOf is the template of the path, so that names don't become labels.
func routeOf(r *http.Request) string {
	route := mux.CurrentRoute(r)
	if route == nil {
		return "none"
	}
	template, err := route.GetPathTemplate()
	if err != nil {
		return "none"
	}
	return strings.ReplaceAll(template, ":(?s:.*)", "")
}
