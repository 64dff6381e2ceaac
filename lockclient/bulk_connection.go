package lockclient

import (
	"errors"
	"io"
	"slices"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

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
