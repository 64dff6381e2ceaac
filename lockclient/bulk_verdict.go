package lockclient

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/fencegate/fencegate/gateway/api"
)

var errPipelineClosed = errors.New("the pipeline is closed")

// PendingWrite is a write of a [Pipeline]. It is safe for concurrent use.
type PendingWrite struct {
	op       string
	key      string
	config   writeConfig
	put      bool
	sequence int64
	line     []byte

	// The rest is guarded by the pipeline until done is closed.
	next *PendingWrite
	// sent says that it may have reached a gateway on the present stream; doubt is why it got no verdict on an earlier one.
	sent    bool
	doubt   error
	settled bool
	done    chan struct{}
	result  api.WriteResult
	err     error
}

// Done is closed when there is a verdict, or there will be none.
func (w *PendingWrite) Done() <-chan struct{} { return w.done }

// Sequence is the number of the write under the lease's token.
func (w *PendingWrite) Sequence() int64 { return w.sequence }

// Wait waits for the verdict, and returns what Lease.Put would have; see [Pipeline] for what follows from a stream that was cut. If ctx ends
// before, it returns ctx's error, and the write goes on.
func (w *PendingWrite) Wait(ctx context.Context) (api.WriteResult, error) {
	select {
	case <-w.done:
		return w.result, w.err
	default:
	}
	select {
	case <-w.done:
		return w.result, w.err
	case <-ctx.Done():
		return api.WriteResult{}, ctx.Err()
	}
}

// check refuses what could not arrive as what it is.
func (w *PendingWrite) check() error {
	if _, err := recordPath(w.op, w.config.resource, w.key); err != nil {
		return err
	}
	for _, text := range []string{w.config.resource, w.key, w.config.contentType} {
		if !utf8.ValidString(text) {
			return refused(w.op, api.CodeInvalidRequest, "a name or type is not valid UTF-8: "+quoteClipped(text))
		}
	}
	switch version := w.config.ifVersion; {
	case version != nil && w.config.ifAbsent:
		return refused(w.op, api.CodeInvalidRequest, "IfVersion and IfAbsent can't both hold")
	case version != nil && *version < 1:
		return refused(w.op, api.CodeInvalidRequest, "IfVersion is "+strconv.FormatInt(*version, 10)+", versions are positive; IfAbsent is for no record")
	}
	return nil
}

// encode writes the line, without its number, which comes last. The value goes as base64: so it is kept byte for byte, whatever it is.
func (w *PendingWrite) encode(lease *Lease, value []byte) {
	op := "delete"
	if w.put {
		op = "put"
	}
	line := make([]byte, 0, 256+base64.StdEncoding.EncodedLen(len(value)))
	line = append(line, `{"op":"`+op+`","resource":`...)
	line = appendJSON(line, w.config.resource)
	line = append(line, `,"key":`...)
	line = appendJSON(line, w.key)
	line = append(line, `,"fencing_token":`...)
	line = strconv.AppendInt(line, lease.granted.FencingToken, 10)
	line = append(line, `,"lease_id":`...)
	line = appendJSON(line, lease.granted.LeaseID)
	if w.put {
		line = append(line, `,"value_base64":"`...)
		line = base64.StdEncoding.AppendEncode(line, value)
		line = append(line, '"')
		if w.config.contentType != "" {
			line = append(line, `,"content_type":`...)
			line = appendJSON(line, w.config.contentType)
		}
	}
	if w.config.ifAbsent {
		line = append(line, `,"if_version":0`...)
	} else if w.config.ifVersion != nil {
		line = append(line, `,"if_version":`...)
		line = strconv.AppendInt(line, *w.config.ifVersion, 10)
	}
	line = append(line, `,"sequence":`...)
	w.line = line
}

func appendJSON(line []byte, text string) []byte {
	quoted, _ := json.Marshal(text) // of a string it can't fail
	return append(line, quoted...)
}

// add numbers a write and puts it into the window.
func (p *Pipeline) add(ctx context.Context, w *PendingWrite, value []byte) (*PendingWrite, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	w.done = make(chan struct{})
	w.encode(p.lease, value)
	if err := enter(ctx, p.adding, w.op); err != nil {
		return nil, err
	}
	defer leave(p.adding)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.awaitRoom(ctx, w); err != nil {
		p.leaveWriting()
		return nil, err
	}
	p.lease.sequence++
	w.sequence = p.lease.sequence
	w.line = append(strconv.AppendInt(w.line, w.sequence, 10), '}', '\n')
	if p.last == nil {
		p.first = w
	} else {
		p.last.next = w
	}
	p.last = w
	p.held++
	p.bytes += len(w.line)
	p.link.offer(w)
	p.work.Broadcast()
	return w, nil
}

// awaitRoom waits until there is room in the window, and makes the lease's other writes wait. p.mu is held, but not while it waits.
func (p *Pipeline) awaitRoom(ctx context.Context, w *PendingWrite) error {
	for {
		switch err := p.refusal(); {
		case err != nil:
			return err
		case p.held >= p.window || p.held > 0 && p.bytes+len(w.line) > pipelineBytesMax:
			if err := p.awaitChange(ctx); err != nil {
				return endedWith(ctx, notSent(w.op, "there is no room in the window", err), nil)
			}
		case !p.writing:
			// Only who adds makes it true, and there is one who does.
			p.mu.Unlock()
			err := enter(ctx, p.lease.writing, w.op)
			p.mu.Lock()
			if err != nil {
				return err
			}
			p.writing = true
		default:
			return nil
		}
	}
}

