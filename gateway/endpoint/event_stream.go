package endpoint

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// The reasons for which the gateway ends an event stream.
const (
	EndSlowReader  = "slow_reader"
	EndShutdown    = "shutdown"
	EndUnavailable = "unavailable"
	EndDismissed   = "unauthenticated" // the credential has ended
)

// EventSource makes the events of one stream.
type EventSource interface {
	// Begin sends the first event, if there is one.
	Begin(*EventStream) error
	// Wait returns when there is an event to send, or an error: of ctx, store.ErrSlowReader or store.ErrUnavailable.
	Wait(context.Context) error
	// Send sends it.
	Send(context.Context, *EventStream) error
	// Idle sends a sign of life after a while without events.
	Idle(*EventStream) error
	Close()
}

// StreamEvents answers with the events of a source, until the client leaves or the stream has to end.
func (s *Server) StreamEvents(w *Answer, r *http.Request, open func() (EventSource, error)) error {
	defer s.Streams.Add(-1)
	if s.Streams.Add(1) > ShareOf(s.WatchesMax, w.Principal, access.Observe) {
		return Busy("This gateway has as many event streams open as it may (--watches-max). " +
			"Try again, or another gateway.")
	}
	defer w.Caller.Streams.Leave()
	if err := s.Enter(&w.Caller.Streams, metrics.LimitStreams,
		"as many event streams open as one caller may (--caller-streams-max)"); err != nil {
		return err
	}
	s.Metrics.Streams.Inc()
	defer s.Metrics.Streams.Dec()
	source, err := open()
	if err != nil {
		return err
	}
	defer source.Close()
	ctx, cancel := s.Attended(r)
	defer cancel()

	stream, err := s.beginEvents(w)
	if err == nil {
		err = source.Begin(stream)
	}
	for err == nil {
		if err = s.awaitEvent(ctx, r, source, stream); err == nil {
			err = s.StillAccepted(r)
		}
		if err == nil {
			err = source.Send(ctx, stream)
		}
	}
	if reason := s.EndReason(ctx, err); reason != "" {
		// A client that misses it sees that the stream has ended.
		_ = stream.Send(nil, api.EventEnd, api.WatchEnd{Reason: reason})
	}
	return nil
}

// awaitEvent waits until the source has something to send, and keeps the stream alive meanwhile. So the gateway also
// notices a client that has left, or whose credential has ended.
func (s *Server) awaitEvent(ctx context.Context, r *http.Request, source EventSource, stream *EventStream) error {
	for {
		silent, cancel := context.WithTimeout(ctx, s.KeepAlive)
		err := source.Wait(silent)
		idle := errors.Is(err, context.DeadlineExceeded) && silent.Err() != nil && ctx.Err() == nil
		cancel()
		if idle {
			if err = s.StillAccepted(r); err == nil {
				err = source.Idle(stream)
			}
		}
		if err != nil || !idle {
			return err
		}
	}
}

// EndReason is the reason that the client receives for the end of its stream; "" if it has left.
func (s *Server) EndReason(ctx context.Context, err error) string {
	switch {
	case errors.Is(err, ErrClientGone):
		return ""
	case errors.Is(context.Cause(ctx), ErrDraining):
		return EndShutdown
	case CodeOf(context.Cause(ctx)) == api.CodeUnauthenticated:
		return EndDismissed
	case CodeOf(context.Cause(ctx)) == api.CodeUnavailable: // the keys of the token's issuer
		return EndUnavailable
	case ctx.Err() != nil:
		return ""
	case errors.Is(err, store.ErrSlowReader):
		return EndSlowReader
	case errors.Is(err, store.ErrUnavailable), CodeOf(err) == api.CodeUnavailable:
		return EndUnavailable
	case CodeOf(err) == api.CodeUnauthenticated:
		return EndDismissed
	}
	s.Logger.ErrorContext(ctx, "event stream failed", "error", err)
	return EndUnavailable
}

// EventStream writes server-sent events, as the HTML standard defines them, to one client.
type EventStream struct {
	writer  *Answer
	timeout time.Duration // for the client to take one event
}

