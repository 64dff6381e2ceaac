package lockclient

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

// eventBytesMax bounds one event, and so each line of it.
const eventBytesMax = 4 << 20

var errEventTooLarge = errors.New("an event is over 4 MiB")

// serverEvent is one event of a text/event-stream.
type serverEvent struct {
	// id is the last id that was sent, with this event or before it.
	id   string
	kind string
	data []byte
}

// eventReader reads server-sent events as gateways send them: with lines that end in LF, and no byte order mark.
type eventReader struct {
	lines *bufio.Scanner
	// id is that of the event that is being read, last that of the newest that was whole.
	id, last string
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
			r.last = r.id
			if some {
				return serverEvent{id: r.id, kind: kind, data: data}, nil
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
		case "id":
			if !strings.Contains(value, "\x00") {
				r.id = value
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
