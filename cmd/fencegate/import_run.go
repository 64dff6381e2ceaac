package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// Bounds of the lines that have no verdict; a single longer one may be under way alone.
const (
	importWindow      = 1024
	importWindowBytes = 16 << 20
	// importSaveEvery is how often the state is kept while verdicts come.
	importSaveEvery = time.Second
)

// importer sends the lines of an input, and hears of all of them. Where a stream is cut it opens another, and sends again what has no verdict.
type importer struct {
	client   *lockclient.Client
	state    *importState
	defaults importDefaults
	timeout  time.Duration
	tell     func(*importLine, api.BulkVerdict) error
	show     *importProgressBar

	mu    sync.Mutex
	moved *sync.Cond
	lines []*importLine // read, and not passed yet: settled ones are nil until all before them are, too
	raws  [][]byte      // of these lines
	held  int           // of lines, those that have no verdict
	bytes int
	ended error // why no more are read; io.EOF at the end
	saved time.Time
	// storedBy is the greatest number of a write that is known to have stored a record.
	storedBy map[storedRecord]int64

	// Of the stream.
	next   int // in lines: the next to be sent
	sent   []*importLine
	rest   []byte
	heard  int
	closed bool
	retry  *api.Problem // a verdict that is none
}

func newImporter(client *lockclient.Client, state *importState, defaults importDefaults, timeout time.Duration) *importer {
	i := &importer{client: client, state: state, defaults: defaults, timeout: timeout}
	i.moved = sync.NewCond(&i.mu)
	return i
}

// run imports until the input has ended and every line has its verdict. It returns why it could not.
func (i *importer) run(ctx context.Context, input io.Reader, show *importProgressBar) error {
	i.show = show
	source := newLineReader(input)
	if err := i.skip(source); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, i.wake)()
	// A read of a terminal can't be ended; what it reads then is dropped.
	go i.read(ctx, source)
	err := i.send(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended == nil {
		i.ended = context.Canceled
	}
	if err == nil && !errors.Is(i.ended, io.EOF) {
		err = i.ended
	}
	if err == nil {
		i.state.SentUpTo = i.state.Lines
	}
	return errors.Join(err, i.state.save())
}

// skip passes the lines that have their verdicts from a run before.
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
	return i.state.checkBefore()
}

// read reads lines into the window.
func (i *importer) read(ctx context.Context, source *lineReader) {
	for {
		raw, err := source.next()
		var line *importLine
		if err == nil {
			line = makeImportLine(source.number, raw, i.defaults)
		}
		if !i.take(ctx, raw, line, err) {
			return
		}
	}
}

// take puts a line into the window when there is room, and reports whether more may be read.
func (i *importer) take(ctx context.Context, raw []byte, line *importLine, err error) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	defer i.moved.Broadcast()
	for err == nil && ctx.Err() == nil && i.held > 0 && (i.held >= importWindow || i.bytes+len(raw) > importWindowBytes) {
		i.moved.Wait()
	}
	if err == nil && line != nil {
		line.doubt = i.state.sentBefore(line)
		err = i.state.reserve(line.number)
	}
	switch {
	case i.ended != nil || ctx.Err() != nil:
		return false
	case err != nil:
		i.ended = err
		return false
	}
	i.lines, i.raws = append(i.lines, line), append(i.raws, raw)
	if line == nil {
		i.advance()
		return true
	}
	i.held++
	i.bytes += len(raw)
	return true
}

// advance passes what is settled at the front. i.mu is held.
func (i *importer) advance() {
	n := 0
	for n < len(i.lines) && i.lines[n] == nil {
		i.state.pass(i.raws[n])
		i.show.passed(len(i.raws[n]) + 1)
		n++
	}
	i.lines, i.raws = i.lines[n:], i.raws[n:]
	i.next = max(0, i.next-n)
}

func (i *importer) wake() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.moved.Broadcast()
}

// send keeps a stream while there is something to send.
func (i *importer) send(ctx context.Context) error {
	last, pause := time.Now(), 50*time.Millisecond
	for i.awaitLines(ctx) {
		before := i.settled()
		err := i.stream(ctx)
		if i.settled() > before || err == nil {
			last, pause = time.Now(), 50*time.Millisecond
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			continue
		case !errors.Is(err, lockclient.ErrUnavailable) && !errors.Is(err, lockclient.ErrForeignAnswer), time.Since(last)+pause > i.timeout:
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		pause = min(2*pause, 2*time.Second)
	}
	return context.Cause(ctx)
}

// settled is how many lines have a verdict.
func (i *importer) settled() int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.state.Counts
	return c.Created + c.Changed + c.AppliedBefore + c.Refused + c.Unknown
}

// awaitLines waits until there is something to send. It reports false when there will be nothing any more.
func (i *importer) awaitLines(ctx context.Context) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for i.held == 0 && i.ended == nil && ctx.Err() == nil {
		i.moved.Wait()
	}
	return i.held > 0 && ctx.Err() == nil
}
