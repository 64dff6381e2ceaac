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
	// op says what is called, for errors.
	op     string
	method string
	// path is escaped, and begins with a slash.
	path   string
	query  url.Values
	header http.Header
	body   []byte
	// wait is how long the gateway was asked to wait before it answers.
	wait time.Duration
	// repeat says how to send it again after an unknown outcome; empty for a call that changes nothing.
	repeat string
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

// fetch sends a call and reads its answer as JSON. The answer is foreign if lacks names something that it lacks.
func fetch[T any](ctx context.Context, c *Client, call request, lacks func(T) string) (T, error) {
	var result T
	got, err := c.send(ctx, call)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal(got.body, &result); err != nil {
		return *new(T), c.foreign(call, got, "its body is not the JSON that was expected ("+err.Error()+")")
	}
	if fault := lacks(result); fault != "" {
		return *new(T), c.foreign(call, got, fault)
	}
	return result, nil
}

// nothing is lacks for an answer that may be empty in every part.
func nothing[T any](T) string { return "" }

// send returns the answer, or *Error for every refusal and every failure of the network, or *AnswerError.
func (c *Client) send(ctx context.Context, call request) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, c.unanswered(call, api.OutcomeNotApplied, err)
	}
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, answerTimeout+call.wait)
		defer cancel()
	}
	var sent dispatch
	httpRequest, err := c.build(sent.observe(ctx), call)
	if err != nil {
		return answer{}, err
	}
	response, err := c.http.Do(httpRequest)
	if err != nil {
		return answer{}, c.unanswered(call, sent.outcome(call.repeat != ""), err)
	}
	defer func() { _ = response.Body.Close() }()

	got := answer{status: response.StatusCode, header: response.Header}
	got.body, err = io.ReadAll(io.LimitReader(response.Body, c.answerBytesMax+1))
	switch {
	case err != nil:
		return answer{}, c.unanswered(call, sent.outcome(call.repeat != ""), err)
	case int64(len(got.body)) > c.answerBytesMax:
		return answer{}, c.foreign(call, got, fmt.Sprintf("it is over the client's limit of %d bytes", c.answerBytesMax))
	case got.status < 200 || got.status > 299:
		return answer{}, c.problem(call, got)
	}
	return got, nil
}

func (c *Client) build(ctx context.Context, call request) (*http.Request, error) {
	target := c.base + call.path
	if len(call.query) > 0 {
		target += "?" + call.query.Encode()
	}
	httpRequest, err := http.NewRequestWithContext(ctx, call.method, target, bytes.NewReader(call.body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", call.op, err)
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

// problem reads a refusal.
func (c *Client) problem(call request, got answer) error {
	mediaType, _, _ := mime.ParseMediaType(got.header.Get("Content-Type"))
	if mediaType != api.ProblemContentType {
		return c.foreign(call, got, "no problem document, but "+quoteClipped(string(got.body)))
	}
	var problem api.Problem
	if err := json.Unmarshal(got.body, &problem); err != nil {
		return c.foreign(call, got, "its problem document can't be read ("+err.Error()+")")
	}
	if problem.Code == "" {
		return c.foreign(call, got, "its problem document has no code")
	}
	return &Error{Op: call.op, Problem: &problem}
}

// unanswered is the error of a request to which no whole answer came.
func (c *Client) unanswered(call request, outcome api.Outcome, cause error) error {
	detail := cause
	var urlErr *url.Error
	if errors.As(cause, &urlErr) {
		detail = urlErr.Err
	}
	problem := &api.Problem{
		Type: "about:blank", Title: "No answer", Status: http.StatusServiceUnavailable,
		Code: api.CodeUnavailable, Retryable: true, Outcome: outcome,
		Detail: fmt.Sprintf("no answer from %s: %v. ", c.shownBase, detail),
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

func (c *Client) foreign(call request, got answer, fault string) error {
	return &AnswerError{
		Op: call.op, URL: c.shownBase, Status: got.status, ContentType: got.header.Get("Content-Type"), Fault: fault,
	}
}

// jsonBody writes a request's body. A json.RawMessage in it keeps its text except for the white space outside of strings.
func jsonBody(op string, body any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		return nil, refused(op, api.CodeInvalidRequest, "the body can't be written as JSON: "+err.Error())
	}
	return text.Bytes(), nil
}

// quoteClipped keeps a message on one line and short whatever the text is.
func quoteClipped(text string) string {
	const shown = 80
	if len(text) > shown {
		return strconv.Quote(text[:shown]) + "…"
	}
	return strconv.Quote(text)
}
