package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

const (
	bulkBufferBytes = 64 << 10
	// bulkFrameBytes is what a line may have beside its value: names, numbers and JSON.
	bulkFrameBytes = 16 << 10
)

var (
	errLineTooLong = errors.New("the line is too long")
	errBodyTimeout = errors.New("the line did not arrive in time, or there was no room for it")
)

// bulkInput reads lines.
type bulkInput struct {
	body     io.Reader
	deadline *deadlines
	share    *bodyShare    // of what the buffer has grown by
	timeout  time.Duration // for a line to arrive
	valueMax int64
	lineMax  int
	number   int64 // of the line that next has returned, from 1

	buffer     []byte
	start, end int // what was read and not returned yet
}

func newBulkInput(body io.Reader, config Config, deadline *deadlines) *bulkInput {
	// Every value that fits may be sent as base64, which has 4 bytes for 3.
	lineMax := (int(config.BodyBytesMax)+2)/3*4 + bulkFrameBytes
	return &bulkInput{
		body: body, deadline: deadline, timeout: config.BodyTimeout, valueMax: config.BodyBytesMax, lineMax: lineMax,
		buffer: make([]byte, min(bulkBufferBytes, lineMax+1)),
	}
}

func (in *bulkInput) tooLong() *api.Problem {
	return problem(http.StatusRequestEntityTooLarge, api.CodeTooLarge, "The line is over the limit of "+strconv.Itoa(in.lineMax)+
		" bytes, for values of "+strconv.FormatInt(in.valueMax, 10)+" bytes (--body-bytes-max).")
}

// next returns the next line that is not blank, without its end, valid until the next call. The last line of the body needs no line
// feed. It returns io.EOF at the body's end, errLineTooLong for a line that it has skipped, errBodyTimeout if a line does
// not arrive in time, or what broke the body off: a line that was cut is no line.
func (in *bulkInput) next() ([]byte, error) {
	for {
		line, err := in.line()
		in.share.arrived()
		if err != nil {
			return nil, err
		}
		in.number++
		if line = bytes.Trim(line, " \t\r"); len(line) > 0 {
			return line, nil
		}
	}
}

func (in *bulkInput) line() ([]byte, error) {
	in.shrink()
	in.deadline.begin(in.timeout)
	searched := 0
	for {
		if at := bytes.IndexByte(in.buffer[in.start+searched:in.end], '\n'); at >= 0 {
			line := in.buffer[in.start : in.start+searched+at]
			in.start += searched + at + 1
			return in.limited(line)
		}
		searched = in.end - in.start
		if searched > in.lineMax {
			return nil, in.skip()
		}
		err := in.fill()
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && in.end > in.start:
			line := in.buffer[in.start:in.end]
			in.start = in.end
			return in.limited(line)
		default:
			return nil, err
		}
	}
}

func (in *bulkInput) limited(line []byte) ([]byte, error) {
	if len(line) > in.lineMax {
		in.number++
		return nil, errLineTooLong
	}
	return line, nil
}

// skip drops a line that is too long, without keeping it.
func (in *bulkInput) skip() error {
	for {
		in.start, in.end = 0, 0
		err := in.fill()
		if at := bytes.IndexByte(in.buffer[:in.end], '\n'); at >= 0 {
			in.start = at + 1
			break
		}
		if errors.Is(err, io.EOF) {
			in.start = in.end
			break
		}
		if err != nil {
			return err
		}
	}
	in.number++
	return errLineTooLong
}

// fill reads more, into a buffer that grows with the line, up to the limit.
func (in *bulkInput) fill() error {
	if in.start > 0 && in.end == len(in.buffer) {
		in.end = copy(in.buffer, in.buffer[in.start:in.end])
		in.start = 0
	}
	if in.end == len(in.buffer) {
		room := min(2*len(in.buffer), in.lineMax+1)
		if !in.share.grow(room - len(in.buffer)) {
			return errBodyTimeout
		}
		grown := make([]byte, room)
		copy(grown, in.buffer)
		in.buffer = grown
	}
	in.deadline.arm()
	n, err := in.body.Read(in.buffer[in.end:])
	in.end += n
	switch {
	case n > 0:
		return nil // an error comes again
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errBodyTimeout
	}
	return err
}

// shrink gives a large buffer back when its line is done with.
func (in *bulkInput) shrink() {
	if len(in.buffer) <= bulkBufferBytes || in.end-in.start > bulkBufferBytes/2 {
		return
	}
	in.share.shrink(len(in.buffer) - bulkBufferBytes)
	small := make([]byte, bulkBufferBytes)
	in.end = copy(small, in.buffer[in.start:in.end])
	in.start, in.buffer = 0, small
}

// deadlines sets until when the body may be read. The deadline of a connection can't be read back, and whoever ends the stream sets it
// from another goroutine: so it is set here alone.
type deadlines struct {
	controller *http.ResponseController

	mu    sync.Mutex
	until time.Time // for the line that is read now
	set   time.Time // as the connection has it; zero: none
	ended bool
}

// begin gives a new line its time.
func (d *deadlines) begin(timeout time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = time.Now().Add(timeout)
}

// arm has the next read obey the deadline.
func (d *deadlines) arm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended && !d.set.Equal(d.until) {
		d.set = d.until
		_ = d.controller.SetReadDeadline(d.set) // fails where the read does
	}
}

// disarm lets a deadline pass while nothing is read: over HTTP/2 that would end the body.
func (d *deadlines) disarm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended && !d.set.IsZero() {
		d.set = time.Time{}
		_ = d.controller.SetReadDeadline(time.Time{})
	}
}

// end leaves the reader this long, whatever it does.
func (d *deadlines) end(linger time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	_ = d.controller.SetReadDeadline(time.Now().Add(linger))
}
