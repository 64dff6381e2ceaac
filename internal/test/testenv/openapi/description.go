// Package openapi fails tests whose exchanges with a handler differ from the description of its API.
//
//   - exchange.go: the handler around the one that is tested;
//   - description.go: what is described of a path, an answer and an accepted request, and of a router;
//   - streams.go: what is described of each event of a stream.
package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/lockclient/api"
)

// Description is the text of an API. It finds operations by paths whose names have slashes. The routers of kin-openapi
// can't.
type Description struct {
	document *openapi3.T
	paths    []describedPath // the more specific before the less specific
}

type describedPath struct {
	template string
	literals []string // the texts around the variables: comparing them first is cheap
	pattern  *regexp.Regexp
	item     *openapi3.PathItem
}

// Read reads a document, without validating it.
func Read(text []byte) (*Description, error) {
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, err
	}
	d := &Description{document: document}
	variable := regexp.MustCompile(`\{\w+\}`)
	for template, item := range document.Paths.Map() {
		literals := variable.Split(template, -1)
		d.paths = append(d.paths, describedPath{template, literals, pathPattern(template), item})
	}
	literal := func(p describedPath) int { return len(variable.ReplaceAllString(p.template, "")) }
	slices.SortFunc(d.paths, func(a, b describedPath) int { return literal(b) - literal(a) })
	return d, nil
}

var quotedVariable = regexp.MustCompile(`\\\{(\w+)\\\}`)

// pathPattern matches the paths of a template. A variable matches any text, also none: its schema decides whether that
// is a name.
func pathPattern(template string) *regexp.Regexp {
	return regexp.MustCompile("^" + quotedVariable.ReplaceAllString(regexp.QuoteMeta(template), "(?P<$1>(?s:.*))") + "$")
}

// find returns the most specific path and its variables, or nil.
func (d *Description) find(path string) (*describedPath, map[string]string) {
	for i, candidate := range d.paths {
		last := candidate.literals[len(candidate.literals)-1]
		if !strings.HasPrefix(path, candidate.literals[0]) || !strings.HasSuffix(path, last) {
			continue
		}
		match := candidate.pattern.FindStringSubmatch(path)
		if match == nil {
			continue
		}
		variables := map[string]string{}
		for n, name := range candidate.pattern.SubexpNames() {
			if name != "" {
				variables[name] = match[n]
			}
		}
		return &d.paths[i], variables
	}
	return nil, nil
}

// check returns how an exchange differs from the description.
func (d *Description) check(e exchange) error {
	if e.status == http.StatusMisdirectedRequest {
		return d.checkAnswer(e, d.document.Components.Responses["Misdirected"])
	}
	if e.status == http.StatusTooManyRequests {
		return d.checkAnswer(e, d.document.Components.Responses["RateLimited"])
	}
	path, variables := d.find(e.request.URL.Path)
	if path == nil {
		if e.status != http.StatusNotFound {
			return errors.New("the path is not described")
		}
		return d.checkAnswer(e, d.document.Components.Responses["NoSuchPath"])
	}
	operation := path.item.Operations()[e.request.Method]
	if other := path.others()[e.request.Method]; other != "" {
		operation = d.document.Paths.Value(other).Post
	}
	if operation == nil {
		if e.status != http.StatusMethodNotAllowed {
			return fmt.Errorf("the method is not described for %s", path.template)
		}
		return errors.Join(checkAllow(e, path), d.checkAnswer(e, d.document.Components.Responses["MethodNotAllowed"]))
	}
	response := operation.Responses.Status(e.status)
	if response == nil {
		return fmt.Errorf("the status is not described for %s", operation.OperationID)
	}
	err := d.checkAnswer(e, response)
	if e.status/100 == 2 {
		err = errors.Join(err, d.checkRequest(e, path, operation, variables))
	}
	return err
}

// others returns the paths whose POST describes methods that OpenAPI does not know.
func (p *describedPath) others() map[string]string {
	paths := map[string]string{}
	given, _ := p.item.Extensions["x-methods"].(map[string]any)
	for method, path := range given {
		paths[method] = path.(string) //nolint:forcetypeassert // paths are texts
	}
	return paths
}

// methods returns the methods that are described, sorted.
func (p *describedPath) methods() []string {
	methods := slices.Collect(maps.Keys(p.item.Operations()))
	return slices.Sorted(slices.Values(slices.AppendSeq(methods, maps.Keys(p.others()))))
}

// checkAllow compares the header Allow with the methods of the path.
func checkAllow(e exchange, path *describedPath) error {
	allowed := strings.Split(e.header.Get("Allow"), ", ")
	slices.Sort(allowed)
	if methods := path.methods(); !slices.Equal(allowed, methods) {
		return fmt.Errorf("allowed are %q, described for %s are %q", allowed, path.template, methods)
	}
	return nil
}