// beginEvents begins an event stream: the client gets the header at once.
func (s *Server) beginEvents(w *Answer) (*EventStream, error) {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would buffer the events
	w.WriteHeader(http.StatusOK)
	stream := &EventStream{w, s.EventTimeout}
	err := stream.Write(nil)
	return stream, err
}

// Send writes an event. With an id, a client can resume after it.
func (s *EventStream) Send(id *int64, kind string, data any) error {
	return s.Write(EncodeEvent(id, kind, data))
}

// EncodeEvent returns the text of an event; id is nil where there is none.
func EncodeEvent(id *int64, kind string, data any) []byte {
	var text bytes.Buffer
	if id != nil {
		fmt.Fprintf(&text, "id: %d\n", *id)
	}
	fmt.Fprintf(&text, "event: %s\ndata: ", kind)
	EncodeJSON(&text, data) // one line: it escapes line breaks in strings and writes none elsewhere
	text.WriteByte('\n')
	return text.Bytes()
}

// Position sends the id from which a client can resume, without an event: a browser stores it and does not notify its
// page. It is a sign of life, too.
func (s *EventStream) Position(id int64) error { return s.Write(fmt.Appendf(nil, "id: %d\n\n", id)) }

// Comment sends a sign of life.
func (s *EventStream) Comment() error { return s.Write([]byte(":\n\n")) }

// Write sends text. It returns ErrClientGone if the client does not take it in time.
func (s *EventStream) Write(text []byte) error { return s.writer.Send(s.timeout, text) }

// Send writes and flushes text. It returns ErrClientGone if the client does not take it within the timeout.
func (w *Answer) Send(timeout time.Duration, text []byte) error {
	controller := http.NewResponseController(w)
	_ = controller.SetWriteDeadline(time.Now().Add(timeout)) // fails where the write does
	_, err := w.Write(text)
	if err == nil {
		err = controller.Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrClientGone, err)
	}
	// Over HTTP/2, a deadline that passes ends the stream even if nothing is being written.
	_ = controller.SetWriteDeadline(time.Time{})
	return nil
}

// LastEventID reads the event after which a client resumes; nil: it has seen none. A browser sends the parameter of its
// URL with every request and sets the header when it reconnects, so the header counts. The caller reads the other known
// parameters.
func LastEventID(r *http.Request, known ...string) (*int64, Parameters) {
	const header, parameter = "Last-Event-ID", "last_event_id"
	p := ReadParameters(r, append(known[:len(known):len(known)], parameter)...)
	fromURL := p.eventID(parameter, p.Values[parameter])
	fromHeader := p.eventID("The header "+header, r.Header.Values(header))
	return cmp.Or(fromHeader, fromURL), p
}

func (p *Parameters) eventID(field string, given []string) *int64 {
	if len(given) == 0 {
		return nil
	}
	id, err := strconv.ParseInt(given[0], 10, 64)
	if err != nil || len(given) > 1 || id < 0 || strconv.FormatInt(id, 10) != given[0] {
		p.Fail(Invalid("%s must be the id of an event that the gateway sent, a decimal integer.", field))
	}
	return &id
}

// Broadcast passes events to any number of subscribers. Its producer runs only while there are subscribers: it starts
// with the first and is stopped after the last. It ends a subscriber that does not keep up, so none delays another.
type Broadcast[E any] struct {
	// Produce publishes events until ctx ends, and returns an error if it can't go on.
	Produce func(ctx context.Context, to *Production[E]) error
	// Until ends when the gateway cuts off its work.
	Until context.Context
	// BehindMax is how many events a subscriber may be behind.
	BehindMax int
	// Replay sends the last event to a new subscriber.
	Replay bool

	mu      sync.Mutex
	current *Production[E] // nil: no subscribers
	running sync.WaitGroup
}

// Production is one run of the producer. Every publish reaches exactly the subscribers of its run.
type Production[E any] struct {
	of   *Broadcast[E]
	stop context.CancelFunc

	subscribers map[*Subscriber[E]]struct{} // guarded by of.mu, like last
	last        *E

	begun    chan struct{} // closed by the first advance
	ended    chan struct{} // closed when the producer has ended
	position atomic.Int64
}

