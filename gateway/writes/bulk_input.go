package writes

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	// BulkBufferBytes is the size of the buffer of the input.
	BulkBufferBytes = 64 << 10
	// bulkFrameBytes bounds the part of a line around its value: names, numbers and JSON.
	bulkFrameBytes = 16 << 10
)

var (
	errLineTooLong = errors.New("the line is too long")
	errBodyTimeout = errors.New("the line did not arrive in time, or there was no room for it")
)

// bulkInput reads the lines of a bulk stream.
type bulkInput struct {
	body     io.Reader
	arrival  func() // is called after each read of the body
	deadline *bulkDeadline
	share    *endpoint.BodyShare // of long
	timeout  time.Duration       // for a line to arrive
	valueMax int64
	lineMax  int
	number   int64 // of the line that next returned, from 1

	lines *bufio.Reader // of the input itself, see Read
	long  []byte        // a line that is longer than the buffer of lines
}

func newBulkInput(body io.Reader, config *endpoint.Config, deadline *bulkDeadline) *bulkInput {
	in := &bulkInput{
		body: body, deadline: deadline, timeout: config.BodyTimeout, valueMax: config.BodyBytesMax,
		// A value of the greatest size may be sent as base64, which has 4 bytes for 3.
		lineMax: (int(config.BodyBytesMax)+2)/3*4 + bulkFrameBytes,
	}
	in.lines = bufio.NewReaderSize(in, min(BulkBufferBytes, in.lineMax+1))
	return in
}

func (in *bulkInput) tooLong() *api.Problem {
	return endpoint.Problem(http.StatusRequestEntityTooLarge, api.CodeTooLarge,
		"The line is over the limit of "+strconv.Itoa(in.lineMax)+" bytes, for values of "+
			strconv.FormatInt(in.valueMax, 10)+" bytes (--body-bytes-max).")
}

// next returns the next line that is not blank, without its line feed, which is optional in the last line. The line is
// valid until the next call. It returns io.EOF at the body's end, errLineTooLong for a line that it has skipped,
// errBodyTimeout if a line does not arrive in time, or the error that broke the body off. A line that was cut is never
// returned.
func (in *bulkInput) next() ([]byte, error) {
	for {
		line, err := in.line()
		in.share.Arrived()
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
	if in.long != nil {
		in.share.Shrink(cap(in.long))
		in.long = nil
	}
	in.deadline.begin(in.timeout)
	for length := 0; ; {
		part, err := in.lines.ReadSlice('\n')
		part = bytes.TrimSuffix(part, []byte("\n"))
		length += len(part)
		more := errors.Is(err, bufio.ErrBufferFull)
		switch {
		case err != nil && !more && (length == 0 || !errors.Is(err, io.EOF)):
			return nil, err
		case length > in.lineMax && !more:
			in.number++
			return nil, errLineTooLong
		case length > in.lineMax: // the rest is skipped
		case !more && in.long == nil:
			return part, nil
		default:
			if err := in.keep(part); err != nil || !more {
				return in.long, err
			}
		}
	}
}

// keep appends a part to the long line. It returns errBodyTimeout if there is no room for it.
func (in *bulkInput) keep(part []byte) error {
	if len(in.long)+len(part) > cap(in.long) {
		room := min(2*max(cap(in.long), in.lines.Size()), in.lineMax)
		if in.share.Grow(room-cap(in.long)) != nil {
			return errBodyTimeout
		}
		in.long = append(make([]byte, 0, room), in.long...)
	}
	in.long = append(in.long, part...)
	return nil
}

// Read reads the body within the time of the current line. It returns errBodyTimeout after that.
func (in *bulkInput) Read(into []byte) (int, error) {
	in.deadline.arm()
	n, err := in.body.Read(into)
	in.arrival()
	if errors.Is(err, io.EOF) {
		in.deadline.bodyEnded() // even if there are lines left: they may take longer than the deadline
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errBodyTimeout
	}
	return n, err
}
