package endpoint

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// logRequest is the access log: one in AccessLogSample requests and every failure at level info, all others at level
// debug. docs/operations.md documents the keys.
func (s *Server) logRequest(r *http.Request, route string, answer *Answer, took time.Duration) {
	level, weight := slog.LevelDebug, 1
	if n := s.AccessLogSample; n > 0 {
		switch {
		case answer.status >= http.StatusInternalServerError:
			level = slog.LevelInfo
		case s.requests.Add(1)%uint64(n) == 0:
			level, weight = slog.LevelInfo, n
		}
	}
	if !s.Logger.Enabled(r.Context(), level) {
		return
	}
	s.Logger.LogAttrs(r.Context(), level, "request",
		slog.String("method", r.Method), slog.String("route", route),
		slog.String("path", loggedPath(route, r.URL.Path)), slog.Int("status", answer.status),
		slog.String("code", string(answer.Code)), slog.String("reason", answer.reason),
		slog.Float64("took_ms", float64(took.Microseconds())/1000), slog.String("address", s.Address(r)),
		slog.Int("weight", weight))
}

// Failure returns how to log an error that is not the client's fault; "" for other errors, and for overload, which
// metrics count.
func Failure(err error, code api.Code) (level slog.Level, message string) {
	provider, ofProvider := errors.AsType[*store.ProviderError](err)
	switch {
	case code == api.CodeInternal:
		return slog.LevelError, "request failed"
	case ofProvider && provider.Provider == store.ProviderRedlock:
		return slog.LevelWarn, "redlock unavailable"
	case ofProvider:
		return slog.LevelWarn, "redis unavailable"
	case errors.Is(err, store.ErrNotReplicated):
		return slog.LevelWarn, "commit not replicated"
	case code == api.CodeUnavailable && errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrOverloaded):
		return slog.LevelWarn, "database unavailable"
	}
	return 0, ""
}

// SessionsPath is the path of sessions. What follows it is a secret.
const SessionsPath = "/v1/sessions"

// redactPath removes secrets from a path: a session's ID, which is enough to end the session, and an API key sent in
// place of its ID.
func redactPath(path string) string {
	if strings.Contains(path, apikey.Prefix) {
		path = wholeKey.ReplaceAllString(path, "…")
	}
	before, _, secret := strings.Cut(path, SessionsPath+"/")
	if !secret {
		return path
	}
	return before + SessionsPath + "/…"
}

// wholeKey matches an API key, or most of one.
var wholeKey = regexp.MustCompile(apikey.Prefix + `[0-9A-Za-z]{10}_[0-9A-Za-z]{20,}`)

// identifier matches a lease_id or a session_id.
var identifier = regexp.MustCompile(`[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}`)

// loggedPath returns a path as logs and spans may show it. A path without a route may be misspelt, with a secret
// anywhere in it.
func loggedPath(route, path string) string {
	if route == RouteNone {
		path = identifier.ReplaceAllString(path, "…")
	}
	return redactPath(path)
}

// ServerLog logs the messages of net/http about connections.
func ServerLog(logger *slog.Logger) *log.Logger { return log.New(serverLines{logger}, "", 0) }

type serverLines struct{ logger *slog.Logger }

// Write logs one line under a constant message; the text is in a key.
func (l serverLines) Write(line []byte) (int, error) {
	l.logger.Warn("HTTP server", "error", string(bytes.TrimSpace(line)))
	return len(line), nil
}

// tracerName is the instrumentation scope of the spans of this package.
const tracerName = "github.com/fencegate/fencegate/gateway"

// userAgentBytesMax bounds a client's header in a span.
const userAgentBytesMax = 200

// namedVars are the variables of routes that spans may show, with their attributes. A session's ID is a secret.
var namedVars = map[string]string{
	"lock": "fencegate.lock", "resource": "fencegate.resource",
	"key": "fencegate.key", "prefix": "fencegate.prefix",
}

// untracedRoutes have no spans: machines request them every few seconds, or they serve files.
var untracedRoutes = map[string]bool{
	"/healthz": true, "/readyz": true, "/metrics": true, "/openapi.yaml": true, "/": true, "/ui/{file}": true,
}

// w3c reads the trace of a client from the headers traceparent and tracestate.
var w3c propagation.TraceContext

// routeTracer makes the spans of the requests to one route. A nil *routeTracer makes none.
type routeTracer struct {
	server     *Server
	tracer     trace.Tracer
	route      string
	attributes []attribute.KeyValue // of all requests to the route
}

func (s *Server) routeTracer(route string) *routeTracer {
	if s.Tracing.Provider == nil || untracedRoutes[route] {
		return nil
	}
	attributes := []attribute.KeyValue{attribute.String("url.scheme", "http")}
	if route != RouteNone {
		attributes = append(attributes, attribute.String("http.route", route))
	}
	return &routeTracer{s, s.Tracing.Provider.Tracer(tracerName), route, attributes}
}

