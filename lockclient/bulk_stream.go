package lockclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	// verdictBytesMax bounds a line of an answer. A transaction may return 8 MiB of rows.
	verdictBytesMax = 16 << 20
	// emptyLineEvery is the time between two empty lines on a connection that the gateway has not accepted yet.
	emptyLineEvery = 100 * time.Millisecond
)

var errStreamClosed = errors.New("the stream is closed")

// bulkStream is one POST /v1/writes. It is the body of the request: the transport reads the lines from it as fast as it
// can send them.
type bulkStream struct {
	call     request
	at       gateway
	index    int // of the gateway
	cancel   context.CancelFunc
	response *http.Response
	verdicts *bufio.Scanner

	read    func([]byte) (int, error)
	onClose func()
	started chan struct{} // closed when lines may be sent
	ended   chan struct{} // closed with the stream
	once    sync.Once
	empty   atomic.Int64 // lines that were sent before started was closed
}

// openBulk asks every gateway once for a stream, until one accepts it. After start, it sends the bytes that read
// returns. onClose, if not nil, is called when read is not called any more.
func (c *Client) openBulk(
	ctx context.Context, op string, read func([]byte) (int, error), onClose func(),
) (*bulkStream, error) {
	var s *bulkStream
	err := c.inTurn(ctx, func(index int) (err error) {
		s, err = c.dialBulk(ctx, op, index, read, onClose)
		return err
	})
	return s, endedWith(ctx, err, nil)
}

func (c *Client) dialBulk(
	ctx context.Context, op string, index int, read func([]byte) (int, error), onClose func(),
) (*bulkStream, error) {
	life, cancel := context.WithCancel(ctx)
	s := &bulkStream{
		at: c.gateways[index], index: index, cancel: cancel, read: read, onClose: onClose,
		started: make(chan struct{}), ended: make(chan struct{}),
	}
	s.call = request{
		op: op, method: http.MethodPost, path: "/v1/writes", stream: s, repeat: repeatWrite, idempotent: true,
		header: http.Header{"Content-Type": {api.BulkContentType}, "Accept": {api.BulkContentType}},
	}
	// Over HTTP/2 the transport notices the end of its context only when the body has ended.
	context.AfterFunc(life, func() { _ = s.Close() })
	var err error
	if s.response, err = c.open(life, cancel, s.call, s.at); err != nil { //nolint:bodyclose // end closes it
		cancel()
		return nil, err
	}
	s.verdicts = bufio.NewScanner(s.response.Body)
	s.verdicts.Buffer(make([]byte, 0, 16<<10), verdictBytesMax)
	return s, nil
}

// start begins to send the lines.
func (s *bulkStream) start() { close(s.started) }

// Read returns the bytes to send to the transport, and waits while there are none.
//
// Until the gateway has accepted the stream, it returns an empty line now and then, which the gateway counts and
// ignores. The transport notices a dead connection only by writing, and returns from the request only after the body.
func (s *bulkStream) Read(into []byte) (int, error) {
	select {
	case <-s.ended:
		return 0, errStreamClosed
	case <-s.started:
		return s.read(into)
	case <-time.After(emptyLineEvery):
		s.empty.Add(1)
		return copy(into, "\n"), nil
	}
}

// Close ends the body. The transport calls it after its last read; ending the stream calls it, too.
func (s *bulkStream) Close() error {
	s.once.Do(func() {
		close(s.ended)
		if s.onClose != nil {
			s.onClose()
		}
	})
	return nil
}

// end closes the stream.
func (s *bulkStream) end() {
	s.cancel()
	_ = s.Close()
	_ = s.response.Body.Close()
}

// follow calls taken with each verdict, until the gateway ends the stream or it breaks.
func (s *bulkStream) follow(taken func(api.BulkVerdict) error) (api.BulkEnd, error) {
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
			line.NextLine = max(1, line.NextLine-empty) // empty lines come first, and don't count
			if line.NextLine != next {
				return api.BulkEnd{}, s.foreign(fmt.Sprintf("it ended before line %d, after the verdict on line %d",
					line.NextLine, next-1))
			}
			return line.BulkEnd, nil
		}
		line.Line -= empty
		admitted := (line.Version != nil && line.FencingToken != nil || line.Results != nil) && line.Replayed != nil
		switch {
		case line.Line != next:
			return api.BulkEnd{}, s.foreign(fmt.Sprintf("the verdict on line %d came before that on line %d", line.Line, next))
		case line.Code == "" && !admitted:
			return api.BulkEnd{}, s.foreign("a verdict without version, fencing_token or replayed")
		}
		next++
		if err := taken(line.BulkVerdict); err != nil {
			return api.BulkEnd{}, err
		}
	}
	cause := s.verdicts.Err()
	if cause == nil {
		cause = io.ErrUnexpectedEOF
	}
	return api.BulkEnd{}, s.broken(cause)
}

// broken returns the error of a stream that broke.
func (s *bulkStream) broken(cause error) error {
	return s.at.noAnswer(s.call, api.OutcomeUnknown, cause)
}

func (s *bulkStream) foreign(fault string) error {
	return s.at.foreign(s.call, answer{status: s.response.StatusCode, header: s.response.Header}, fault)
}
