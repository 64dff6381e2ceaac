package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// importLineMax is the longest line that any gateway takes: a value of 256 MiB in base64, and its frame.
const importLineMax = valueBytesMax/3*4 + 16<<10

// importDefaults are the fields that lines get which don't have them.
type importDefaults struct {
	resource     string
	token        int64 // 0: none
	leaseID      string
	sequenceFrom int64
}

// importLine is a line of the input that has a verdict.
type importLine struct {
	number int64
	raw    []byte // as it was read, without its end
	text   []byte // as it is sent, without its end
	end    int64  // the offset in the input after it
	// ownToken says that the line names its token.
	ownToken bool
}

// lineReader reads the lines of an input.
type lineReader struct {
	reader *bufio.Reader
	number int64 // of the last line that was read, from 1
	bytes  int64 // up to its end
}

func newLineReader(input io.Reader) *lineReader {
	return &lineReader{reader: bufio.NewReaderSize(input, 256<<10)}
}

// next returns the next line, without its end. It returns io.EOF after the last.
func (r *lineReader) next() ([]byte, error) {
	var line []byte
	for {
		part, err := r.reader.ReadSlice('\n')
		line = append(line, part...)
		r.bytes += int64(len(part))
		switch {
		case len(line) > importLineMax:
			return nil, fmt.Errorf("line %d is over the limit of %d bytes", r.number+1, importLineMax)
		case err == nil, errors.Is(err, io.EOF) && len(line) > 0:
			r.number++
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, io.EOF):
			return nil, err
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("read line %d: %w", r.number+1, err)
		}
	}
}

// makeImportLine adds the defaults to a line. It returns nil for a blank one. A malformed line stays as it is: its
// verdict says what is wrong.
func makeImportLine(number int64, raw []byte, defaults importDefaults) *importLine {
	text := bytes.TrimSpace(raw)
	if len(text) == 0 {
		return nil
	}
	line := &importLine{number: number, raw: raw}
	var fields struct {
		Op       *json.RawMessage `json:"op"`
		Resource *json.RawMessage `json:"resource"`
		Token    *json.RawMessage `json:"fencing_token"`
		Sequence *json.RawMessage `json:"sequence"`
		LeaseID  *json.RawMessage `json:"lease_id"`
	}
	if text[0] != '{' || json.Unmarshal(text, &fields) != nil {
		line.text = append(make([]byte, 0, len(text)+1), text...)
		return line
	}
	var fill []byte
	add := func(field string, value []byte) {
		fill = append(append(append(fill, `"`+field+`":`...), value...), ',')
	}
	if fields.Op == nil {
		add("op", []byte(`"put"`))
	}
	if fields.Resource == nil && defaults.resource != "" {
		quoted, _ := json.Marshal(defaults.resource) // of a string it can't fail
		add("resource", quoted)
	}
	line.ownToken = fields.Token != nil
	if fields.Token == nil && defaults.token != 0 {
		add("fencing_token", strconv.AppendInt(nil, defaults.token, 10))
		if fields.LeaseID == nil && defaults.leaseID != "" {
			quoted, _ := json.Marshal(defaults.leaseID)
			add("lease_id", quoted)
		}
		if fields.Sequence == nil {
			add("sequence", strconv.AppendInt(nil, defaults.sequenceFrom+number-1, 10))
		}
	}
	rest := bytes.TrimLeft(text[1:], " \t")
	if len(rest) > 0 && rest[0] == '}' {
		fill = bytes.TrimSuffix(fill, []byte(","))
	}
	line.text = make([]byte, 0, len(fill)+len(rest)+2)
	line.text = append(append(append(line.text, '{'), fill...), rest...)
	return line
}
