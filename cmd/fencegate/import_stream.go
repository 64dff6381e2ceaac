package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

var errImportStreamOver = errors.New("the stream is over")

// stream sends all lines that have no verdict over one stream, and those that come. It returns nil where it ended for no fault.
func (i *importer) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(i.timeout, cancel)
	defer silence.Stop()
	i.mu.Lock()
	i.next, i.sent, i.heard, i.rest, i.closed, i.retry = 0, nil, 0, nil, false, nil
	i.mu.Unlock()
	end, err := i.client.API().Writes(ctx, &importBody{i, silence}, func(verdict api.BulkVerdict) error {
		silence.Reset(i.timeout)
		return i.hear(ctx, verdict)
	})
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	i.moved.Broadcast()
	for _, line := range i.sent[i.heard:] {
		line.doubt = line.doubt || err != nil
	}
	switch {
	case err != nil:
		return err
	case i.retry != nil:
		return &lockclient.Error{Op: "import", Problem: i.retry}
	case end.End == api.BulkComplete, end.End == api.BulkIdle:
		return nil
	}
	return &lockclient.Error{Op: "import", Problem: &api.Problem{
		Type: "about:blank", Title: "Stream ended", Status: 503, Code: api.CodeUnavailable, Retryable: true, Outcome: api.OutcomeNotApplied,
		Detail: "the gateway ended the stream: " + end.End,
	}}
}

// importBody is what is sent over a stream.
type importBody struct {
	importer *importer
	silence  *time.Timer // runs but while everything that was sent has its verdict
}

// Read gives what there is to send, and waits while there is nothing.
func (b *importBody) Read(into []byte) (int, error) {
	i := b.importer
	i.mu.Lock()
	defer i.mu.Unlock()
	for {
		if i.closed {
			return 0, errImportStreamOver
		}
		if n := i.fill(into); n > 0 {
			b.silence.Reset(i.timeout)
			return n, nil
		}
		if i.ended != nil && i.heard == len(i.sent) {
			return 0, io.EOF
		}
		if i.heard == len(i.sent) {
			b.silence.Stop()
		}
		i.moved.Wait()
	}
}

// fill copies what is to be sent. i.mu is held.
func (i *importer) fill(into []byte) int {
	n := 0
	for n < len(into) {
		if len(i.rest) == 0 {
			for i.next < len(i.lines) && i.lines[i.next] == nil {
				i.next++
			}
			if i.next >= len(i.lines) {
				break
			}
			line := i.lines[i.next]
			i.next++
			i.sent = append(i.sent, line)
			i.rest = line.text
		}
		copied := copy(into[n:], i.rest)
		n, i.rest = n+copied, i.rest[copied:]
	}
	return n
}

// hear takes a verdict.
func (i *importer) hear(ctx context.Context, verdict api.BulkVerdict) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.heard == len(i.sent) {
		return errors.New("the gateway gave a verdict on a line that was not sent")
	}
	line := i.sent[i.heard]
	i.heard++
	counts := &i.state.Counts
	switch {
	case verdict.Code == "" && *verdict.Replayed:
		counts.AppliedBefore++
	case verdict.Code == "" && verdict.Status == 201:
		counts.Created++
	case verdict.Code == "":
		counts.Changed++
	case verdict.Code == api.CodeUnavailable:
		line.doubt = line.doubt || verdict.Outcome == api.OutcomeUnknown
		i.retry = verdict.Problem()
		return nil
	case line.doubt && line.certain && passedBy(verdict) && i.stored(ctx, line, verdict):
		counts.AppliedBefore++
	default:
		i.show.clear()
		if err := i.tell(line, verdict); err != nil {
			return err
		}
		if line.doubt && verdict.Code == api.CodeTokenStale && verdict.LastToken != nil && *verdict.LastToken >= *verdict.Token {
			counts.Unknown++
		} else {
			counts.Refused++
		}
	}
	return i.settle(line)
}

// storedMax bounds what is remembered of records that were read.
const storedMax = 10_000

// stored reads whether the record was stored by this line or a later write of its lease. Then the line may count as applied: nobody can have
// seen that it was not. i.mu is held, but not while it reads.
func (i *importer) stored(ctx context.Context, line *importLine, verdict api.BulkVerdict) bool {
	var says struct {
		Key string `json:"key"`
	}
	if json.Unmarshal(line.text, &says) != nil {
		return false
	}
	record := storedRecord{verdict.Resource, says.Key, *verdict.Token}
	if i.storedBy[record] < *verdict.Sequence {
		i.mu.Unlock()
		page, err := i.client.API().Records(ctx, record.resource, lockclient.RecordsQuery{Prefix: record.key, Limit: 1})
		i.mu.Lock()
		if err != nil || len(page.Records) == 0 || page.Records[0].Key != record.key {
			return false
		}
		by := page.Records[0]
		if by.FencingToken != record.token || by.Sequence == nil {
			return false
		}
		if len(i.storedBy) >= storedMax || i.storedBy == nil {
			i.storedBy = map[storedRecord]int64{}
		}
		i.storedBy[record] = *by.Sequence
	}
	return i.storedBy[record] >= *verdict.Sequence
}

// storedRecord is a record and the token by which it was stored.
type storedRecord struct {
	resource, key string
	token         int64
}

// passedBy says that the fence has accepted a later write of the same lease. That proves nothing about the line: it may have been refused under
// a policy that was changed since.
func passedBy(verdict api.BulkVerdict) bool {
	return verdict.Code == api.CodeTokenStale && verdict.Token != nil && verdict.Sequence != nil && verdict.LastToken != nil && verdict.LastSequence != nil &&
		*verdict.LastToken == *verdict.Token && *verdict.LastSequence > *verdict.Sequence
}

// settle is for a line that has its verdict. i.mu is held.
func (i *importer) settle(line *importLine) error {
	i.held--
	i.bytes -= len(line.raw)
	for place, other := range i.lines {
		if other == line {
			i.lines[place] = nil
			break
		}
	}
	i.advance()
	i.moved.Broadcast()
	if i.heard == len(i.sent) {
		i.sent, i.heard = i.sent[:0], 0
	}
	if time.Since(i.saved) < importSaveEvery {
		return nil
	}
	i.saved = time.Now()
	return i.state.save()
}
