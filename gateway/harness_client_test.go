package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// client sends requests as they are written, and holds every answer against what all answers have in common.
type client struct {
	base string
	http *http.Client
}

// answer is an answer that was read to its end.
type answer struct {
	request string
	status  int
	proto   int
	header  http.Header
	body    []byte
}

const jsonType = "Content-Type: application/json"

// send sends a request; headers are written "Name: value".
func (c client) send(t testing.TB, method, path, body string, headers ...string) answer {
	t.Helper()
	got, err := c.try(t, method, path, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

// try is send for requests that may find nobody.
func (c client) try(t testing.TB, method, path, body string, headers ...string) (answer, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, c.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Add(name, value)
	}
	return c.do(t, request)
}

func (c client) do(t testing.TB, request *http.Request) (answer, error) {
	t.Helper()
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	got := answer{
		request: request.Method + " " + request.URL.RequestURI(), status: response.StatusCode, proto: response.ProtoMajor, header: response.Header,
	}
	if got.body, err = io.ReadAll(response.Body); err != nil {
		return answer{}, err
	}
	if got.status >= http.StatusBadRequest && request.Method != http.MethodHead {
		checkProblem(t, got)
	}
	return got, nil
}

// inBackground gives its answer when it comes; an empty one if the test failed over it.
func inBackground(request func() answer) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		defer close(answers)
		answers <- request()
	}()
	return answers
}

func (c client) get(t testing.TB, path string, headers ...string) answer {
	t.Helper()
	return c.send(t, http.MethodGet, path, "", headers...)
}

func (c client) post(t testing.TB, path, body string, headers ...string) answer {
	t.Helper()
	return c.send(t, http.MethodPost, path, body, append(headers, jsonType)...)
}

// codeStatuses are the statuses that each code may come with; "internal" may not come at all.
var codeStatuses = map[api.Code][]int{
	api.CodeInvalidRequest:  {400, 405, 408, 415},
	api.CodeInvalidName:     {400},
	api.CodeInvalidToken:    {400},
	api.CodeNotFound:        {404},
	api.CodeLockHeld:        {409},
	api.CodeDeadlock:        {409},
	api.CodeLeaseLost:       {409},
	api.CodeTokenStale:      {412},
	api.CodeTokenUnknown:    {412},
	api.CodeLeaseMismatch:   {412},
	api.CodeLeaseExpired:    {412},
	api.CodeVersionMismatch: {412},
	api.CodeTooLarge:        {413},
	api.CodeTokenRequired:   {428},
	api.CodeUnavailable:     {503},
}

// checkProblem holds an error against what every error has.
func checkProblem(t testing.TB, got answer) {
	t.Helper()
	var problem api.Problem
	if kind := got.header.Get("Content-Type"); kind != api.ProblemContentType {
		t.Fatalf("%s: %d is of type %q: %s", got.request, got.status, kind, got.body)
	}
	decodeStrictly(t, got, &problem)
	switch {
	case !slices.Contains(codeStatuses[problem.Code], got.status):
		t.Errorf("%s: code %q came with status %d: %s", got.request, problem.Code, got.status, got.body)
	case problem.Status != got.status, problem.Type == "", problem.Title == "", problem.Instance == "":
		t.Errorf("%s: status, type, title or instance is wrong: %s", got.request, got.body)
	case len(problem.Detail) < 10 || len(problem.Detail) > 2000:
		t.Errorf("%s: the detail says nothing, or too much: %s", got.request, got.body)
	}
	switch retryAfter, err := strconv.Atoi(got.header.Get("Retry-After")); {
	case !problem.Retryable:
	case err != nil || retryAfter < 1:
		t.Errorf("%s: Retry-After is %q: %s", got.request, got.header.Get("Retry-After"), got.body)
	}
}

func decodeStrictly(t testing.TB, got answer, into any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(got.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%s: %d: %v: %s", got.request, got.status, err, got.body)
	}
}

// as reads an answer of the given status.
func as[T any](t testing.TB, got answer, status int) T {
	t.Helper()
	var document T
	if got.status != status {
		t.Fatalf("%s: answered %d, want %d: %s", got.request, got.status, status, got.body)
	}
	decodeStrictly(t, got, &document)
	return document
}

// refused reads an error that has the given code.
func refused(t testing.TB, got answer, code api.Code) api.Problem {
	t.Helper()
	if got.status < http.StatusBadRequest {
		t.Fatalf("%s: answered %d, want %s: %s", got.request, got.status, code, got.body)
	}
	problem := as[api.Problem](t, got, got.status)
	if problem.Code != code {
		t.Fatalf("%s: answered %s, want %s: %s", got.request, problem.Code, code, got.body)
	}
	return problem
}
