package lockclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// request is a call before it is sent.
type request struct {
	// err, if set, is why the call can't be sent.
	err error
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

// nameCall makes a call whose path has a name in it, between prefix and suffix.
func nameCall(verb, method, prefix, name, suffix string) request {
	call := request{op: verb + " " + name, method: method}
	path, err := namePath(call.op, name)
	call.path, call.err = prefix+path+suffix, err
	return call
}

// withJSON adds a body. The call may be repeated as it is.
func (r request) withJSON(body any) request {
	r.header, r.repeat = http.Header{"Content-Type": {"application/json"}}, repeatAsIs
	if r.err == nil {
		r.body, r.err = jsonText(r.op, "body", body)
	}
	return r
}

// exchange sends a call to one gateway and reads the whole answer. It returns *Error or *AnswerError.
func (c *Client) exchange(ctx context.Context, call request, at gateway) error {
	var sent dispatch
	response, err := c.dispatch(ctx, call, at, &sent)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return c.read(call, at, &sent, response)
}

// open sends a call to one gateway, and returns its answer, a stream of the type that the call accepts, when its head
// has arrived. It calls cancel, which must end ctx, if the head is late. It returns *Error or *AnswerError.
func (c *Client) open(ctx context.Context, cancel func(), call request, at gateway) (*http.Response, error) {
	late := time.AfterFunc(c.answerTimeout, cancel)
	defer late.Stop()
	var sent dispatch
	response, err := c.dispatch(ctx, call, at, &sent)
	if err != nil {
		return nil, err
	}
	accepted := call.header.Get("Accept")
	if response.StatusCode == http.StatusOK && mediaType(response.Header) == accepted {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	call.check = func(answer) string { return "it is no stream of the type " + accepted }
	return nil, c.read(call, at, &sent, response)
}

// inTurn calls send with the gateways in turn, the preferred one first, until one serves or ctx ends. It returns an
// error that a retry may cure if one gateway has such an error.
func (c *Client) inTurn(ctx context.Context, send func(index int) error) error {
	first := c.preferred.Load()
	var failed error
	for i := range c.gateways {
		index := (int(first) + i) % len(c.gateways)
		err := send(index)
		if err == nil || !notServed(err) {
			c.prefer(first, index)
			return err
		}
		if failed == nil || retryable(err) {
			failed = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

func mediaType(header http.Header) string {
	mediaType, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	return mediaType
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
func (c *Client) read(call request, at gateway, sent *dispatch, response *http.Response) error {
	got := answer{status: response.StatusCode, header: response.Header}
	var err error
	got.body, err = io.ReadAll(io.LimitReader(response.Body, c.answerBytesMax+1))
	switch {
	case err != nil:
		return at.noAnswer(call, sent.outcome(call.repeat != ""), err)
	case int64(len(got.body)) > c.answerBytesMax:
		return at.foreign(call, got, fmt.Sprintf("it is over the client's limit of %d bytes", c.answerBytesMax))
	case got.status < 200 || got.status > 299:
		return at.problem(call, got)
	}
	if call.check != nil {
		if fault := call.check(got); fault != "" {
			return at.foreign(call, got, fault)
		}
	}
	return nil
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
	if c.credential != nil {
		c.credential.authorize(httpRequest.Header)
	}
	return httpRequest, nil
}

// ownHeaders are those that only the client sets, by the parameters of the call.
var ownHeaders = []string{
	api.HeaderFencingToken, api.HeaderFencingTokenX, api.HeaderLeaseID,
	"Content-Type", "If-Match", "If-None-Match",
}

// problem makes the error of a refusal.
func (g gateway) problem(call request, got answer) error {
	if mediaType(got.header) != api.ProblemContentType {
		fault := "no problem document, but " + quoteClipped(string(got.body))
		if isGatewayAway(got.status) {
			return g.away(call, got, fault)
		}
		return g.foreign(call, got, fault)
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
	cure := cureOf(cause)
	then := "It may have been applied: " + call.repeat + "."
	switch {
	case cure != "":
		then = cure
	case call.repeat == "":
		then = "Try again."
	case outcome == api.OutcomeNotApplied:
		then = "Nothing was sent: try again."
	}
	text := fmt.Sprintf("no answer from %s: %v. %s", g.shown, detail, then)
	err := unanswered(call.op, "No answer", outcome, text, cause)
	err.Problem.Retryable = cure == ""
	return err
}

// cureOf returns what to do about a failed connection that no retry can cure; "" for all other causes.
func cureOf(cause error) string {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var certificate *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	var alert *net.OpError
	switch {
	case errors.As(cause, &authority):
		return "Trust the authority that has signed the gateway's certificate: RootCAs of WithTLS."
	case errors.As(cause, &name):
		return "Call the gateway by a name or an address that its certificate has."
	case errors.As(cause, &certificate):
		return "The gateway needs another certificate."
	case errors.Is(cause, http.ErrSchemeMismatch), errors.As(cause, &noTLS):
		return "It speaks no TLS there: begin the URL with http://."
	case errors.As(cause, &alert) && alert.Op == "remote error":
		return "The gateway refuses the TLS connection: does it require a certificate of the client (WithTLS)?"
	}
	return ""
}

// isGatewayAway says that a proxy answers so when it reaches no gateway, or gets no answer from one.
func isGatewayAway(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// away makes the error of a proxy's answer that says that the gateway behind it did not answer.
func (g gateway) away(call request, got answer, fault string) error {
	foreign := g.foreign(call, got, fault)
	away := unanswered(call.op, "No answer", foreign.Outcome, foreign.said(), foreign)
	away.RetryAfter = retryAfter(away.Problem, got.header.Get("Retry-After"))
	return away
}

func (g gateway) foreign(call request, got answer, fault string) *AnswerError {
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

// optionalJSON encodes a part of a request that may be left out; nil is no text.
func optionalJSON(op, part string, value any) ([]byte, error) {
	if value == nil {
		return nil, nil
	}
	return jsonText(op, part, value)
}

// jsonText encodes a part of a request. A json.RawMessage in it keeps its text, except for white space outside of
// strings.
func jsonText(op, part string, value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, refused(op, api.CodeInvalidRequest, "the "+part+" can't be written as JSON: "+err.Error())
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// quoteClipped makes any text short and a single line.
func quoteClipped(text string) string {
	const shown = 80
	if len(text) > shown {
		return strconv.Quote(text[:shown]) + "…"
	}
	return strconv.Quote(text)
}

// reserved are the words that name operations in paths.
var reserved = []string{"acquire", "renew", "release", "break", "watch", "records", "fence"}

func reservedSegment(op, name, segment string) error {
	return refused(op, api.CodeInvalidName,
		"a name can't have the segment "+segment+", which is a word of the API: choose another than "+quoteClipped(name))
}

// namePath makes the path of a name: each segment escaped, the slashes between them raw. It refuses names that would
// arrive as another name or another operation: with empty or dot segments, which any proxy resolves, or with reserved
// words. The gateway checks all other rules about names.
func namePath(op, name string) (string, error) {
	segments := strings.Split(name, "/")
	for i, segment := range segments {
		switch {
		case segment == "" || segment == "." || segment == "..":
			return "", refused(op, api.CodeInvalidName,
				"a name has segments between slashes, none of them empty, . or ..: choose another than "+quoteClipped(name))
		case slices.Contains(reserved, segment):
			return "", reservedSegment(op, name, segment)
		}
		segments[i] = url.PathEscape(segment)
	}
	return strings.Join(segments, "/"), nil
}

// dispatch observes whether a request can have left this process. It can't have if the transport asked for a connection
// and got none. A transport that does not report to httptrace proves nothing, so its requests count as sent.
type dispatch struct {
	asked, connected atomic.Bool
}

func (d *dispatch) observe(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { d.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { d.connected.Store(true) },
	})
}

// outcome returns the outcome of a request without a whole answer.
func (d *dispatch) outcome(changes bool) api.Outcome {
	if !changes || (d.asked.Load() && !d.connected.Load()) {
		return api.OutcomeNotApplied
	}
	return api.OutcomeUnknown
}
