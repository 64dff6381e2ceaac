package lockclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

const (
	// verdictBytesMax bounds a line of an answer.
	verdictBytesMax = 64 << 10
	// emptyLineEvery is how often it is looked whether a connection lives on which the gateway has not agreed yet.
	emptyLineEvery = 100 * time.Millisecond
)

var errStreamClosed = errors.New("the stream is closed")

// Writes sends the lines that it reads, each an [api.BulkWrite] and none empty, and calls heard with the verdict on each, in their order, with
// Line counted from 1, while it sends. It returns the gateway's last word, with NextLine counted so, too.
//
// The gateways are asked in turn until one agrees; nothing is read from lines before that, and nothing is sent twice. It returns an error
// if none agrees, if heard does, or, with ErrOutcomeUnknown, if the stream breaks off: lines without a verdict may have been applied.
// Numbered writes can be sent again then; see [Pipeline], which does that. It has no time limit but ctx. Of lines it reads as fast as
// the gateway takes them; a Read that blocks may go on after Writes has returned: end it.
func (a *API) Writes(ctx context.Context, lines io.Reader, heard func(api.BulkVerdict) error) (api.BulkEnd, error) {
	s, err := a.client.openLines(ctx, "writes", lines.Read, nil)
	if err != nil {
		return api.BulkEnd{}, err
	}
	defer s.end()
	s.agree()
	return s.follow(heard)
}

// lineStream is one POST /v1/writes. It is the body of the request: the transport reads the lines from it as fast as they can be sent.
type lineStream struct {
	call     request
	at       gateway
	place    int
	cancel   context.CancelFunc
	response *http.Response
	verdicts *bufio.Scanner

	read    func([]byte) (int, error)
	onClose func()
	agreed  chan struct{} // closed when lines may be sent
	over    chan struct{} // closed with the stream
	once    sync.Once
	empty   atomic.Int64 // lines that were sent before agreed was closed
}

// openLines asks every gateway once for a stream, until one agrees. What read gives is sent after agree. onClose, if not nil, is called
// when nothing is read any more.
func (c *Client) openLines(ctx context.Context, op string, read func([]byte) (int, error), onClose func()) (*lineStream, error) {
	first := c.preferred.Load()
	var err error
	for i := range c.gateways {
		place := (int(first) + i) % len(c.gateways)
		var s *lineStream
		if s, err = c.dialLines(ctx, op, place, read, onClose); err == nil || !unserved(err) {
			c.prefer(first, place)
			return s, err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

func (c *Client) dialLines(ctx context.Context, op string, place int, read func([]byte) (int, error), onClose func()) (*lineStream, error) {
	life, cancel := context.WithCancel(ctx)
	s := &lineStream{
		call: request{
			op: op, method: http.MethodPost, path: "/v1/writes", repeat: repeatWrite, idempotent: true,
			header: http.Header{"Content-Type": {api.BulkContentType}, "Accept": {api.BulkContentType}},
		},
		at: c.gateways[place], place: place, cancel: cancel, read: read, onClose: onClose,
		agreed: make(chan struct{}), over: make(chan struct{}),
	}
	// Over HTTP/2 the transport hears of the end of its context only when the body has come to its own.
	context.AfterFunc(life, func() { _ = s.Close() })
	late := time.AfterFunc(c.answerTimeout, cancel)
	defer late.Stop()
	var sent dispatch
	httpRequest, err := c.build(sent.observe(life), s.call, s.at)
	if err != nil {
		cancel()
		return nil, err
	}
	httpRequest.Body, httpRequest.ContentLength, httpRequest.GetBody = s, -1, nil
	if s.response, err = c.http.Do(httpRequest); err != nil { //nolint:bodyclose // end closes it
		cancel()
		return nil, s.at.unanswered(s.call, api.OutcomeNotApplied, err) // no line was sent
	}
	mediaType, _, _ := mime.ParseMediaType(s.response.Header.Get("Content-Type"))
	if s.response.StatusCode != http.StatusOK || mediaType != api.BulkContentType {
		defer s.end()
		got, err := c.read(s.call, s.at, &sent, s.response)
		if err == nil {
			err = s.at.foreign(s.call, got, "no stream of verdicts")
		}
		return nil, err
	}
	s.verdicts = bufio.NewScanner(s.response.Body)
	s.verdicts.Buffer(make([]byte, 0, 16<<10), verdictBytesMax)
	return s, nil
}

// agree has the lines sent.
func (s *lineStream) agree() { close(s.agreed) }

// Read gives the transport what there is to send, and waits while there is nothing.
//
// Until the gateway has agreed it gives an empty line now and then, which the gateway counts and ignores: the transport finds out by writing
// only that the connection is dead, and returns from the request only when it is done with the body.
func (s *lineStream) Read(into []byte) (int, error) {
	select {
	case <-s.over:
		return 0, errStreamClosed
	case <-s.agreed:
		return s.read(into)
	case <-time.After(emptyLineEvery):
		s.empty.Add(1)
		return copy(into, "\n"), nil
	}
}

// Close is called by the transport when it reads no more, and by whoever ends the stream.
func (s *lineStream) Close() error {
	s.once.Do(func() {
		close(s.over)
		if s.onClose != nil {
			s.onClose()
		}
	})
	return nil
}

// end closes the stream for good.
func (s *lineStream) end() {
	s.cancel()
	_ = s.Close()
	_ = s.response.Body.Close()
}

// follow gives the verdicts to heard, until the gateway ends the stream or it breaks off.
func (s *lineStream) follow(heard func(api.BulkVerdict) error) (api.BulkEnd, error) {
	next := int64(1)
	for s.verdicts.Scan() {
		var line struct {
			api.BulkVerdict
			api.BulkEnd
		}
		if err := json.Unmarshal(s.verdicts.Bytes(), &line); err != nil {
			return api.BulkEnd{}, s.foreign("a verdict is not JSON: " + err.Error())
		}
		empty := s.empty.Load()
		if line.End != "" {
			line.NextLine = max(1, line.NextLine-empty) // before the first line that was taken, empty ones don't count
			if line.NextLine != next {
				return api.BulkEnd{}, s.foreign(fmt.Sprintf("it ended before line %d, after the verdict on line %d", line.NextLine, next-1))
			}
			return line.BulkEnd, nil
		}
		line.Line -= empty
		admitted := line.Version != nil && line.FencingToken != nil && line.Replayed != nil
		switch {
		case line.Line != next:
			return api.BulkEnd{}, s.foreign(fmt.Sprintf("the verdict on line %d came before that on line %d", line.Line, next))
		case line.Code == "" && !admitted:
			return api.BulkEnd{}, s.foreign("a verdict without version, fencing_token or replayed")
		}
		next++
		if err := heard(line.BulkVerdict); err != nil {
			return api.BulkEnd{}, err
		}
	}
	cause := s.verdicts.Err()
	if cause == nil {
		cause = io.ErrUnexpectedEOF
	}
	return api.BulkEnd{}, s.broken(cause)
}

// broken is the error of a stream that broke off.
func (s *lineStream) broken(cause error) error {
	return s.at.unanswered(s.call, api.OutcomeUnknown, cause)
}

func (s *lineStream) foreign(fault string) error {
	return &AnswerError{
		Op: s.call.op, URL: s.at.shown, Status: s.response.StatusCode, ContentType: api.BulkContentType, Fault: fault, Outcome: api.OutcomeUnknown,
	}
}