// transportHeaders need no description. Content-Type is described by the content.
var transportHeaders = []string{"Connection", "Content-Encoding", "Content-Length", "Content-Type", "Date",
	"Transfer-Encoding", "Vary"}

// checkAnswer validates the headers and the body.
func (d *Description) checkAnswer(e exchange, response *openapi3.ResponseRef) error {
	known := slices.Clone(transportHeaders)
	for name := range response.Value.Headers {
		known = append(known, http.CanonicalHeaderKey(name))
	}
	for name := range e.header {
		if !slices.Contains(known, name) {
			return fmt.Errorf("the header %s of the answer is not described", name)
		}
	}
	bodiless := e.request.Method == http.MethodHead
	if len(response.Value.Content) == 0 && len(e.body) > 0 && !bodiless {
		return errors.New("the answer has a body, and none is described")
	}
	// openapi3filter does not validate answers to HEAD, or 304. It gets a GET with this answer as its 200.
	request := e.request.Clone(context.Background())
	request.Method = http.MethodGet
	route := &routers.Route{Spec: d.document, Operation: &openapi3.Operation{
		Responses: openapi3.NewResponses(openapi3.WithStatus(http.StatusOK, response)),
	}}
	options := filterOptions()
	options.ExcludeResponseBody = bodiless
	err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: request, Route: route},
		Status:                 http.StatusOK,
		Header:                 e.header,
		Body:                   io.NopCloser(bytes.NewReader(e.body)),
		Options:                options,
	})
	return errors.Join(err, d.checkEvents(e, response))
}

// checkRequest validates the parameters and the body of a request.
func (d *Description) checkRequest(
	e exchange, path *describedPath, operation *openapi3.Operation, variables map[string]string,
) error {
	item := *path.item
	item.Parameters = nil
	for _, parameter := range path.item.Parameters {
		// openapi3filter regards an empty variable as missing.
		if variables[parameter.Value.Name] == "" && parameter.Value.Schema.Value.VisitJSON("") == nil {
			continue
		}
		item.Parameters = append(item.Parameters, parameter)
	}
	query := e.request.URL.Query()
	for name := range query {
		if operation.Parameters.GetByInAndName(openapi3.ParameterInQuery, name) == nil {
			return fmt.Errorf("the parameter %s is not described, and was accepted", name)
		}
	}
	request := e.request.Clone(context.Background())
	request.Body = io.NopCloser(bytes.NewReader(e.requestBody))
	if token := request.Header.Get(api.HeaderFencingTokenX); token != "" {
		request.Header.Set(api.HeaderFencingToken, token) // which is required; OpenAPI can't say "one of both"
	}
	err := openapi3filter.ValidateRequest(context.Background(), &openapi3filter.RequestValidationInput{
		Request: request, PathParams: variables, QueryParams: query,
		Route: &routers.Route{Spec: d.document, Path: path.template, PathItem: &item, Method: request.Method,
			Operation: operation},
		Options: filterOptions(),
	})
	if err != nil {
		return fmt.Errorf("the accepted request differs from the description: %w", err)
	}
	return nil
}

func filterOptions() *openapi3filter.Options {
	options := &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true, SkipSettingDefaults: true,
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}
	// The default text quotes the whole schema.
	options.WithCustomSchemaErrorFunc(func(err *openapi3.SchemaError) string {
		if err.Origin != nil {
			return err.Origin.Error()
		}
		return "/" + strings.Join(err.JSONPointer(), "/") + ": " + err.Reason
	})
	return options
}

var muxVariable = regexp.MustCompile(`\{(\w+)(?::(?:[^{}]|\{[^{}]*\})*)?\}`)

// CheckRoutes fails t if a router has other paths or methods than the description. A route without methods matches
// the methods that the others of its path leave. These must be refused with 405 and Allow.
func (d *Description) CheckRoutes(t testing.TB, router *mux.Router) {
	t.Helper()
	operations := map[string]bool{}
	for _, path := range d.paths {
		for _, method := range path.methods() {
			operations[method+" "+path.template] = true
		}
	}
	routed, rest := map[string]bool{}, map[string]bool{}
	err := router.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		template, err := route.GetPathTemplate()
		if err != nil {
			return err
		}
		template = muxVariable.ReplaceAllString(template, "{$1}")
		methods, err := route.GetMethods()
		if err != nil {
			rest[template] = true
		}
		for _, method := range methods {
			routed[method+" "+template] = true
		}
		return nil
	})
	if err != nil {
		t.Errorf("a route has no path: %v", err)
	}
	if !maps.Equal(operations, routed) {
		t.Errorf("openapi.yaml has\n%s\nthe router\n%s", lines(operations), lines(routed))
	}
	for _, path := range d.paths {
		delete(rest, path.template)
		target := muxVariable.ReplaceAllString(path.template, "x")
		d.Conforming(t, router).ServeHTTP(httptest.NewRecorder(),
			httptest.NewRequestWithContext(t.Context(), http.MethodPatch, target, nil))
	}
	if len(rest) > 0 {
		t.Errorf("not in openapi.yaml, with any method:\n%s", lines(rest))
	}
}

