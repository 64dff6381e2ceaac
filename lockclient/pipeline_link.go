package lockclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// verdictBytesMax bounds a line of an answer.
const verdictBytesMax = 64 << 10

// emptyLineEvery is how often it is looked whether a connection lives on which the gateway has not agreed yet.
const emptyLineEvery = 100 * time.Millisecond

var errLinkClosed = errors.New("the stream is closed")

// pipelineLink is one stream to a gateway. It is the body of the request: the transport reads the lines from it as fast as they can be sent.
type pipelineLink struct {
	pipeline *Pipeline
	call     request
	at       gateway
	place    int
	left     dispatch
	cancel   context.CancelFunc
	response *http.Response
	silence  *time.Timer // runs while a verdict is waited for
	limit    time.Duration

	agreed chan struct{} // closed when lines may be sent
	over   chan struct{} // closed with the link
	empty  int64         // lines that were sent before that; the transport's until agreed is closed

	// The rest is guarded by the pipeline.
	closed bool
	cursor *PendingWrite // the next to be sent
	rest   []byte        // of a line that was sent in part
	sent   []*PendingWrite
	head   int   // of sent, the first without an answer
	heard  int64 // how many lines were answered
	silent bool  // nothing was heard in time
}

// waiting is how many lines have no answer. The pipeline's lock is held.
func (l *pipelineLink) waiting() int { return len(l.sent) - l.head }

// offer has a write sent that came last. The pipeline's lock is held.
func (l *pipelineLink) offer(w *PendingWrite) {
	if l != nil && l.cursor == nil {
		l.cursor = w
	}
}

// Read gives the transport what there is to send, and waits while there is nothing.
//
// Until the gateway has agreed it gives an empty line now and then, which the gateway counts and ignores: the transport finds out by writing
// only that the connection is dead, and returns from the request only when it is done with the body.
func (l *pipelineLink) Read(into []byte) (int, error) {
	select {
	case <-l.agreed:
		return l.readLines(into)
	case <-l.over:
		return 0, errLinkClosed
	case <-time.After(emptyLineEvery):
		l.empty++
		return copy(into, "\n"), nil
	}
}

