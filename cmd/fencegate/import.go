package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/fencegate/fencegate/internal/printable"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

type importCmd struct {
	clientFlags
	File         string    `arg:"" help:"One write per line, as in POST /v1/writes; -: the standard input."`
	Resource     string    `help:"Resource of the lines that have none. A dot: the lock of \"fencegate run\"." placeholder:"NAME"`
	Token        tokenFlag `help:"Fencing token of the lines that have none, without a sequence." placeholder:"TOKEN"`
	LeaseID      string    `help:"Check that --token is of this lease." placeholder:"UUID"`
	SequenceFrom int64     `help:"Number of the first line under --token; each line has the next." default:"1" placeholder:"N"`
}

// importCounts count the lines. Where one was decided before, that or a later line of its token was accepted before.
type importCounts struct {
	Lines         int64 `json:"lines"`
	Applied       int64 `json:"applied"`
	DecidedBefore int64 `json:"decided_before"`
	Refused       int64 `json:"refused"`
}

// Run imports a file.
func (c *importCmd) Run(ctx context.Context, con *console) (err error) {
	if c.Token.Sequence != nil {
		return usagef("--token %s has a sequence: leave that to --sequence-from", c.Token)
	}
	c.LeaseID = writeFlags{Token: c.Token, LeaseID: c.LeaseID}.leaseID()
	if c.Resource, err = resource(c.Resource); err != nil {
		return err
	}
	input := bufio.NewScanner(con.in)
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		input = bufio.NewScanner(file)
	}
	client, err := c.client(lockclient.WithAnswerTimeout(c.Timeout))
	if err != nil {
		return err
	}
	defer client.Close()
	counts := &importCounts{}
	input.Buffer(nil, api.BulkBytesMax)
	for more := true; more && err == nil; {
		var writes []api.BulkWrite
		for more = input.Scan(); more; more = len(writes) < api.BulkWritesMax && input.Scan() {
			writes = append(writes, c.writeOf(input.Bytes(), counts.Lines+int64(len(writes))))
		}
		more = len(writes) == api.BulkWritesMax
		limited, cancel := context.WithTimeout(ctx, c.Timeout)
		err = errors.Join(con.countImport(counts, client.Writes(limited, writes)), input.Err())
		cancel()
	}
	err = errors.Join(err, con.show(counts, []field{
		{"lines", fmt.Sprint(counts.Lines)}, {"applied", fmt.Sprint(counts.Applied)},
		{"decided_before", fmt.Sprint(counts.DecidedBefore)}, {"refused", fmt.Sprint(counts.Refused)},
	}))
	if err == nil && counts.Refused > 0 {
		err = fmt.Errorf("%d lines were refused", counts.Refused)
	}
	return err
}

// writeOf reads the line after so many. The gateway refuses what no write can be read from.
func (c *importCmd) writeOf(line []byte, before int64) api.BulkWrite {
	write := api.BulkWrite{Op: "put", Resource: c.Resource}
	decoder := json.NewDecoder(bytes.NewReader(line))
	if decoder.DisallowUnknownFields(); decoder.Decode(&write) != nil || decoder.More() {
		return api.BulkWrite{Op: "unreadable", Resource: "unreadable", Key: "unreadable"}
	}
	if write.FencingToken == nil && c.Token.Token != 0 {
		write.FencingToken, write.Sequence = &c.Token.Token, cmp.Or(write.Sequence, new(c.SequenceFrom+before))
		if c.LeaseID != "" {
			write.LeaseID = cmp.Or(write.LeaseID, &c.LeaseID)
		}
	}
	return write
}

// countImport counts lines, and shows the first 20 that were refused (as JSON all). It returns an error if the import can't continue.
func (con *console) countImport(counts *importCounts, outcomes []lockclient.WriteOutcome) error {
	for _, outcome := range outcomes {
		problem := lockclient.ProblemOf(outcome.Err)
		switch {
		case outcome.Err == nil && !outcome.Result.Replayed:
			counts.Applied++
		case outcome.Err == nil, problem != nil && problem.Reason == "reused" && problem.Sequence != nil &&
			*problem.LastSequence > *problem.Sequence:
			counts.DecidedBefore++
		case errors.Is(outcome.Err, lockclient.ErrUnavailable):
			return fmt.Errorf("line %d and those after it have no answer: %w", counts.Lines+1, outcome.Err)
		default:
			if counts.Refused++; counts.Refused <= 20 {
				con.note("line %d: %s", counts.Lines+1, printable.Text(outcome.Err.Error()))
			}
			if con.format.problems() {
				_ = con.problem(problem)
			}
		}
		counts.Lines++
	}
	return nil
}