// refusal says why no write is taken any more.
func (p *Pipeline) refusal() error {
	switch {
	case p.closing:
		return refused("pipeline", api.CodeInvalidRequest, errPipelineClosed.Error())
	case p.lease.Err() != nil:
		return p.lease.Err()
	case p.ctx.Err() != nil:
		return endedWith(p.ctx, notSent("pipeline", "its ctx has ended", context.Cause(p.ctx)), nil)
	}
	return nil
}

// notSent is ErrUnavailable for what was not sent.
func notSent(op, why string, cause error) *Error {
	err := refused(op, api.CodeUnavailable, "it was not sent: "+why)
	err.Problem.Status, err.Problem.Retryable, err.Problem.Outcome = http.StatusServiceUnavailable, true, api.OutcomeNotApplied
	err.Cause = cause
	return err
}

// leaveWriting lets the lease's other writes go when nothing is under way. p.mu is held.
func (p *Pipeline) leaveWriting() {
	if p.writing && p.held == 0 {
		p.writing = false
		leave(p.lease.writing)
	}
}

// settle gives a write its verdict. p.mu is held.
func (p *Pipeline) settle(w *PendingWrite, result api.WriteResult, err error) {
	if w.settled {
		return
	}
	w.settled, w.result, w.err = true, result, err
	if p.failure == nil {
		p.failure = err
	}
	p.held--
	p.bytes -= len(w.line)
	w.line = nil
	for p.first != nil && p.first.settled {
		// Who keeps a write must not keep all that came after it.
		p.first, p.first.next = p.first.next, nil
	}
	if p.first == nil {
		p.last = nil
		p.work.Broadcast() // for the end, if the pipeline is being closed
	}
	p.leaveWriting()
	close(w.done)
	close(p.changed)
	p.changed = make(chan struct{})
}

// judge reads a verdict. It reports whether it is one: unavailable is none, and the write is sent again. p.mu is held.
func (p *Pipeline) judge(w *PendingWrite, verdict api.BulkVerdict) (settled bool) {
	if verdict.Code == "" {
		result := api.WriteResult{
			Resource: w.config.resource, Key: w.key, Version: *verdict.Version, FencingToken: *verdict.FencingToken,
			Sequence: &w.sequence, Replayed: *verdict.Replayed,
		}
		p.settle(w, result, nil)
		return true
	}
	refusal := &Error{Op: w.op, Problem: verdict.Problem()}
	err := remember(refusal, w.doubt)
	if unanswered(err) {
		if refusal.Problem.Outcome == api.OutcomeUnknown && w.doubt == nil {
			w.doubt = refusal
		}
		return false
	}
	if w.doubt != nil && w.unconditional() && p.passed(w, refusal.Problem) && p.stored(w) {
		p.settle(w, api.WriteResult{
			Resource: w.config.resource, Key: w.key, FencingToken: p.lease.granted.FencingToken, Sequence: &w.sequence, Replayed: true,
		}, nil)
		return true
	}
	p.lease.heed(w.config.resource, err)
	p.settle(w, api.WriteResult{}, err)
	return true
}

// unconditional says that it is never refused for its data.
func (w *PendingWrite) unconditional() bool {
	return w.put && w.config.ifVersion == nil && !w.config.ifAbsent
}

// passed says that the fence's last accepted write is a later one of this lease. It proves nothing about an earlier one: that may have been
// refused under a policy that was changed before the later one.
func (p *Pipeline) passed(w *PendingWrite, problem *api.Problem) bool {
	return problem.Code == api.CodeTokenStale && problem.LastToken != nil && problem.LastSequence != nil &&
		*problem.LastToken == p.lease.granted.FencingToken && *problem.LastSequence > w.sequence
}

// stored reads whether the record was stored by this put or a later one of this lease. Then the put may count as applied: nobody can have
// seen that it was not. p.mu is held, but not while it reads.
func (p *Pipeline) stored(w *PendingWrite) bool {
	p.mu.Unlock()
	defer p.mu.Lock()
	var page api.Records
	client := p.lease.client
	err := client.insist(p.ctx, insistence, unanswered, func() (err error) {
		page, err = client.API().Records(p.ctx, w.config.resource, RecordsQuery{Prefix: w.key, Limit: 1})
		return err
	})
	if err != nil || len(page.Records) == 0 || page.Records[0].Key != w.key {
		return false
	}
	by := page.Records[0]
	return by.FencingToken == p.lease.granted.FencingToken && by.Sequence != nil && *by.Sequence >= w.sequence
}

// giveUp settles all that is under way with an error, unless it has a better one. p.mu is held.
func (p *Pipeline) giveUp(cause error) {
	for w, next := p.first, (*PendingWrite)(nil); w != nil; w = next {
		if next = w.next; w.settled {
			continue
		}
		problem := &api.Problem{
			Type: "about:blank", Title: "No verdict", Status: http.StatusServiceUnavailable, Code: api.CodeUnavailable, Retryable: true,
			Outcome: api.OutcomeNotApplied, Detail: fmt.Sprintf("there was no verdict: %v. Nothing was applied.", cause),
		}
		if w.sent || w.doubt != nil {
			problem.Outcome = api.OutcomeUnknown
			problem.Detail = fmt.Sprintf("there was no verdict: %v. It may have been applied; the next write of this lease that is admitted settles it.", cause)
		}
		var err error = &Error{Op: w.op, Problem: problem, Cause: cause, Earlier: w.doubt}
		if isLost(cause) {
			err = lostDuring(err, cause)
		}
		p.settle(w, api.WriteResult{}, err)
	}
}