func lines(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), "\n") }

// Conforming passes requests to next and fails t if the path, method, status, headers or body of an exchange differs
// from the description. Of the requests it checks those that succeed. Bodies are not buffered and connections can be
// reached, so limits of size and time are the same as without it. A server in front of it must end before t does.
func (d *Description) Conforming(t testing.TB, next http.Handler) http.Handler {
	t.Helper()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The check uses the request as it arrived. The server's own request keeps its body: the server drains it.
		arrived := r.Clone(context.WithoutCancel(r.Context()))
		copied := r.WithContext(r.Context())
		body := &copyingBody{ReadCloser: r.Body}
		copied.Body = body
		answer := &copyingWriter{ResponseWriter: w}
		next.ServeHTTP(answer, copied)
		answer.begin(http.StatusOK)

		e := exchange{arrived, body.read.Bytes(), answer.status, answer.sent, answer.body.Bytes()}
		if err := d.check(e); err != nil {
			t.Errorf("%s %s was answered %d, which differs from openapi.yaml: %v\nthe answer: %.2000s",
				arrived.Method, arrived.URL, e.status, err, e.body)
		}
	})
}

// exchange is a request and the answer to it.
type exchange struct {
	request     *http.Request
	requestBody []byte // as far as it was read
	status      int
	header      http.Header
	body        []byte
}

// copyingBody keeps the bytes read.
type copyingBody struct {
	io.ReadCloser

	read bytes.Buffer
}

func (b *copyingBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.read.Write(into[:n])
	return n, err
}

// copyingWriter keeps the answer.
type copyingWriter struct {
	http.ResponseWriter

	status int
	sent   http.Header
	body   bytes.Buffer
}

// begin notes the status and the headers of the first status that is not 1xx.
func (w *copyingWriter) begin(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status, w.sent = status, w.Header().Clone()
	}
}

func (w *copyingWriter) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *copyingWriter) Write(body []byte) (int, error) {
	w.begin(http.StatusOK)
	w.body.Write(body)
	return w.ResponseWriter.Write(body)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *copyingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

const eventStream = "text/event-stream"

// The bodies of these types are checked below, or not at all.
func init() {
	for _, kind := range []string{
		eventStream, "text/html", "text/javascript", "text/css", "image/svg+xml",
	} {
		openapi3filter.RegisterBodyDecoder(kind, openapi3filter.PlainBodyDecoder)
	}
}

// Event is one event of a stream.
type Event struct {
	ID   string // "": none
	Kind string
	Data string
}

// ParseEvents decodes events strictly: each field once, in the gateway's order. It skips comments, and IDs without an
// event. The rest is an event that is not complete.
func ParseEvents(text string) (events []Event, rest string, err error) {
	for {
		block, after, whole := strings.Cut(text, "\n\n")
		if !whole {
			return events, text, nil
		}
		text = after
		if strings.HasPrefix(block, ":") && !strings.Contains(block, "\n") {
			continue
		}
		var event Event
		lines := strings.Split(block, "\n")
		if id, found := strings.CutPrefix(lines[0], "id: "); found {
			event.ID, lines = id, lines[1:]
			if len(lines) == 0 {
				continue
			}
		}
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "event: ") || !strings.HasPrefix(lines[1], "data: ") {
			return events, text, fmt.Errorf("this is no event: %q", block)
		}
		event.Kind, event.Data = strings.TrimPrefix(lines[0], "event: "), strings.TrimPrefix(lines[1], "data: ")
		events = append(events, event)
	}
}

// checkEvents validates the events of a stream against the schemas of x-events.
func (d *Description) checkEvents(e exchange, response *openapi3.ResponseRef) error {
	content := response.Value.Content[eventStream]
	if content == nil || e.status != http.StatusOK {
		return nil
	}
	kinds, ok := content.Extensions["x-events"].(map[string]any)
	if !ok {
		return errors.New("x-events is missing")
	}
	events, _, err := ParseEvents(string(e.body))
	for i, event := range events {
		name, known := kinds[event.Kind].(string)
		schema := d.document.Components.Schemas[name]
		if !known || schema == nil {
			return fmt.Errorf("the event %q is not described", event.Kind)
		}
		var data any
		if err := json.Unmarshal([]byte(event.Data), &data); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		if err := schema.Value.VisitJSON(data, openapi3.MultiErrors()); err != nil {
			return fmt.Errorf("event %d differs from the schema %s: %w", i, name, err)
		}
		last := event.Kind == "end"
		if (last || event.Kind == "state") != (event.ID == "") || last && i < len(events)-1 {
			return fmt.Errorf("event %d: the id is %q, which belongs to every event but a state and the end", i, event.ID)
		}
	}
	return err
}
