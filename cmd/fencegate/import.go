package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/fencegate/fencegate/internal/printable"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

type importCmd struct {
	clientFlags
	File         string    `arg:"" help:"NDJSON, one write per line; -: the standard input."`
	Resource     string    `help:"Resource of the lines that have none. A dot: the lock of \"fencegate run\"." placeholder:"NAME"`
	Token        tokenFlag `help:"Fencing token of the lines that have none, without a sequence." placeholder:"TOKEN"`
	LeaseID      string    `help:"Check that --token is of this lease." placeholder:"UUID"`
	SequenceFrom int64     `help:"Number of the first line under --token; each line has the next." default:"1" placeholder:"N"`
	Rejected     string    `help:"Append the refused lines to this file, unchanged." type:"path" placeholder:"PATH"`
	Resume       string    `help:"Keep the progress in this file, and resume from it." type:"path" placeholder:"PATH"`
	Progress     bool      `help:"Show the progress at a terminal." default:"true" negatable:""`
}

// Help is shown by "fencegate import --help".
func (importCmd) Help() string {
	return "A line is a write as in POST /v1/writes: {\"op\":\"put\",\"resource\":\"a/b\",\"key\":\"k\"," +
		"\"fencing_token\":34,\"sequence\":2,\"value\":…}. Under --token and --resource a key and a value are enough: " +
		"{\"key\":\"k\",\"value\":…}. Lines under --token are numbered by their line numbers, so that each is applied " +
		"once, however often it is sent. Under \"fencegate run\": " +
		"\"fencegate import rows.ndjson --resource . --resume rows.state\"."
}

// Run imports a file.
func (c *importCmd) Run(ctx context.Context, con *console) (err error) {
	defaults, err := c.defaults()
	if err != nil {
		return err
	}
	input, size, err := c.open(con.in)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, input.Close()) }()
	rejected, err := os.OpenFile(cmp.Or(c.Rejected, os.DevNull), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rejected.Close()) }()
	state, err := openImportState(c.Resume, defaults)
	if err != nil {
		return err
	}
	client, err := c.client(lockclient.WithAnswerTimeout(c.Timeout))
	if err != nil {
		return err
	}
	defer client.Close()

	if first, last := state.twice(); first > 0 {
		con.note("lines %d to %d may be applied a second time: they may have been sent under token %d",
			first, last, state.before.FencingToken)
	}
	i := &importer{
		state: state, defaults: defaults, bar: newImportProgress(con, c.Progress, size), con: con, rejected: rejected,
	}
	err = i.run(ctx, client, c.Timeout, input)
	i.bar.end()
	return c.report(con, state, err)
}

// defaults returns the fields that lines get which don't have them.
func (c *importCmd) defaults() (importDefaults, error) {
	d := importDefaults{token: c.Token.Token, sequenceFrom: c.SequenceFrom}
	switch {
	case c.Token.Sequence != nil:
		return d, usagef("--token %s has a sequence: leave that to --sequence-from", c.Token)
	case c.SequenceFrom < 0 || c.SequenceFrom > api.MaxToken:
		return d, usagef("--sequence-from is %d, it must be 0 to 2^53-1", c.SequenceFrom)
	}
	if d.token != 0 {
		d.leaseID = writeFlags{Token: c.Token, LeaseID: c.LeaseID}.leaseID()
	}
	var err error
	if c.Resource != "" {
		d.resource, err = resource(c.Resource)
	}
	return d, err
}

// open returns the input and its size; 0 if that is not known.
func (c *importCmd) open(stdin io.Reader) (io.ReadCloser, int64, error) {
	if c.File == "-" {
		return io.NopCloser(stdin), 0, nil
	}
	file, err := os.Open(c.File)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	if !info.Mode().IsRegular() {
		return file, 0, nil
	}
	return file, info.Size(), nil
}

func (c *importCmd) report(con *console, state *importState, err error) error {
	counts := state.Counts
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	fields := []field{
		{"lines", number(state.Lines)}, {"created", number(counts.Created)}, {"changed", number(counts.Changed)},
		{"applied_before", number(counts.AppliedBefore)}, {"refused", number(counts.Refused)},
		{"unknown", number(counts.Unknown)},
	}
	if showErr := con.show(state.importProgress, fields); showErr != nil {
		return errors.Join(err, showErr)
	}
	switch {
	case err != nil:
		what := fmt.Errorf("line %d and those after it have no verdict: %w", state.Lines+1, err)
		if c.Resume != "" {
			con.note("the same command resumes after line %d", state.Lines)
		}
		return what
	case counts.Unknown > 0:
		return fmt.Errorf("%d lines were refused, and of %d it is unknown whether they were applied", counts.Refused,
			counts.Unknown)
	case counts.Refused > 0:
		return fmt.Errorf("%d lines were refused", counts.Refused)
	}
	return nil
}

const (
	// importWindow bounds the lines without a verdict; a gateway reads as many ahead.
	importWindow = 1024
	// importSaveEvery is the time between two saves of the state while verdicts arrive.
	importSaveEvery = time.Second
	// refusalsShown is how many refused lines are shown.
	refusalsShown = 20
)

