package lockclient

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

const (
	// silenceMax is after how long without a byte a connection is given up: a gateway sends a comment every 15 seconds.
	silenceMax = 45 * time.Second
	// streamType is the media type of server-sent events.
	streamType = "text/event-stream"
)

// reconnection is how a stream that was cut is opened again.
var reconnection = RetryPolicy{Base: 100 * time.Millisecond, Max: 5 * time.Second}

// stream is server-sent events that go on across connections and gateways. It has no goroutine of its own: who calls
// next reads.
type eventStream struct {
	client *Client
	call   request

	// ctx is the stream's life: the caller's, the client's, and until it is closed.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// reading is held by who reads.
	reading chan struct{}

	lastID string
	failed int
	retry  time.Duration
	// open is the connection, nil where there is none.
	open *connection
}

// connection is one answer that is being read.
type connection struct {
	response *http.Response
	events   *eventReader
	silence  *time.Timer
	cancel   context.CancelFunc
}

// Read is the body; each byte shows that the gateway lives.
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

// openStream connects, asking every gateway once.
func (c *Client) openStream(ctx context.Context, op, path, lastID string) (*eventStream, error) {
	if err := c.background.open(); err != nil {
		return nil, err
	}
	s := &eventStream{
		client: c, reading: make(chan struct{}, 1), lastID: lastID,
		call: request{op: op, method: http.MethodGet, path: path},
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	unhook := context.AfterFunc(c.background.ctx, func() { s.cancel(ErrClosed) })
	context.AfterFunc(s.ctx, func() { unhook() })
	if err := s.connect(ctx); err != nil {
		s.cancel(ErrClosed)
		return nil, err
	}
	return s, nil
}

// close ends the stream and whoever reads it.
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

// next returns the next event, connecting again as often as it takes. It returns ctx's error if ctx ends, the cause
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

// ended says why there is nothing to be read any more. The client is asked by itself: its end reaches s.ctx a moment
// late, and what was read from a closed client would depend on that moment.
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

// read waits for one event. The end of ctx cuts the connection, since nothing else ends a read.
func (s *eventStream) read(ctx context.Context) (serverEvent, error) {
	open := s.open
	defer context.AfterFunc(ctx, open.cancel)()
	event, err := open.events.next()
	s.lastID, s.retry = open.events.last, open.events.retry
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
	c := s.client
	first := c.preferred.Load()
	var err error
	for i := range c.gateways {
		place := (int(first) + i) % len(c.gateways)
		if s.open, err = s.dial(ctx, c.gateways[place]); err == nil || !notServed(err) {
			c.prefer(first, place)
			return err
		}
		if s.ended(ctx) != nil {
			return err
		}
	}
	return err
}

// dial asks one gateway, and returns when the head of its answer is there.
func (s *eventStream) dial(ctx context.Context, at gateway) (*connection, error) {
	life, cancel := context.WithCancel(s.ctx)
	defer context.AfterFunc(ctx, cancel)()
	late := time.AfterFunc(s.client.answerTimeout, cancel)
	defer late.Stop()
	call := s.call
	call.header = http.Header{"Accept": {streamType}}
	if s.lastID != "" {
		call.header.Set("Last-Event-ID", s.lastID)
	}
	var sent dispatch
	response, err := s.client.dispatch(life, call, at, &sent)
	if err != nil {
		cancel()
		return nil, err
	}
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK || mediaType != streamType {
		defer cancel()
		defer func() { _ = response.Body.Close() }()
		got, err := s.client.read(call, at, &sent, response)
		if err == nil {
			err = at.foreign(call, got, "no stream of events")
		}
		return nil, err
	}
	open := &connection{response: response, cancel: cancel, silence: time.AfterFunc(silenceMax, cancel)}
	open.events = newEventReader(open)
	open.events.id, open.events.last = s.lastID, s.lastID
	return open, nil
}

// foreign is the error of an event that fencegate does not send.
func (s *eventStream) foreign(fault error) error {
	return &AnswerError{
		Op: s.call.op, URL: s.client.gateways[s.client.preferred.Load()].shown, Status: http.StatusOK, ContentType: streamType,
		Fault: "an event can't be read: " + fault.Error(), Outcome: api.OutcomeNotApplied,
	}
}
