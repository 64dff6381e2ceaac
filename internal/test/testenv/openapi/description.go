// Package openapi fails tests whose exchanges with a handler differ from the description of its API.
//
//   - exchange.go: the handler around the one that is tested;
//   - description.go: what is described of a path, an answer and an accepted request, and of a router;
//   - streams.go: what is described of each event of a stream.
package openapi

import (
	"bytes"
	"context"
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
