package lockclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// run keeps a connection open while there is something to send, until the writer ends.
func (b *BulkWriter) run() {
	policy := b.retry.withDefaults()
	var failed int
	var failing time.Time
	for b.awaitWork() {
		settled, err := b.send()
		if settled > 0 || err == nil {
			failed = 0
		}
		if err == nil {
			continue
		}
		if b.ctx.Err() != nil {
			break
		}
		if failed++; failed == 1 {
			failing = time.Now()
		}
		pause := policy.pause(failed, hintOf(err), jitter())
		if !retryable(err) || failed >= policy.Attempts || time.Since(failing)+pause > policy.Within {
			b.fail(err)
			failed = 0
			continue
		}
		b.client.retries.report(b.ctx, Retry{Err: err, Attempt: failed, Pause: pause})
		if sleep(b.ctx, pause) != nil {
			break
		}
	}
	if b.ctx.Err() != nil {
		b.fail(context.Cause(b.ctx))
	}
}

// awaitWork waits until there is something to send. It returns false when the writer ends.
func (b *BulkWriter) awaitWork() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.held == 0 && !b.closing && b.ctx.Err() == nil {
		b.work.Wait()
	}
	return b.held > 0 && b.ctx.Err() == nil
}

// send sends the window, and takes verdicts, over one connection. It returns how many writes got their results, and why
// the connection ended: nil if that was no failure.
func (b *BulkWriter) send() (settled int, err error) {
	l, err := b.connect()
	if err != nil {
		return 0, err
	}
	settled, err = l.follow()
	if err != nil && b.ctx.Err() == nil && errors.Is(err, ErrUnavailable) {
		b.client.prefer(int64(l.stream.index), (l.stream.index+1)%len(b.client.gateways))
	}
	return settled, err
}

// fail settles all writes in the window with an error.
func (b *BulkWriter) fail(cause error) {
	b.mu.Lock()
	var failed []*PendingWrite
	for w := b.first; w != nil; w = w.next {
		if !w.settled {
			failed = append(failed, w)
		}
	}
	b.mu.Unlock()
	for _, w := range failed {
		b.settle(w, api.BulkVerdict{}, w.noVerdict(cause))
	}
}

// noVerdict makes the error of a write that no gateway gave a verdict on.
func (w *PendingWrite) noVerdict(cause error) error {
	outcome, then := api.OutcomeNotApplied, "Nothing was applied."
	if w.doubt != nil {
		outcome = api.OutcomeUnknown
		then = "It may have been applied; the next write of this lease that is admitted settles it."
	}
	detail := fmt.Sprintf("there was no verdict: %v. %s", cause, then)
	err := unanswered(w.op, "No verdict", outcome, detail, cause)
	err.Earlier = w.doubt
	switch {
	case isLost(cause):
		return lostDuring(err, cause)
	case errors.Is(cause, context.Canceled):
		return canceledDuring(err, cause)
	}
	return err
}

// bulkConnection is one stream of a BulkWriter. The writer's mutex guards all fields but stream and limit.
type bulkConnection struct {
	writer  *BulkWriter
	stream  *bulkStream
	limit   time.Duration
	silence *time.Timer // runs while a verdict is due

	closed bool
	cursor *PendingWrite // the next to be sent
	rest   []byte        // of a line that was sent in part
	sent   []*PendingWrite
	head   int  // in sent: the first without a verdict
	silent bool // no verdict came in time
	// undecided is the last verdict that is no result: its line is to be sent again.
	undecided error
}

// due returns how many lines wait for a verdict. The writer's mutex is held.
func (l *bulkConnection) due() int { return len(l.sent) - l.head }

// read returns the bytes to send, and waits while there are none.
func (l *bulkConnection) read(into []byte) (int, error) {
	b := l.writer
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if l.closed || b.ctx.Err() != nil {
			return 0, errStreamClosed
		}
		if n := l.fill(into); n > 0 {
			return n, nil
		}
		if b.closing && b.held == 0 {
			l.silence.Reset(l.limit)
			return 0, io.EOF
		}
		b.work.Wait()
	}
}

// fill copies lines to be sent. The writer's mutex is held.
func (l *bulkConnection) fill(into []byte) int {
	n := 0
	for n < len(into) {
		if len(l.rest) == 0 {
			for l.cursor != nil && l.cursor.settled {
				l.cursor = l.cursor.next
			}
			if l.cursor == nil {
				break
			}
			if l.due() == 0 {
				l.silence.Reset(l.limit)
			}
			if l.head > len(l.sent)/2 && len(l.sent) == cap(l.sent) { // otherwise it grows while some verdict is due
				l.sent, l.head = slices.Delete(l.sent, 0, l.head), 0
			}
			l.sent = append(l.sent, l.cursor)
			l.rest, l.cursor = l.cursor.line, l.cursor.next
		}
		copied := copy(into[n:], l.rest)
		n, l.rest = n+copied, l.rest[copied:]
	}
	return n
}

// close stops the sending.
func (l *bulkConnection) close() {
	l.writer.mu.Lock()
	defer l.writer.mu.Unlock()
	l.closed = true
	l.writer.work.Broadcast()
}