// withSpan adds the request's span, if it has one, to a context that does not descend from the request's.
func (s *Server) withSpan(ctx context.Context, r *http.Request) context.Context {
	if s.Tracing.Provider == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, trace.SpanFromContext(r.Context())) // also one that is not sampled
}

// answer answers a request within a span, and returns the request with the span. The span also ends if the handler
// aborts the connection by a panic.
func (t *routeTracer) answer(answer *Answer, r *http.Request, handle Handler) *http.Request {
	ctx, span := t.tracer.Start(w3c.Extract(r.Context(), propagation.HeaderCarrier(r.Header)), t.spanName(r),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(t.attributes...))
	defer span.End()
	r = r.WithContext(ctx)
	if span.IsRecording() {
		span.SetAttributes(t.ofRequest(r)...)
		defer noteAnswer(span, answer)
	}
	t.server.answer(answer, r, handle)
	return r
}

// spanName is the method and the template of the route, never the name of a lock.
func (t *routeTracer) spanName(r *http.Request) string {
	method := methodOf(r)
	if method == metrics.OtherMethod {
		method = "HTTP"
	}
	if t.route == RouteNone {
		return method
	}
	return method + " " + t.route
}

func (t *routeTracer) ofRequest(r *http.Request) []attribute.KeyValue {
	method := methodOf(r)
	if method == metrics.OtherMethod {
		method = "_OTHER"
	}
	attributes := []attribute.KeyValue{
		attribute.String("http.request.method", method),
		attribute.String("network.protocol.version", strconv.Itoa(r.ProtoMajor)),
		attribute.String("client.address", t.server.Address(r)),
		attribute.String("user_agent.original", spanText(r.UserAgent(), userAgentBytesMax)),
	}
	if t.server.Tracing.LeaveOutNames {
		return attributes
	}
	path := spanText(loggedPath(t.route, r.URL.Path), HeaderBytes)
	attributes = append(attributes, attribute.String("url.path", path))
	for name, key := range namedVars {
		if value := PathVariable(r, name); value != "" {
			attributes = append(attributes, attribute.String(key, spanText(value, HeaderBytes)))
		}
	}
	return attributes
}

// noteAnswer notes how a request was answered. Only failures of the server are errors: a rejected zombie is not.
func noteAnswer(span trace.Span, answer *Answer) {
	if answer.Code != "" {
		span.SetAttributes(attribute.String("fencegate.code", string(answer.Code)))
	}
	if answer.reason != "" {
		span.SetAttributes(attribute.String("fencegate.reason", answer.reason))
	}
	if answer.Principal != nil && NameOf(answer.Principal) != "" {
		span.SetAttributes(attribute.String("fencegate.principal", answer.Principal.Name))
	}
	if answer.abandoned {
		return
	}
	status := cmp.Or(answer.status, http.StatusOK) // net/http answers it if a handler has written nothing
	span.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= http.StatusInternalServerError {
		span.SetAttributes(attribute.String("error.type", strconv.Itoa(status)))
		span.SetStatus(codes.Error, string(answer.Code))
	}
}

// spanText makes a client's text fit for a span. An invalid byte would cost all spans that are exported with it.
func spanText(text string, bytesMax int) string {
	if len(text) > bytesMax {
		text = text[:bytesMax]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// hiddenText stands for an owner, and a lock, that the caller may not see.
const hiddenText = "…"

// hiddenTurn is the assumed time to the end of a lease that the caller may not see.
const hiddenTurn = time.Second

// Redacted removes from an error of the store names that the principal may not see: of a blocking lease above or below,
// of waits elsewhere in a cycle, and of the resource of another row.
func Redacted(principal *access.Principal, err error) error {
	if held, ok := errors.AsType[*store.HeldError](err); ok {
		if held.OwnerID != "" && held.By != "" && held.By != held.Lock && !mayLook(principal, held.By) {
			return &store.HeldError{Lock: held.Lock, Hidden: true, Remaining: hiddenTurn, QueueLength: held.QueueLength}
		}
		return err
	}
	if deadlock, ok := errors.AsType[*store.DeadlockError](err); ok {
		return &store.DeadlockError{Cycle: Convert(deadlock.Cycle, func(wait store.Wait) store.Wait {
			if mayLook(principal, wait.Lock) {
				return wait
			}
			return store.Wait{OwnerID: hiddenText, Lock: hiddenText}
		})}
	}
	rejected, ok := errors.AsType[*store.RejectedError](err)
	if ok && rejected.Table != "" && !principal.May(access.Write, string(rejected.Resource)) {
		return WriteRule.Forbidden()
	}
	return err
}

// mayLook reports whether the principal may see who holds a lock and waits for it.
func mayLook(principal *access.Principal, lock store.Name) bool {
	return principal.May(access.Observe, string(lock)) || principal.May(access.Lock, string(lock))
}

// WriteRule is the rule of each name in a bulk line or a transaction.
var WriteRule = OnEach(access.Write)