// Subscriber receives the events of one run of the producer.
type Subscriber[E any] struct {
	from   *Production[E]
	events chan E // closed at the end, see reason
	reason error
}

// errCutOff ends the subscribers that are left when the gateway ends.
var errCutOff = store.NotApplied(ErrDraining)

// Ended returns a channel that is closed when the producer that runs now has ended; nil: none runs.
func (b *Broadcast[E]) Ended() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == nil {
		return nil
	}
	return b.current.ended
}

// Wait returns when the producer has ended.
func (b *Broadcast[E]) Wait() { b.running.Wait() }

// Subscribe starts the producer if it does not run.
func (b *Broadcast[E]) Subscribe() *Subscriber[E] {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.current
	if p == nil {
		ctx, cancel := context.WithCancel(b.Until)
		p = &Production[E]{
			of: b, stop: cancel, subscribers: map[*Subscriber[E]]struct{}{}, begun: make(chan struct{}),
			ended: make(chan struct{}),
		}
		b.current = p
		b.running.Go(func() {
			err := b.Produce(ctx, p)
			if ctx.Err() != nil {
				err = errCutOff
			}
			p.end(err)
		})
	}
	s := &Subscriber[E]{from: p, events: make(chan E, b.BehindMax)}
	if b.Replay && p.last != nil {
		s.events <- *p.last
	}
	p.subscribers[s] = struct{}{}
	return s
}

// Publish passes an event to every subscriber.
func (p *Production[E]) Publish(event E) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.of.Replay {
		p.last = &event
	}
	for s := range p.subscribers {
		select {
		case s.events <- event:
		default:
			s.endLocked(store.ErrSlowReader)
		}
	}
}

// Advance notes that all events up to the position were published. The first call lets AwaitBegin return.
func (p *Production[E]) Advance(position int64) {
	p.position.Store(position)
	select {
	case <-p.begun:
	default:
		close(p.begun)
	}
}

// end ends the run and its subscribers; the next subscriber starts another run.
func (p *Production[E]) end(reason error) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	for s := range p.subscribers {
		s.endLocked(reason)
	}
	p.stopLocked()
	close(p.ended)
}

func (p *Production[E]) stopLocked() {
	p.stop()
	if p.of.current == p {
		p.of.current = nil
	}
}

func (s *Subscriber[E]) endLocked(reason error) {
	delete(s.from.subscribers, s)
	s.reason = reason
	close(s.events)
}

// Leave ends the subscription, and the run if it was the last one.
func (s *Subscriber[E]) Leave() {
	s.from.of.mu.Lock()
	defer s.from.of.mu.Unlock()
	delete(s.from.subscribers, s)
	if len(s.from.subscribers) == 0 {
		s.from.stopLocked()
	}
}

// AwaitBegin waits until the producer has advanced for the first time. It returns store.ErrUnavailable if ctx ends
// before that, or the error of the producer.
func (s *Subscriber[E]) AwaitBegin(ctx context.Context) error {
	select {
	case <-s.from.begun:
		return nil
	case <-s.from.ended:
		return s.reason
	case <-ctx.Done():
		return store.NotApplied(fmt.Errorf("wait for the first events: %w", ctx.Err()))
	}
}

// Next waits for an event. It returns why the subscriber was ended, or why ctx has ended.
func (s *Subscriber[E]) Next(ctx context.Context) (E, error) {
	select {
	case event, ok := <-s.events:
		if !ok {
			return event, s.reason
		}
		return event, nil
	case <-ctx.Done():
		var none E
		return none, context.Cause(ctx)
	}
}

// Pending returns an event that waits, or else the position up to which the subscriber has received everything. The
// order matters: an event is published before the position advances past it.
func (s *Subscriber[E]) Pending() (event E, waits bool, position int64, err error) {
	position = s.from.position.Load()
	select {
	case event, waits = <-s.events:
		if !waits {
			err = s.reason
		}
	default:
	}
	return event, waits, position, err
}
