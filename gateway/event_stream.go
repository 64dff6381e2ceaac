package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

// The reasons for which the gateway ends an event stream.
const (
	endSlowReader  = "slow_reader"
	endShutdown    = "shutdown"
	endUnavailable = "unavailable"
	endDismissed   = "unauthenticated" // the credential has ended
)

// eventSource makes the events of one stream.
type eventSource interface {
	// begin sends the first event, if there is one.
	begin(*eventStream) error
	// wait returns when there is something to send, or why there is nothing: ctx has ended, store.ErrSlowReader or
	// store.ErrUnavailable.
	wait(context.Context) error
	// send sends it.
	send(context.Context, *eventStream) error
	// idle shows, when there was nothing to send for a while, that the stream is alive.
	idle(*eventStream) error
	close()
}

// streamEvents answers with the events of a source, until the client leaves or the stream has to end.
func (g *Gateway) streamEvents(w *answerWriter, r *http.Request, open func() (eventSource, error)) error {
	defer g.streams.Add(-1)
	if g.streams.Add(1) > shareOf(g.config.WatchesMax, w.principal, access.Observe) {
		return busy("This gateway has as many event streams open as it may (--watches-max). " +
			"Try again, or another gateway.")
	}
	defer w.caller.Streams.Leave()
	if err := g.enter(&w.caller.Streams, metrics.LimitStreams,
		"as many event streams open as one caller may (--caller-streams-max)"); err != nil {
		return err
	}
	g.metrics.Streams.Inc()
	defer g.metrics.Streams.Dec()
	source, err := open()
	if err != nil {
		return err
	}
	defer source.close()
	ctx, cancel := g.attended(r)
	defer cancel()

	stream, err := g.beginEvents(w)
	if err == nil {
		err = source.begin(stream)
	}
	for err == nil {
		if err = g.awaitEvent(ctx, r, source, stream); err == nil {
			err = g.stillAccepted(r)
		}
		if err == nil {
			err = source.send(ctx, stream)
		}
	}
	if reason := g.endReason(ctx, err); reason != "" {
		// A client that misses it sees that the stream has ended.
		_ = stream.send(nil, api.EventEnd, api.WatchEnd{Reason: reason})
	}
	return nil
}

// awaitEvent waits until the source has something to send, and keeps the stream alive meanwhile. So the gateway also
// notices a client that has left, or whose credential has ended.
func (g *Gateway) awaitEvent(ctx context.Context, r *http.Request, source eventSource, stream *eventStream) error {
	for {
		silent, cancel := context.WithTimeout(ctx, g.config.KeepAlive)
		err := source.wait(silent)
		idle := errors.Is(err, context.DeadlineExceeded) && silent.Err() != nil && ctx.Err() == nil
		cancel()
		if idle {
			if err = g.stillAccepted(r); err == nil {
				err = source.idle(stream)
			}
		}
		if err != nil || !idle {
			return err
		}
	}
}

// endReason is the reason that the client gets for the end of its stream; "" if the client has left.
func (g *Gateway) endReason(ctx context.Context, err error) string {
	switch {
	case errors.Is(err, errClientGone):
		return ""
	case errors.Is(context.Cause(ctx), errDraining):
		return endShutdown
	case codeOf(context.Cause(ctx)) == api.CodeUnauthenticated:
		return endDismissed
	case codeOf(context.Cause(ctx)) == api.CodeUnavailable: // the keys of the token's issuer
		return endUnavailable
	case ctx.Err() != nil:
		return ""
	case errors.Is(err, store.ErrSlowReader):
		return endSlowReader
	case errors.Is(err, store.ErrUnavailable), codeOf(err) == api.CodeUnavailable:
		return endUnavailable
	case codeOf(err) == api.CodeUnauthenticated:
		return endDismissed
	}
	g.config.Logger.ErrorContext(ctx, "event stream failed", "error", err)
	return endUnavailable
}

// eventStream writes server-sent events, as the HTML standard defines them, to one client.
type eventStream struct {
	writer  *answerWriter
	timeout time.Duration // for the client to take one event
}

// beginEvents begins an event stream: the client gets the header at once.
func (g *Gateway) beginEvents(w *answerWriter) (*eventStream, error) {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would buffer the events
	w.WriteHeader(http.StatusOK)
	stream := &eventStream{w, g.eventTimeout}
	err := stream.write(nil)
	return stream, err
}

// send writes an event. With an id, a client can resume after it.
func (s *eventStream) send(id *int64, kind string, data any) error {
	return s.write(encodeEvent(id, kind, data))
}

// encodeEvent returns the text of an event; id is nil where there is none.
func encodeEvent(id *int64, kind string, data any) []byte {
	var text bytes.Buffer
	if id != nil {
		fmt.Fprintf(&text, "id: %d\n", *id)
	}
	fmt.Fprintf(&text, "event: %s\ndata: ", kind)
	encodeJSON(&text, data) // one line: it escapes line breaks in strings and writes none elsewhere
	text.WriteByte('\n')
	return text.Bytes()
}

// position sends the id from which a client can resume, without an event: a browser keeps it and does not notify its
// page. It also shows that the stream is alive.
func (s *eventStream) position(id int64) error { return s.write(fmt.Appendf(nil, "id: %d\n\n", id)) }

// comment shows that the stream is alive.
func (s *eventStream) comment() error { return s.write([]byte(":\n\n")) }

// write returns errClientGone if the client has not taken the text in time.
func (s *eventStream) write(text []byte) error { return s.writer.send(s.timeout, text) }

// send writes and flushes text. It returns errClientGone if the client has not taken it within the timeout.
func (w *answerWriter) send(timeout time.Duration, text []byte) error {
	controller := http.NewResponseController(w)
	_ = controller.SetWriteDeadline(time.Now().Add(timeout)) // fails where the write does
	_, err := w.Write(text)
	if err == nil {
		err = controller.Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	// Over HTTP/2, a deadline that passes ends the stream even if nothing is being written.
	_ = controller.SetWriteDeadline(time.Time{})
	return nil
}

// lastEventID reads the event after which a client resumes; nil: it has seen none. A browser sends the parameter of its
// URL with every request and sets the header when it reconnects, so the header counts. The caller reads the other known
// parameters.
func lastEventID(r *http.Request, known ...string) (*int64, parameters) {
	const header, parameter = "Last-Event-ID", "last_event_id"
	p := readParameters(r, append(known[:len(known):len(known)], parameter)...)
	fromURL := p.eventID(parameter, p.Values[parameter])
	fromHeader := p.eventID("The header "+header, r.Header.Values(header))
	return cmp.Or(fromHeader, fromURL), p
}

func (p *parameters) eventID(field string, given []string) *int64 {
	if len(given) == 0 {
		return nil
	}
	id, err := strconv.ParseInt(given[0], 10, 64)
	if err != nil || len(given) > 1 || id < 0 || strconv.FormatInt(id, 10) != given[0] {
		p.fail(invalid("%s must be the id of an event that the gateway sent, a decimal integer.", field))
	}
	return &id
}
