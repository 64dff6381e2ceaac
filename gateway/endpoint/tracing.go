package endpoint

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/gateway/metrics"
)

// tracerName is the instrumentation scope of the spans of this package.
const tracerName = "github.com/fencegate/fencegate/gateway"

// userAgentBytesMax bounds a client's header in a span.
const userAgentBytesMax = 200

// namedVars are the variables of routes that spans may show, with their attributes. A session's ID is a secret.
var namedVars = map[string]string{
	"lock": "fencegate.lock", "election": "fencegate.election", "resource": "fencegate.resource",
	"key": "fencegate.key", "prefix": "fencegate.prefix",
}

// untracedRoutes have no spans: machines request them every few seconds, or they answer files.
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
