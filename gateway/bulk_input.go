package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

const (
	bulkBufferBytes = 64 << 10
	// bulkFrameBytes is what a line may have around its value: names, numbers and JSON.
	bulkFrameBytes = 16 << 10
)

var (
	errLineTooLong = errors.New("the line is too long")
	errBodyTimeout = errors.New("the line did not arrive in time, or there was no room for it")
)

// bulkInput reads the lines of a bulk stream.
type bulkInput struct {
	body     io.Reader
	deadline *bulkDeadline
	share    *bodyShare    // of the growth of the buffer
	timeout  time.Duration // for a line to arrive
	valueMax int64
	lineMax  int
	number   int64 // of the line that next returned, from 1

	buffer     []byte
	start, end int // the bytes that were read and not returned yet
}

func newBulkInput(body io.Reader, config Config, deadline *bulkDeadline) *bulkInput {
	// A value of the greatest size may be sent as base64, which has 4 bytes for 3.
	lineMax := (int(config.BodyBytesMax)+2)/3*4 + bulkFrameBytes
	return &bulkInput{
		body: body, deadline: deadline, timeout: config.BodyTimeout, valueMax: config.BodyBytesMax,
		lineMax: lineMax, buffer: make([]byte, min(bulkBufferBytes, lineMax+1)),
	}
}

func (in *bulkInput) tooLong() *api.Problem {
	return problem(http.StatusRequestEntityTooLarge, api.CodeTooLarge,
		"The line is over the limit of "+strconv.Itoa(in.lineMax)+" bytes, for values of "+
			strconv.FormatInt(in.valueMax, 10)+" bytes (--body-bytes-max).")
}

// next returns the next line that is not blank, without its line feed, which the last line of the body does not need.
// The line is valid until the next call. It returns io.EOF at the body's end, errLineTooLong for a line that it has
// skipped, errBodyTimeout if a line does not arrive in time, or the error that broke the body off. A line that was cut
// is never returned.
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

// skip drops a line that is too long.
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

// fill reads more into the buffer, which grows with the line up to the limit.
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
	if errors.Is(err, io.EOF) {
		in.deadline.bodyEnded() // even if there are lines left: they may take longer than the deadline
	}
	switch {
	case n > 0:
		return nil // the next read returns the error again
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errBodyTimeout
	}
	return err
}

// shrink frees a large buffer after its line.
func (in *bulkInput) shrink() {
	if len(in.buffer) <= bulkBufferBytes || in.end-in.start > bulkBufferBytes/2 {
		return
	}
	in.share.shrink(len(in.buffer) - bulkBufferBytes)
	small := make([]byte, bulkBufferBytes)
	in.end = copy(small, in.buffer[in.start:in.end])
	in.start, in.buffer = 0, small
}
