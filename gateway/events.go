package gateway

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// eventStream writes server-sent events, as the HTML standard describes them, to one client.
type eventStream struct {
	writer     http.ResponseWriter
	controller *http.ResponseController
	timeout    time.Duration // for one event to be taken by the client
}

// beginEvents answers with a stream of events, of which the client hears at once.
func (g *Gateway) beginEvents(w http.ResponseWriter) (*eventStream, error) {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would keep the events until it has enough of them
	w.WriteHeader(http.StatusOK)
	stream := &eventStream{w, http.NewResponseController(w), g.eventTimeout}
	err := stream.write(nil)
	return stream, err
}

// send writes an event; with an id, a client can go on after it.
func (s *eventStream) send(id *int64, kind string, data any) error {
	return s.write(encodeEvent(id, kind, data))
}

// encodeEvent is the text of an event; id is nil where there is none.
func encodeEvent(id *int64, kind string, data any) []byte {
	var text bytes.Buffer
	if id != nil {
		fmt.Fprintf(&text, "id: %d\n", *id)
	}
	fmt.Fprintf(&text, "event: %s\ndata: ", kind)
	encodeJSON(&text, data) // one line: it escapes line breaks in texts, and leaves out those between them
	text.WriteByte('\n')
	return text.Bytes()
}

// position says after what a client can go on, without an event: a browser keeps the id, and tells its page nothing. It shows, too, that the
// stream lives.
func (s *eventStream) position(id int64) error { return s.write(fmt.Appendf(nil, "id: %d\n\n", id)) }

// comment shows that the stream lives.
func (s *eventStream) comment() error { return s.write([]byte(":\n\n")) }

// write returns errClientGone if the client has not taken the text in time.
func (s *eventStream) write(text []byte) error {
	_ = s.controller.SetWriteDeadline(time.Now().Add(s.timeout)) // fails where the write does
	_, err := s.writer.Write(text)
	if err == nil {
		err = s.controller.Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	// Over HTTP/2 a deadline that passes ends the stream, even if there is nothing to be written.
	_ = s.controller.SetWriteDeadline(time.Time{})
	return nil
}

// lastEventID reads after which event a client wants to go on; nil: it has seen none. A browser can't set the header when it
// connects first, and repeats the parameter when it does set the header: so that counts. The other parameters that are known are read by the caller.
func lastEventID(r *http.Request, known ...string) (*int64, error) {
	const header, parameter = "Last-Event-ID", "last_event_id"
	values, err := query(r, append(known[:len(known):len(known)], parameter)...)
	if err != nil {
		return nil, err
	}
	fromURL, err := parseEventID(parameter, values[parameter])
	if err != nil {
		return nil, err
	}
	fromHeader, err := parseEventID("The header "+header, r.Header.Values(header))
	if err != nil || fromHeader != nil {
		return fromHeader, err
	}
	return fromURL, nil
}

func parseEventID(field string, given []string) (*int64, error) {
	if len(given) == 0 {
		return nil, nil //nolint:nilnil // nothing was given, and that is no error
	}
	id, err := strconv.ParseInt(given[0], 10, 64)
	if err != nil || len(given) > 1 || id < 0 || strconv.FormatInt(id, 10) != given[0] {
		return nil, invalid("%s must be the id of an event that the gateway sent, a decimal integer.", field)
	}
	return &id, nil
}
