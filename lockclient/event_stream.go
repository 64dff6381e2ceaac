package lockclient

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

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

	lastID string
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
func (c *Client) openEvents(ctx context.Context, call request, lastID string) (*eventStream, error) {
	if err := c.background.open(); err != nil {
		return nil, err
	}
	if call.err != nil {
		return nil, call.err
	}
	s := &eventStream{client: c, reading: make(chan struct{}, 1), lastID: lastID, call: call}
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
	if s.lastID != "" {
		call.header.Set("Last-Event-ID", s.lastID)
	}
	response, err := s.client.open(life, cancel, call, at) //nolint:bodyclose // connection.close closes it
	if err != nil {
		cancel()
		return nil, err
	}
	open := &connection{response: response, cancel: cancel, silence: time.AfterFunc(silenceMax, cancel)}
	open.events = newEventReader(open)
	open.events.id, open.events.last = s.lastID, s.lastID
	return open, nil
}

// foreign makes the error of an event that fencegate does not send.
func (s *eventStream) foreign(fault error) error {
	at := s.client.gateways[s.client.preferred.Load()]
	got := answer{status: http.StatusOK, header: http.Header{"Content-Type": {streamType}}}
	return at.foreign(s.call, got, "an event can't be read: "+fault.Error())
}