func (l *pipelineLink) readLines(into []byte) (int, error) {
	p := l.pipeline
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if l.closed || p.ctx.Err() != nil {
			return 0, errLinkClosed
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

// Close is called by the transport when it reads no more.
func (l *pipelineLink) Close() error {
	l.pipeline.mu.Lock()
	defer l.pipeline.mu.Unlock()
	l.close()
	return nil
}

// close has no more lines sent. The pipeline's lock is held.
func (l *pipelineLink) close() {
	if !l.closed {
		l.closed = true
		close(l.over)
		l.pipeline.work.Broadcast()
	}
}

// dial asks one gateway for a stream, and returns when it has agreed.
func (p *Pipeline) dial(place int) (*pipelineLink, error) {
	c := p.lease.client
	life, cancel := context.WithCancel(p.ctx)
	l := &pipelineLink{
		pipeline: p, place: place, at: c.gateways[place], cancel: cancel, limit: c.answerTimeout,
		agreed: make(chan struct{}), over: make(chan struct{}),
		call: request{
			op: "writes under " + p.lease.String(), method: http.MethodPost, path: "/v1/writes", repeat: repeatWrite, idempotent: true,
			header: http.Header{"Content-Type": {api.BulkContentType}, "Accept": {api.BulkContentType}},
		},
	}
	late := time.AfterFunc(l.limit, l.cut)
	defer late.Stop()
	httpRequest, err := c.build(l.left.observe(life), l.call, l.at)
	if err != nil {
		cancel()
		return nil, err
	}
	httpRequest.Body, httpRequest.ContentLength, httpRequest.GetBody = l, -1, nil
	if l.response, err = c.http.Do(httpRequest); err != nil {
		cancel()
		return nil, l.at.unanswered(l.call, api.OutcomeNotApplied, err) // no line was sent
	}
	mediaType, _, _ := mime.ParseMediaType(l.response.Header.Get("Content-Type"))
	if l.response.StatusCode != http.StatusOK || mediaType != api.BulkContentType {
		defer l.end()
		got, err := c.read(l.call, l.at, &l.left, l.response)
		if err == nil {
			err = l.at.foreign(l.call, got, "no stream of verdicts")
		}
		return nil, err
	}
	l.silence = time.AfterFunc(l.limit, l.giveUp)
	l.silence.Stop()
	return l, nil
}

// giveUp ends a stream on which nothing was heard for too long.
func (l *pipelineLink) giveUp() {
	l.pipeline.mu.Lock()
	l.silent = true
	l.pipeline.mu.Unlock()
	l.cut()
}

// cut ends the stream from any goroutine. Over HTTP/2 the transport hears of the end of its context only when the body has come to its own.
func (l *pipelineLink) cut() {
	l.cancel()
	_ = l.Close()
}

// end closes the stream for good.
func (l *pipelineLink) end() {
	l.cut()
	if l.silence != nil {
		l.silence.Stop()
	}
	_ = l.response.Body.Close()
}

// begin has the lines sent that have no verdict, from the first.
func (l *pipelineLink) begin() {
	p := l.pipeline
	p.mu.Lock()
	defer p.mu.Unlock()
	l.cursor, p.link = p.first, l
	close(l.agreed)
}

// follow reads verdicts until the stream ends. It returns how many writes it settled, and the error that ended it: nil where the gateway
// has ended it for no fault.
func (l *pipelineLink) follow() (settled int, err error) {
	lines := bufio.NewScanner(l.response.Body)
	lines.Buffer(make([]byte, 0, 16<<10), verdictBytesMax)
	var doubtful error
	for lines.Scan() {
		var line struct {
			api.BulkVerdict
			api.BulkEnd
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return settled, l.foreign("a verdict is not JSON: " + err.Error())
		}
		if line.End != "" {
			return settled, l.ended(line.BulkEnd, doubtful)
		}
		fault, done := l.hear(line.BulkVerdict, &doubtful)
		if fault != "" {
			return settled, l.foreign(fault)
		}
		if done {
			settled++
		}
	}
	return settled, l.at.unanswered(l.call, api.OutcomeUnknown, l.cause(lines.Err()))
}

// cause is why the stream broke off.
func (l *pipelineLink) cause(err error) error {
	l.pipeline.mu.Lock()
	defer l.pipeline.mu.Unlock()
	switch {
	case l.silent:
		return errors.New("no verdict came within " + l.limit.String())
	case err == nil:
		return io.ErrUnexpectedEOF
	}
	return err
}

// hear takes a verdict. It names what is wrong with one that fencegate does not give.
func (l *pipelineLink) hear(verdict api.BulkVerdict, undecided *error) (fault string, settled bool) {
	p := l.pipeline
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case l.waiting() == 0:
		return "a verdict on a line that was not sent", false
	case verdict.Line != l.empty+l.heard+1:
		return fmt.Sprintf("the verdict on line %d, before that on line %d", verdict.Line, l.empty+l.heard+1), false
	case verdict.Code == "" && (verdict.Version == nil || verdict.FencingToken == nil || verdict.Replayed == nil):
		return "a verdict without version, fencing_token or replayed", false
	}
	w := l.sent[l.head]
	l.sent[l.head] = nil
	l.head++
	l.heard++
	if l.waiting() == 0 {
		l.silence.Stop()
		l.sent, l.head = l.sent[:0], 0
	} else {
		l.silence.Reset(l.limit)
	}
	w.sent = false
	settled = p.judge(w, verdict)
	if !settled {
		*undecided = &Error{Op: w.op, Problem: verdict.Problem()}
	}
	return "", settled
}

// ended takes the end that the gateway gave to the stream: what it has not taken was not applied.
func (l *pipelineLink) ended(end api.BulkEnd, undecided error) error {
	p := l.pipeline
	p.mu.Lock()
	defer p.mu.Unlock()
	l.close()
	if next := l.empty + l.heard + 1; end.NextLine != next && (l.heard > 0 || end.NextLine != 1) {
		return l.foreign(fmt.Sprintf("it ended before line %d, which was to be line %d", end.NextLine, next))
	}
	for _, w := range l.sent[l.head:] {
		w.sent = false
	}
	switch {
	case undecided != nil:
		return undecided
	case end.End == api.BulkComplete, end.End == api.BulkIdle:
		return nil
	}
	return notSent(l.call.op, "the gateway ended the stream: "+end.End, nil)
}

// drop ends the stream, and notes which writes it leaves in doubt.
func (l *pipelineLink) drop(cause error) {
	l.end()
	p := l.pipeline
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link = nil
	for w := p.first; w != nil; w = w.next {
		if !w.sent || w.settled {
			continue
		}
		w.sent = false
		if w.doubt == nil {
			w.doubt = cause
		}
	}
}

func (l *pipelineLink) foreign(fault string) error {
	return &AnswerError{
		Op: l.call.op, URL: l.at.shown, Status: l.response.StatusCode, ContentType: api.BulkContentType, Fault: fault, Outcome: api.OutcomeUnknown,
	}
}