// importer sends the lines of an input by a BulkWriter, and keeps the state and the counts.
type importer struct {
	state    *importState
	defaults importDefaults
	bar      *importProgressBar
	con      *console
	rejected io.Writer // gets the lines that are not applied
	cancel   context.CancelCauseFunc

	mu sync.Mutex
	// sent are the lines without a result, in order.
	sent  []*importLine
	saved time.Time
	ended bool
	err   error // the first failure
}

// run imports until the input has ended and every line has its verdict.
func (i *importer) run(ctx context.Context, client *lockclient.Client, timeout time.Duration, input io.Reader) error {
	source := newLineReader(input)
	if err := i.skip(source); err != nil {
		return err
	}
	ctx, i.cancel = context.WithCancelCause(ctx)
	defer i.cancel(nil)
	writer, err := client.BulkWriter(ctx,
		lockclient.PipelineWindow(importWindow), lockclient.PipelineRetryFor(timeout), lockclient.OnResult(i.result))
	if err != nil {
		return err
	}
	read := make(chan error, 1)
	go func() { read <- i.read(ctx, source, writer) }()
	// Nothing ends the read of a terminal; what it returns after the end is dropped.
	select {
	case err = <-read:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	_ = writer.Close() // result has the errors of the lines
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	if i.err != nil && !errors.Is(err, i.err) {
		err = i.err
	}
	if err == nil {
		i.state.passBlank(source.number)
		i.state.SentUpTo = i.state.Lines
	}
	return errors.Join(err, i.state.save())
}

// skip passes the lines that have their verdicts from an earlier run.
func (i *importer) skip(source *lineReader) error {
	for i.state.Lines < i.state.before.Lines {
		raw, err := source.next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the input has %d lines, and %d were imported before", i.state.Lines, i.state.before.Lines)
		}
		if err != nil {
			return err
		}
		i.state.pass(raw)
	}
	i.bar.skip(source.bytes)
	return i.state.checkBefore()
}

// read sends the lines of the input.
func (i *importer) read(ctx context.Context, source *lineReader, writer *lockclient.BulkWriter) error {
	for {
		raw, err := source.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line := makeImportLine(source.number, raw, i.defaults)
		if line == nil {
			continue
		}
		line.end = source.bytes
		if err := i.reserve(line); err != nil {
			return err
		}
		text := lockclient.BulkLine{JSON: line.text, SentBefore: i.state.sentBefore(line)}
		line.text = nil // the writer's now
		if err := writer.Send(ctx, text); err != nil {
			return err
		}
	}
}

// reserve notes that a line may be sent from now on.
func (i *importer) reserve(line *importLine) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended {
		return context.Canceled
	}
	i.sent = append(i.sent, line)
	return i.state.reserve(line.number)
}

// result takes the result of the next line.
func (i *importer) result(result lockclient.BulkResult) {
	i.mu.Lock()
	defer i.mu.Unlock()
	line := i.sent[0]
	i.sent[0] = nil
	i.sent = i.sent[1:]
	if i.err != nil {
		return
	}
	if i.err = i.count(line, result); i.err != nil {
		i.cancel(i.err)
		return
	}
	i.state.passBlank(line.number - 1)
	i.state.pass(line.raw)
	i.bar.advance(line.end)
	if time.Since(i.saved) < importSaveEvery {
		return
	}
	i.saved = time.Now()
	if i.err = i.state.save(); i.err != nil {
		i.cancel(i.err)
	}
}

// count counts a line. It returns an error if the import can't continue.
func (i *importer) count(line *importLine, result lockclient.BulkResult) error {
	counts := &i.state.Counts
	switch verdict := result.Verdict; {
	case verdict.Status == 0:
		// The writer's error says that this line has no verdict; its cause is that of all lines.
		var failed *lockclient.Error
		if errors.As(result.Err, &failed) && failed.Cause != nil {
			return failed.Cause
		}
		return result.Err
	case result.Err == nil && *verdict.Replayed:
		counts.AppliedBefore++
	case result.Err == nil && verdict.Status == 201:
		counts.Created++
	case result.Err == nil:
		counts.Changed++
	default:
		if err := i.reject(line, verdict); err != nil {
			return err
		}
		if errors.Is(result.Err, lockclient.ErrOutcomeUnknown) {
			counts.Unknown++
		} else {
			counts.Refused++
		}
	}
	return nil
}

// reject reports a line that was not applied, and appends it to the file for such lines.
func (i *importer) reject(line *importLine, verdict api.BulkVerdict) error {
	i.bar.clear()
	before := i.state.Counts.Refused + i.state.Counts.Unknown
	switch {
	case i.con.format.problems():
		verdict.Line = line.number
		if err := i.con.problem(verdict); err != nil {
			return err
		}
	case before < refusalsShown:
		i.con.note("line %d: %s: %s", line.number, verdict.Code, printable.Text(verdict.Detail))
	case before == refusalsShown:
		i.con.note("more lines were refused, which are not shown")
	}
	if _, err := fmt.Fprintf(i.rejected, "%s\n", line.raw); err != nil {
		return fmt.Errorf("write the refused lines: %w", err)
	}
	return nil
}

// isBlank says that a line has no verdict.
func isBlank(raw []byte) bool { return len(bytes.TrimSpace(raw)) == 0 }

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
