package lockclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// Watch reads the states of a lock. If its connection is cut it connects again, to another gateway if need be, and
// returns the state of that moment. It is for one reader at a time.
//
// A watch is for people and for caches. Don't base a decision on it that no fence guards: a state may be out of date when
// it arrives.
type Watch struct{ stream *eventStream }

// Watch begins to watch a lock. Next returns its state, and again whenever that has changed; a renewal of a lease is no
// change. Of changes that follow each other quickly it may return the last state only. The watch lasts until Close, or
// until ctx or the client ends. Watch returns ErrUnavailable if no gateway could serve, and ErrClosed if the client is
// closed.
//
// To observe the leader of an election, watch its lock: the holder leads.
func (c *Client) Watch(ctx context.Context, lock string) (*Watch, error) {
	stream, err := c.openEvents(ctx, nameCall("watch", http.MethodGet, "/v1/locks/", lock, "/watch"))
	if err != nil {
		return nil, err
	}
	return &Watch{stream}, nil
}

// Next waits for the next state. If its ctx ends first it returns ctx's error, and can be called again. If the watch
// has ended it returns ErrClosed, or the error of the ctx that the watch began with. It returns the gateway's refusal
// if the watch is not allowed any more.
func (w *Watch) Next(ctx context.Context) (state api.WatchState, err error) {
	for {
		got, err := w.stream.next(ctx)
		if err != nil {
			return state, err
		}
		if got.kind != api.EventState {
			continue // of a newer gateway
		}
		if err := json.Unmarshal(got.data, &state); err != nil {
			return state, w.stream.foreign(err)
		}
		return state, nil
	}
}

