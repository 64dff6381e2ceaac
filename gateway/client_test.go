package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

// client sends requests and checks what all answers have in common.
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

// answerLimit ends a request whose answer does not end. No test waits as long for one.
const answerLimit = 3 * time.Minute

const jsonType = "Content-Type: application/json"

// send sends a request. Headers are written "Name: value".
func (c client) send(t testing.TB, method, path, body string, headers ...string) answer {
	t.Helper()
	got, err := c.try(t, method, path, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

// try is send for requests that may get no answer.
func (c client) try(t testing.TB, method, path, body string, headers ...string) (answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerLimit)
	defer cancel()
	return c.tryFor(ctx, t, method, path, strings.NewReader(body), headers...)
}

// tryFor is try with a context that may end, and with any body.
func (c client) tryFor(
	ctx context.Context, t testing.TB, method, path string, body io.Reader, headers ...string,
) (answer, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return answer{}, err
	}
	addHeaders(request.Header, headers...)
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	return readResponse(t, request, response)
}

// addHeaders adds headers that are written "Name: value".
func addHeaders(to http.Header, headers ...string) {
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		to.Add(name, value)
	}
}

func readResponse(t testing.TB, request *http.Request, response *http.Response) (answer, error) {
	t.Helper()
	defer response.Body.Close()
	got := answer{
		request: request.Method + " " + request.URL.RequestURI(),
		status:  response.StatusCode, proto: response.ProtoMajor, header: response.Header,
	}
	var err error
	if got.body, err = io.ReadAll(response.Body); err != nil {
		return answer{}, err
	}
	// 423 is Terraform's.
	if got.status >= http.StatusBadRequest && got.status != http.StatusLocked && request.Method != http.MethodHead {
		checkProblem(t, got)
	}
	return got, nil
}

