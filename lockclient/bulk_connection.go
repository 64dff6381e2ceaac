package lockclient

import (
	"errors"
	"io"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// pipelineLink is one stream of a Pipeline. All is guarded by the pipeline, but stream and limit, which stay.
type pipelineLink struct {
	pipeline *Pipeline
	stream   *lineStream
	limit    time.Duration
	silence  *time.Timer // runs while something is waited for

	closed bool
	cursor *PendingWrite // the next to be sent
	rest   []byte        // of a line that was sent in part
	sent   []*PendingWrite
	head   int  // of sent, the first without a verdict
	silent bool // nothing was heard in time
	// undecided is a verdict that is none: the line is to be sent again.
	undecided error
}

// offer has a write sent that came last. The pipeline's lock is held.
func (l *pipelineLink) offer(w *PendingWrite) {
	if l != nil && l.cursor == nil {
		l.cursor = w
	}
}

// waiting is how many lines have no verdict. The pipeline's lock is held.
func (l *pipelineLink) waiting() int { return len(l.sent) - l.head }

// read gives what there is to send, and waits while there is nothing.
func (l *pipelineLink) read(into []byte) (int, error) {
	p := l.pipeline
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if l.closed || p.ctx.Err() != nil {
			return 0, errStreamClosed
		}
		if n := l.fill(into); n > 0 {
			return n, nil
		}
		if p.closing && p.held == 0 {
			l.silence.Reset(l.limit)
			return 0, io.EOF
		}
		p.work.Wait()
	}
}

// fill copies what is to be sent. The pipeline's lock is held.
func (l *pipelineLink) fill(into []byte) int {
	n := 0
	for n < len(into) {
		if len(l.rest) == 0 {
			for l.cursor != nil && l.cursor.settled {
				l.cursor = l.cursor.next
			}
			if l.cursor == nil {
				break
			}
			if l.waiting() == 0 {
				l.silence.Reset(l.limit)
			}
			l.cursor.sent = true
			l.sent = append(l.sent, l.cursor)
			l.rest, l.cursor = l.cursor.line, l.cursor.next
		}
		copied := copy(into[n:], l.rest)
		n, l.rest = n+copied, l.rest[copied:]
	}
	return n
}

// close has nothing more sent.
func (l *pipelineLink) close() {
	l.pipeline.mu.Lock()
	defer l.pipeline.mu.Unlock()
	l.closed = true
	l.pipeline.work.Broadcast()
}

// connect opens a stream at the first gateway that agrees.
func (p *Pipeline) connect() (*pipelineLink, error) {
	c := p.lease.client
	l := &pipelineLink{pipeline: p, limit: c.answerTimeout}
	var err error
	if l.stream, err = c.openLines(p.ctx, "writes under "+p.lease.String(), l.read, l.close); err != nil {
		return nil, err
	}
	l.silence = time.AfterFunc(l.limit, func() {
		p.mu.Lock()
		l.silent = true
		p.mu.Unlock()
		l.stream.cancel()
	})
	l.silence.Stop()
	p.mu.Lock()
	l.cursor, p.link = p.first, l
	p.mu.Unlock()
	l.stream.agree()
	return l, nil
}

// follow hears verdicts until the stream ends. It returns how many writes they settled, and the error that ended it: nil where the gateway
// has ended it for no fault.
func (l *pipelineLink) follow() (settled int, err error) {
	end, err := l.stream.follow(func(verdict api.BulkVerdict) error {
		done, err := l.hear(verdict)
		if done {
			settled++
		}
		return err
	})
	return settled, l.ended(end, err)
}

func (l *pipelineLink) hear(verdict api.BulkVerdict) (settled bool, err error) {
	p := l.pipeline
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.waiting() == 0 {
		return false, l.stream.foreign("a verdict on a line that was not sent")
	}
	w := l.sent[l.head]
	l.sent[l.head] = nil
	l.head++
	if l.waiting() == 0 {
		l.silence.Stop()
		l.sent, l.head = l.sent[:0], 0
	} else {
		l.silence.Reset(l.limit)
	}
	w.sent = false
	settled = p.judge(w, verdict)
	if !settled {
		l.undecided = &Error{Op: w.op, Problem: verdict.Problem()}
	}
	return settled, nil
}

// ended takes the end of the stream. What a gateway has not taken, as it says, was not applied; where it says nothing, nobody knows of the
// writes without a verdict.
func (l *pipelineLink) ended(end api.BulkEnd, err error) error {
	l.stream.end()
	l.silence.Stop()
	p := l.pipeline
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link = nil
	if err != nil && l.silent {
		err = l.stream.broken(errors.New("nothing was heard for " + l.limit.String()))
	}
	for _, w := range l.sent[l.head:] {
		w.sent = false
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