// All returns the results of Next until ctx or the watch ends, or the loop is left. An error is its last element.
func (w *Watch) All(ctx context.Context) iter.Seq2[api.WatchState, error] {
	return func(yield func(api.WatchState, error) bool) {
		for {
			state, err := w.Next(ctx)
			if !yield(state, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the watch, and a Next that waits. It may be called again.
func (w *Watch) Close() { w.stream.close() }

const (
	// silenceMax is the time without a byte after which a connection is closed: a gateway sends a comment every 15
	// seconds.
	silenceMax = 45 * time.Second
	// streamType is the media type of server-sent events.
	streamType = "text/event-stream"
)

// reconnection is the policy for opening a stream again.
var reconnection = RetryPolicy{Base: 100 * time.Millisecond, Max: 5 * time.Second}

// eventStream reads server-sent events across connections and gateways. It has no goroutine of its own: next reads.
type eventStream struct {
	client *Client
	call   request

	// ctx ends with the caller's ctx, with the client, and by close.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// reading lets one reader read at a time.
	reading chan struct{}

	failed int
	retry  time.Duration
	// open is the connection, nil if there is none.
	open *connection
}

// connection is one answer that is being read.
type connection struct {
	response *http.Response
	events   *eventReader
	silence  *time.Timer
	cancel   context.CancelFunc
}

// Read reads the body. Each byte shows that the gateway is alive.
func (c *connection) Read(into []byte) (int, error) {
	n, err := c.response.Body.Read(into)
	c.silence.Reset(silenceMax)
	return n, err
}

func (c *connection) close() {
	c.silence.Stop()
	c.cancel()
	_ = c.response.Body.Close()
}

// openEvents connects. It asks every gateway once.
func (c *Client) openEvents(ctx context.Context, call request) (*eventStream, error) {
	if err := c.background.open(); err != nil {
		return nil, err
	}
	if call.err != nil {
		return nil, call.err
	}
	s := &eventStream{client: c, reading: make(chan struct{}, 1), call: call}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	unhook := context.AfterFunc(c.background.ctx, func() { s.cancel(ErrClosed) })
	context.AfterFunc(s.ctx, func() { unhook() })
	if err := s.connect(ctx); err != nil {
		s.cancel(ErrClosed)
		return nil, endedWith(ctx, err, nil)
	}
	return s, nil
}

// close ends the stream, and a next that waits.
func (s *eventStream) close() {
	s.cancel(ErrClosed)
	s.reading <- struct{}{}
	defer endTurn(s.reading)
	s.drop()
}

func (s *eventStream) drop() {
	if s.open != nil {
		s.open.close()
		s.open = nil
	}
}

// next returns the next event, and connects again as often as needed. It returns ctx's error if ctx ends, the cause
// of the stream's end if that has ended, and *Error or *AnswerError if a gateway refuses it for good.
func (s *eventStream) next(ctx context.Context) (serverEvent, error) {
	select {
	case s.reading <- struct{}{}:
		defer endTurn(s.reading)
	case <-ctx.Done():
		return serverEvent{}, ctx.Err()
	}
	for {
		if err := s.ended(ctx); err != nil {
			return serverEvent{}, err
		}
		if s.open == nil {
			if err := s.reconnect(ctx); err != nil {
				return serverEvent{}, err
			}
		}
		event, err := s.read(ctx)
		switch {
		case err != nil:
			s.drop()
			if errors.Is(err, errEventTooLarge) {
				return serverEvent{}, s.foreign(err)
			}
		case event.kind == api.EventEnd:
			s.drop()
		default:
			s.failed = 0
			return event, nil
		}
	}
}

// ended returns the error of a stream that has ended. It checks the client, too: the client's end reaches s.ctx a
// moment late, and the result of a read from a closed client would depend on that moment.
func (s *eventStream) ended(ctx context.Context) error {
	if err := s.client.background.open(); err != nil {
		s.drop()
		return err
	}
	if s.ctx.Err() != nil {
		s.drop()
		return context.Cause(s.ctx)
	}
	return ctx.Err()
}

// read waits for one event. The end of ctx closes the connection, since nothing else ends a read.
func (s *eventStream) read(ctx context.Context) (serverEvent, error) {
	open := s.open
	defer context.AfterFunc(ctx, open.cancel)()
	event, err := open.events.next()
	s.retry = open.events.retry
	return event, err
}

// reconnect tries until a gateway answers.
func (s *eventStream) reconnect(ctx context.Context) error {
	var failed error
	for {
		s.failed++
		pause := s.pause()
		if failed != nil {
			s.client.retries.report(ctx, Retry{Err: failed, Attempt: s.failed, Pause: pause})
		}
		if sleep(ctx, pause) != nil {
			return ctx.Err()
		}
		if err := s.ended(ctx); err != nil {
			return err
		}
		if failed = s.connect(ctx); failed == nil || !retryable(failed) {
			return failed
		}
	}
}

func (s *eventStream) pause() time.Duration {
	return reconnection.withDefaults().pause(s.failed, s.retry, jitter())
}

// connect asks every gateway once.
func (s *eventStream) connect(ctx context.Context) error {
	return s.client.inTurn(ctx, func(index int) (err error) {
		s.open, err = s.dial(ctx, s.client.gateways[index])
		return err
	})
}

// dial asks one gateway, and returns when the head of its answer has arrived.
func (s *eventStream) dial(ctx context.Context, at gateway) (*connection, error) {
	life, cancel := context.WithCancel(s.ctx)
	defer context.AfterFunc(ctx, cancel)()
	call := s.call
	call.header = http.Header{"Accept": {streamType}}
	response, err := s.client.open(life, cancel, call, at) //nolint:bodyclose // connection.close closes it
	if err != nil {
		cancel()
		return nil, err
	}
	open := &connection{response: response, cancel: cancel, silence: time.AfterFunc(silenceMax, cancel)}
	open.events = newEventReader(open)
	return open, nil
}

// foreign makes the error of an event that fencegate does not send.
func (s *eventStream) foreign(fault error) error {
	at := s.client.gateways[s.client.preferred.Load()]
	got := answer{status: http.StatusOK, header: http.Header{"Content-Type": {streamType}}}
	return at.foreign(s.call, got, "an event can't be read: "+fault.Error())
}

// eventBytesMax bounds one event, and so each line of it.
const eventBytesMax = 4 << 20

var errEventTooLarge = errors.New("an event is over 4 MiB")

// serverEvent is one event of a text/event-stream.
type serverEvent struct {
	kind string
	data []byte
}

// eventReader reads server-sent events as gateways send them: with lines that end in LF, and no byte order mark.
type eventReader struct {
	lines *bufio.Scanner
	// retry is the pause that the server asks for before the next connection; 0: none.
	retry time.Duration
}

func newEventReader(stream io.Reader) *eventReader {
	r := &eventReader{lines: bufio.NewScanner(stream)}
	r.lines.Buffer(nil, eventBytesMax)
	return r
}

// next returns the next event that has data. It drops an event that is cut off at the end of the stream, and returns
// io.EOF.
func (r *eventReader) next() (serverEvent, error) {
	kind, data, some := "", []byte(nil), false
	for r.lines.Scan() {
		line := r.lines.Text()
		if line == "" {
			if some {
				return serverEvent{kind: kind, data: data}, nil
			}
			kind = ""
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			kind = value
		case "data":
			if some {
				data = append(data, '\n')
			}
			data, some = append(data, value...), true
			if len(data) > eventBytesMax {
				return serverEvent{}, errEventTooLarge
			}
		case "retry":
			if ms, err := strconv.ParseUint(value, 10, 31); err == nil {
				r.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
	if err := r.lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return serverEvent{}, errEventTooLarge
		}
		return serverEvent{}, err
	}
	return serverEvent{}, io.EOF
}
