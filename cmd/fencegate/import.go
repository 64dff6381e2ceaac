package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/printable"
	"github.com/fencegate/fencegate/lockclient"
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
	i := &importer{state: state, defaults: defaults, bar: newImportProgress(con, c.Progress, size)}
	i.rejected = func(line *importLine, verdict api.BulkVerdict) error {
		return c.rejected(con, rejected, line, verdict, state.refusals())
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

// refusalsShown is how many refused lines are shown.
const refusalsShown = 20

// rejected reports a line that was not applied, and appends it to the file for such lines.
func (c *importCmd) rejected(
	con *console, rejected io.Writer, line *importLine, verdict api.BulkVerdict, before int64,
) error {
	switch {
	case con.format.problems():
		verdict.Line = line.number
		if err := con.problem(verdict); err != nil {
			return err
		}
	case before < refusalsShown:
		con.note("line %d: %s: %s", line.number, verdict.Code, printable.Text(verdict.Detail))
	case before == refusalsShown:
		con.note("more lines were refused, which are not shown")
	}
	if _, err := fmt.Fprintf(rejected, "%s\n", line.raw); err != nil {
		return fmt.Errorf("write the refused lines: %w", err)
	}
	return nil
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
