package lockclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// request is a call before it is sent.
type request struct {
	// op names the call in errors.
	op     string
	method string
	// path is escaped, and begins with a slash.
	path   string
	query  url.Values
	header http.Header
	body   []byte
	// wait is for how long the gateway may wait before it answers.
	wait time.Duration
	// repeat says how to repeat the call after an unknown outcome; empty for a call that changes nothing.
	repeat string
	// idempotent says that the call may be repeated as it is: it is applied at most once, and answered as the first time.
	idempotent bool
	// check, if set, reads a 2xx answer, and returns what is missing from it.
	check func(answer) string
}

const (
	repeatWrite   = "send the same again, with the same token and sequence"
	repeatAsIs    = "send the same again"
	repeatAcquire = "send the same again with the same request_id; without one the lock may stay held for its TTL"
)

// answer is a 2xx answer, read whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// fetch sends a call and reads its answer as JSON. lacks names a missing part; such an answer is foreign.
func fetch[T any](ctx context.Context, a *API, call request, lacks func(T) string) (T, error) {
	var result T
	call.check = func(got answer) string {
		result = *new(T)
		if err := json.Unmarshal(got.body, &result); err != nil {
			return "its body is not the JSON that was expected (" + err.Error() + ")"
		}
		return lacks(result)
	}
	if err := a.send(ctx, call); err != nil {
		return *new(T), err
	}
	return result, nil
}

// nothing is the lacks of an answer that may be empty.
func nothing[T any](T) string { return "" }

// exchange sends a call to one gateway and reads the whole answer. It returns *Error or *AnswerError.
func (c *Client) exchange(ctx context.Context, call request, at gateway) (answer, error) {
	var sent dispatch
	response, err := c.dispatch(ctx, call, at, &sent)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	return c.read(call, at, &sent, response)
}

// dispatch sends a call to one gateway, and returns the answer when its head has arrived. The caller closes the body.
func (c *Client) dispatch(ctx context.Context, call request, at gateway, sent *dispatch) (*http.Response, error) {
	httpRequest, err := c.build(sent.observe(ctx), call, at)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(httpRequest)
	if err != nil {
		return nil, at.noAnswer(call, sent.outcome(call.repeat != ""), err)
	}
	return response, nil
}

// read reads the whole answer, and makes an error of a refusal.
func (c *Client) read(call request, at gateway, sent *dispatch, response *http.Response) (answer, error) {
	got := answer{status: response.StatusCode, header: response.Header}
	var err error
	got.body, err = io.ReadAll(io.LimitReader(response.Body, c.answerBytesMax+1))
	switch {
	case err != nil:
		return answer{}, at.noAnswer(call, sent.outcome(call.repeat != ""), err)
	case int64(len(got.body)) > c.answerBytesMax:
		return answer{}, at.foreign(call, got, fmt.Sprintf("it is over the client's limit of %d bytes", c.answerBytesMax))
	case got.status < 200 || got.status > 299:
		return answer{}, at.problem(call, got)
	}
	if call.check != nil {
		if fault := call.check(got); fault != "" {
			return answer{}, at.foreign(call, got, fault)
		}
	}
	return got, nil
}

func (c *Client) build(ctx context.Context, call request, at gateway) (*http.Request, error) {
	target := at.base + call.path
	if len(call.query) > 0 {
		target += "?" + call.query.Encode()
	}
	httpRequest, err := http.NewRequestWithContext(ctx, call.method, target, bytes.NewReader(call.body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", call.op, err)
	}
	if c.headers != nil {
		c.headers(ctx, httpRequest.Header)
		for _, own := range ownHeaders {
			httpRequest.Header.Del(own)
		}
	}
	for name, values := range call.header {
		if strings.ContainsFunc(values[0], func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, refused(call.op, api.CodeInvalidRequest, name+" has a control character in it")
		}
		httpRequest.Header[name] = values
	}
	httpRequest.Header.Set("User-Agent", c.userAgent)
	return httpRequest, nil
}

// ownHeaders are those that only the client sets, by the parameters of the call.
var ownHeaders = []string{
	api.HeaderFencingToken, api.HeaderFencingTokenX, api.HeaderLeaseID,
	"Content-Type", "If-Match", "If-None-Match", "Last-Event-ID",
}

// problem makes the error of a refusal.
func (g gateway) problem(call request, got answer) error {
	mediaType, _, _ := mime.ParseMediaType(got.header.Get("Content-Type"))
	if mediaType != api.ProblemContentType {
		return g.foreign(call, got, "no problem document, but "+quoteClipped(string(got.body)))
	}
	var problem api.Problem
	if err := json.Unmarshal(got.body, &problem); err != nil {
		return g.foreign(call, got, "its problem document can't be read ("+err.Error()+")")
	}
	if problem.Code == "" {
		return g.foreign(call, got, "its problem document has no code")
	}
	return &Error{Op: call.op, Problem: &problem, RetryAfter: retryAfter(&problem, got.header.Get("Retry-After"))}
}

// noAnswer makes the error of a request without a whole answer.
func (g gateway) noAnswer(call request, outcome api.Outcome, cause error) error {
	detail := cause
	var urlErr *url.Error
	if errors.As(cause, &urlErr) {
		detail = urlErr.Err
	}
	problem := &api.Problem{
		Type: "about:blank", Title: "No answer", Status: http.StatusServiceUnavailable,
		Code: api.CodeUnavailable, Retryable: true, Outcome: outcome,
		Detail: fmt.Sprintf("no answer from %s: %v. ", g.shown, detail),
	}
	switch {
	case call.repeat == "":
		problem.Detail += "Try again."
	case outcome == api.OutcomeNotApplied:
		problem.Detail += "Nothing was sent: try again."
	default:
		problem.Detail += "It may have been applied: " + call.repeat + "."
	}
	return &Error{Op: call.op, Problem: problem, Cause: cause}
}

func (g gateway) foreign(call request, got answer, fault string) error {
	outcome := api.OutcomeUnknown
	if call.repeat == "" {
		outcome = api.OutcomeNotApplied
	}
	return &AnswerError{
		Op: call.op, URL: g.shown, Status: got.status, ContentType: got.header.Get("Content-Type"), Fault: fault,
		Outcome: outcome,
	}
}

// retryAfter returns the pause that a refusal asks for; 0: none.
func retryAfter(problem *api.Problem, header string) time.Duration {
	if problem.RecommendedRetryMS != nil {
		return time.Duration(max(0, *problem.RecommendedRetryMS)) * time.Millisecond
	}
	if seconds, err := strconv.Atoi(header); err == nil {
		return time.Duration(max(0, seconds)) * time.Second
	}
	return 0
}

// jsonBody encodes a request's body. A json.RawMessage in it keeps its text, except for white space outside of strings.
func jsonBody(op string, body any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		return nil, refused(op, api.CodeInvalidRequest, "the body can't be written as JSON: "+err.Error())
	}
	return text.Bytes(), nil
}

// quoteClipped makes any text short and a single line.
func quoteClipped(text string) string {
	const shown = 80
	if len(text) > shown {
		return strconv.Quote(text[:shown]) + "…"
	}
	return strconv.Quote(text)
}
