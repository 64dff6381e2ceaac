package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

const (
	// importWindow bounds the lines without a verdict; a gateway reads as many ahead.
	importWindow = 1024
	// importSaveEvery is the time between two saves of the state while verdicts arrive.
	importSaveEvery = time.Second
)

// importer sends the lines of an input by a BulkWriter, and keeps the state and the counts.
type importer struct {
	state    *importState
	defaults importDefaults
	bar      *importProgressBar
	// rejected is called with each line that was not applied.
	rejected func(line *importLine, verdict api.BulkVerdict) error
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
		i.bar.clear()
		if err := i.rejected(line, verdict); err != nil {
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

// isBlank says that a line has no verdict.
func isBlank(raw []byte) bool { return len(bytes.TrimSpace(raw)) == 0 }
