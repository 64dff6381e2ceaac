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

// importLineMax is as long as a line can be that a gateway takes, however it is configured: a value of 256 MiB in base64, and its frame.
const importLineMax = valueBytesMax/3*4 + 16<<10

// importDefaults are what lines get that do not say otherwise.
type importDefaults struct {
	resource     string
	token        int64 // 0: none
	leaseID      string
	sequenceFrom int64
}

// importLine is a line of the input.
type importLine struct {
	number int64
	raw    []byte // as it was read, without its end
	text   []byte // as it is sent, with its end

	// certain says that it is a numbered put without a precondition: never refused for its data.
	certain bool
	// ownToken says that its token stands in the line.
	ownToken bool
	// doubt says that it may have been sent before, and has no verdict of that.
	doubt bool
}

// lineReader reads the lines of an input.
type lineReader struct {
	reader *bufio.Reader
	number int64 // of the last line that was read, from 1
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

// makeImportLine fills in what a line does not say. It returns nil for a blank one. What is malformed goes as it is: the gateway says what
// is wrong with it.
func makeImportLine(number int64, raw []byte, defaults importDefaults) *importLine {
	text := bytes.TrimSpace(raw)
	if len(text) == 0 {
		return nil
	}
	line := &importLine{number: number, raw: raw}
	var says struct {
		Op       *json.RawMessage `json:"op"`
		Resource *json.RawMessage `json:"resource"`
		Token    *json.RawMessage `json:"fencing_token"`
		Sequence *json.RawMessage `json:"sequence"`
		LeaseID  *json.RawMessage `json:"lease_id"`
		Version  *json.RawMessage `json:"if_version"`
	}
	if text[0] != '{' || json.Unmarshal(text, &says) != nil {
		line.text = append(bytes.Clone(text), '\n')
		return line
	}
	var fill []byte
	add := func(field string, value []byte) {
		fill = append(append(append(fill, `"`+field+`":`...), value...), ',')
	}
	if says.Op == nil {
		add("op", []byte(`"put"`))
	}
	if says.Resource == nil && defaults.resource != "" {
		quoted, _ := json.Marshal(defaults.resource) // of a string it can't fail
		add("resource", quoted)
	}
	numbered := says.Sequence != nil
	line.ownToken = says.Token != nil
	if says.Token == nil && defaults.token != 0 {
		add("fencing_token", strconv.AppendInt(nil, defaults.token, 10))
		if says.LeaseID == nil && defaults.leaseID != "" {
			quoted, _ := json.Marshal(defaults.leaseID)
			add("lease_id", quoted)
		}
		if !numbered {
			add("sequence", strconv.AppendInt(nil, defaults.sequenceFrom+number-1, 10))
			numbered = true
		}
	}
	line.certain = numbered && says.Version == nil && (says.Op == nil || string(*says.Op) == `"put"`)
	rest := bytes.TrimLeft(text[1:], " \t")
	if len(rest) > 0 && rest[0] == '}' {
		fill = bytes.TrimSuffix(fill, []byte(","))
	}
	line.text = make([]byte, 0, len(fill)+len(rest)+2)
	line.text = append(append(append(append(line.text, '{'), fill...), rest...), '\n')
	return line
}