// connect opens a stream at the first gateway that accepts it.
func (b *BulkWriter) connect() (*bulkConnection, error) {
	l := &bulkConnection{writer: b, limit: b.client.answerTimeout}
	var err error
	if l.stream, err = b.client.openBulk(b.ctx, b.op, l.read, l.close); err != nil {
		return nil, err
	}
	l.silence = time.AfterFunc(l.limit, func() {
		b.mu.Lock()
		l.silent = true
		b.mu.Unlock()
		l.stream.cancel()
	})
	l.silence.Stop()
	b.mu.Lock()
	l.cursor, b.connection = b.first, l
	b.mu.Unlock()
	l.stream.start()
	return l, nil
}

// follow takes verdicts until the stream ends. It returns how many writes got their results, and why the stream ended:
// nil if the gateway ended it without a failure.
func (l *bulkConnection) follow() (settled int, err error) {
	end, err := l.stream.follow(func(verdict api.BulkVerdict) error {
		done, err := l.take(verdict)
		if done {
			settled++
		}
		return err
	})
	return settled, l.ended(end, err)
}

// take gives a verdict to the write that it is on.
func (l *bulkConnection) take(verdict api.BulkVerdict) (settled bool, err error) {
	b := l.writer
	b.mu.Lock()
	if l.due() == 0 {
		b.mu.Unlock()
		return false, l.stream.foreign("a verdict on a line that was not sent")
	}
	w := l.sent[l.head]
	l.sent[l.head] = nil
	l.head++
	if l.due() == 0 {
		l.silence.Stop()
		l.sent, l.head = l.sent[:0], 0
	} else {
		l.silence.Reset(l.limit)
	}
	b.mu.Unlock()
	settled = b.judge(w, verdict)
	if !settled {
		l.undecided = &Error{Op: w.op, Problem: verdict.Problem()}
	}
	return settled, nil
}

// ended handles the end of the stream. If the gateway ended it in good order, the lines without a verdict were not
// applied. Otherwise they may have been.
func (l *bulkConnection) ended(end api.BulkEnd, err error) error {
	l.stream.end()
	l.silence.Stop()
	b := l.writer
	b.mu.Lock()
	defer b.mu.Unlock()
	b.connection = nil
	if err != nil && l.silent {
		err = l.stream.broken(errors.New("no verdict came within " + l.limit.String()))
	}
	for _, w := range l.sent[l.head:] {
		if err != nil && w.doubt == nil {
			w.doubt = err
		}
	}
	switch {
	case err != nil:
		return err
	case l.undecided != nil:
		return l.undecided
	case end.End == api.BulkComplete, end.End == api.BulkIdle:
		return nil
	}
	return notSent(l.stream.call.op, "the gateway ended the stream: "+end.End, nil)
}

// storedByMax bounds the memory of storedBy.
const storedByMax = 10_000

// judge takes a verdict. It returns false if the write is to be sent again: unavailable is no result.
func (b *BulkWriter) judge(w *PendingWrite, verdict api.BulkVerdict) (settled bool) {
	if verdict.Code == "" {
		b.settle(w, verdict, nil)
		return true
	}
	refusal := &Error{Op: w.op, Problem: verdict.Problem()}
	err := remember(refusal, w.doubt)
	if retryable(err) {
		if refusal.Problem.Outcome == api.OutcomeUnknown && w.doubt == nil {
			w.doubt = refusal
		}
		return false
	}
	if w.doubt != nil && passed(verdict) && b.stored(w, verdict) {
		replayed := true
		b.settle(w, api.BulkVerdict{
			Status: 200, FencingToken: verdict.Token, Sequence: verdict.Sequence, Replayed: &replayed,
		}, nil)
		return true
	}
	if b.lease != nil {
		b.lease.endIfRejected(w.resource, err)
	}
	b.settle(w, verdict, err)
	return true
}

// passed says that the fence's last accepted write is a later one of the same lease. That proves nothing about this
// write: a policy that changed in between may have rejected it.
func passed(v api.BulkVerdict) bool {
	return v.Code == api.CodeTokenStale && v.Token != nil && v.Sequence != nil && v.LastToken != nil &&
		v.LastSequence != nil && *v.LastToken == *v.Token && *v.LastSequence > *v.Sequence
}

// storedRecord is a record, and the token of the write that stored it.
type storedRecord struct {
	resource, key string
	token         int64
}

// stored reports whether this write, or a later one of the same lease, stored the record. Only a put without a
// precondition is judged so: it counts as applied, since no reader can have seen that it was not. It counts once that is
// durable: a failover could still take back what the gateway has in doubt.
func (b *BulkWriter) stored(w *PendingWrite, verdict api.BulkVerdict) bool {
	var line struct {
		Op        string           `json:"op"`
		Key       string           `json:"key"`
		IfVersion *json.RawMessage `json:"if_version"`
	}
	if json.Unmarshal(w.line, &line) != nil || line.Op != "put" || line.IfVersion != nil {
		return false
	}
	record := storedRecord{verdict.Resource, line.Key, *verdict.Token}
	if b.storedBy[record] >= *verdict.Sequence {
		return true
	}
	there, err := retry(b.ctx, b.client, untilAnswered, retryable, func() (Record, error) {
		return b.client.API().Get(b.ctx, record.resource, record.key, Durable())
	})
	by := there.Token
	if err != nil || by.Token != record.token || by.Sequence == nil {
		return false
	}
	if len(b.storedBy) >= storedByMax || b.storedBy == nil {
		b.storedBy = map[storedRecord]int64{}
	}
	b.storedBy[record] = *by.Sequence
	return *by.Sequence >= *verdict.Sequence
}