// inBackground delivers an answer when it arrives, and an empty one if the test failed over it.
func inBackground[T any](request func() T) <-chan T {
	answers := make(chan T, 1)
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

func (c client) delete(t testing.TB, path string, headers ...string) answer {
	t.Helper()
	return c.send(t, http.MethodDelete, path, "", headers...)
}

// raw is a connection on which a test writes its requests itself.
type raw struct {
	*net.TCPConn

	reader *bufio.Reader
}

// wire sends the text of a request over a connection of its own.
func (c client) wire(t testing.TB, request string) raw {
	t.Helper()
	return c.wireFrom(t, "127.0.0.1", request)
}

// wireFrom is wire from an address of the loopback network.
func (c client) wireFrom(t testing.TB, address, request string) raw {
	t.Helper()
	connection := c.dialFrom(t, address)
	if err := connection.SetDeadline(time.Now().Add(await.Limit)); err != nil {
		t.Fatal(err)
	}
	r := raw{connection.(*net.TCPConn), bufio.NewReader(connection)}
	r.write(t, strings.ReplaceAll(request, "\n", "\r\n"))
	return r
}

// dialFrom opens a connection from an address of the loopback network.
func (c client) dialFrom(t testing.TB, address string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	connection, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(c.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func (r raw) write(t testing.TB, text string) {
	t.Helper()
	if _, err := io.WriteString(r, text); err != nil {
		t.Fatal(err)
	}
}

func (r raw) closeWrite(t testing.TB) {
	t.Helper()
	if err := r.CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

// answer reads one answer. It also returns whether the answer announces the end of the connection.
func (r raw) answer(t testing.TB) (got answer, closed bool) {
	t.Helper()
	response, err := http.ReadResponse(r.reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	request, _ := http.NewRequest(http.MethodGet, "/on-the-wire", nil)
	if got, err = readResponse(t, request, response); err != nil {
		t.Fatal(err)
	}
	return got, response.Close
}

// codeStatuses has the statuses that may accompany each code. "internal" has none: it is always a defect.
var codeStatuses = map[api.Code][]int{
	api.CodeInvalidRequest:      {400, 405, 408, 415},
	api.CodeInvalidName:         {400},
	api.CodeInvalidToken:        {400},
	api.CodeUnknownHost:         {421},
	api.CodeNotFound:            {404},
	api.CodeLockHeld:            {409},
	api.CodeDeadlock:            {409},
	api.CodeNotExternal:         {409},
	api.CodeUnsupported:         {400},
	api.CodeLeaseLost:           {409},
	api.CodeTokenStale:          {412},
	api.CodeTokenUnknown:        {412},
	api.CodeLeaseMismatch:       {412},
	api.CodeLeaseExpired:        {412},
	api.CodeVersionMismatch:     {412},
	api.CodeRowsMismatch:        {412},
	api.CodeConstraintViolation: {422},
	api.CodeUnauthenticated:     {401},
	api.CodeForbidden:           {403},
	api.CodeTooLarge:            {413},
	api.CodeTokenRequired:       {428},
	api.CodeRateLimited:         {429},
	api.CodeUnavailable:         {503},
}

// checkProblem checks what every error answer has.
func checkProblem(t testing.TB, got answer) {
	t.Helper()
	var problem api.Problem
	if kind := got.header.Get("Content-Type"); kind != api.ProblemContentType {
		t.Fatalf("%s: the error %d has the content type %q: %s", got.request, got.status, kind, got.body)
	}
	decodeStrictly(t, got, &problem)
	switch {
	case !slices.Contains(codeStatuses[problem.Code], got.status):
		t.Errorf("%s: code %q came with status %d: %s", got.request, problem.Code, got.status, got.body)
	case problem.Status != got.status, problem.Type == "", problem.Title == "", problem.Instance == "":
		t.Errorf("%s: status, type, title or instance is missing or wrong: %s", got.request, got.body)
	case len(problem.Detail) < 10 || len(problem.Detail) > 2000:
		t.Errorf("%s: the detail has %d bytes, want 10 to 2000: %s", got.request, len(problem.Detail), got.body)
	}
	retryAfter, err := strconv.Atoi(got.header.Get("Retry-After"))
	if problem.Retryable && (err != nil || retryAfter < 1) {
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

// as decodes an answer that has the given status.
func as[T any](t testing.TB, got answer, status int) T {
	t.Helper()
	var document T
	if got.status != status {
		t.Fatalf("%s: answered %d, want %d: %s", got.request, got.status, status, got.body)
	}
	decodeStrictly(t, got, &document)
	return document
}

// expectProblem decodes an error that has the given code.
func expectProblem(t testing.TB, got answer, code api.Code) api.Problem {
	t.Helper()
	if got.status < http.StatusBadRequest {
		t.Fatalf("%s: answered %d, want the error %s: %s", got.request, got.status, code, got.body)
	}
	problem := as[api.Problem](t, got, got.status)
	if problem.Code != code {
		t.Fatalf("%s: answered the error %s, want %s: %s", got.request, problem.Code, code, got.body)
	}
	return problem
}

// expectReason is expectProblem for errors that have the given reason.
func expectReason(t testing.TB, got answer, code api.Code, reason string) api.Problem {
	t.Helper()
	problem := expectProblem(t, got, code)
	if problem.Reason != reason {
		t.Errorf("%s: the reason is %q, want %q: %s", got.request, problem.Reason, reason, got.body)
	}
	return problem
}

// expectUnavailable decodes the error unavailable and checks its outcome.
func expectUnavailable(t testing.TB, got answer, outcome api.Outcome) api.Problem {
	t.Helper()
	problem := expectProblem(t, got, api.CodeUnavailable)
	if problem.Outcome != outcome || !problem.Retryable || got.header.Get("Retry-After") == "" {
		t.Errorf("%s: want a retryable problem with Retry-After and the outcome %s, got %s", got.request, outcome, got.body)
	}
	return problem
}

// serve answers on a loopback listener until the test ends. It then waits for the requests in progress.
func serve(t testing.TB, handler http.Handler) client {
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return client{base: server.URL, http: newHTTPClient(t, false)}
}

// newHTTPClient returns a client with connections of its own, of one version of HTTP.
func newHTTPClient(t testing.TB, http2 bool) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// overBoth runs a test over HTTP/1.1 and over HTTP/2. Each run gets an HTTP client of its version.
func overBoth(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Helper()
	for name, http2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(name, func(t *testing.T) { test(t, http2) })
	}
}
