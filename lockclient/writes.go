package lockclient

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/fencegate/fencegate/lockclient/api"
)

// WriteOutcome is what became of one write of [Client.Writes].
type WriteOutcome struct {
	// Result is the gateway's, if Err is nil.
	Result api.WriteResult
	// Err is nil if the write was applied. It matches [ErrOutcomeUnknown] if the write may have been applied.
	Err error
}

// Writes makes any number of independent writes, each with a token of its own, and returns the outcome of each, in
// their order. Those to one resource are decided in their order. For writes under a lease of this program, see
// [Lease.Writes].
//
// It sends one request after the other, each with up to 1,000 writes and 4 MiB; a larger write is ErrTooLarge. A
// refused write does not stop the others: its Err is that of [API.Put] or [API.Delete]. A JSON Value loses the white
// space between its parts; ValueBase64 keeps every byte.
//
// What got no answer, or ErrUnavailable or ErrRateLimited, is sent again for some 30 seconds, or until ctx ends. A write
// with a Sequence is applied at most once, however often it is sent. One without is not sent again if it may have been
// applied: its Err matches [ErrOutcomeUnknown]. If writes stay without an answer, those of later requests are not sent.
//
// A fence remembers its last accepted write only. So if an answer to several writes to one resource was lost, all but
// the last may be answered ErrTokenStale with [ErrOutcomeUnknown], though they were applied: read the records.
func (c *Client) Writes(ctx context.Context, writes []api.BulkWrite) []WriteOutcome {
	outcomes := make([]WriteOutcome, len(writes))
	var unanswered error
	var part []*bulkWrite
	size := 2 // the brackets
	send := func() {
		if len(part) > 0 {
			unanswered = c.sendWrites(ctx, part)
		}
		part, size = nil, 2
	}
	for i, write := range writes {
		op := write.Op + " " + write.Resource + " " + write.Key
		text, err := jsonText(op, "write", write)
		if err != nil {
			outcomes[i].Err = err
			continue
		}
		if len(part) == api.BulkWritesMax || size+len(text) >= api.BulkBytesMax {
			send()
		}
		if unanswered != nil {
			outcomes[i].Err = notSent(op, "a write before it got no answer: "+unanswered.Error(), nil) // whose outcome is another
			continue
		}
		part = append(part, &bulkWrite{op: op, text: text, numbered: write.Sequence != nil, outcome: &outcomes[i]})
		size += len(text) + 1
	}
	send()
	return outcomes
}

// bulkWrite is one write on its way.
type bulkWrite struct {
	op       string
	text     []byte
	numbered bool
	outcome  *WriteOutcome
	doubt    error // why an earlier attempt got no answer
}

// sendWrites makes the writes of one request. It returns an error if some of them got no answer.
func (c *Client) sendWrites(ctx context.Context, left []*bulkWrite) error {
	err := c.retry(ctx, untilAnswered, retryable, func() (err error) {
		left, err = c.tryWrites(ctx, left)
		return err
	})
	if err != nil {
		for _, write := range left {
			write.outcome.Err = endedWith(ctx, write.outcome.Err, nil)
		}
	}
	return err
}

// tryWrites sends writes once, and returns those to be sent again, with the reason.
func (c *Client) tryWrites(ctx context.Context, writes []*bulkWrite) (again []*bulkWrite, why error) {
	results, err := c.postWrites(ctx, writes)
	for i, write := range writes {
		failed := err
		if err == nil {
			problem := results[i].Problem
			if problem == nil {
				*write.outcome = WriteOutcome{Result: *results[i].Result}
				continue
			}
			failed = &Error{Op: write.op, Problem: problem, RetryAfter: retryAfter(problem, "")}
		}
		write.outcome.Err = remember(failed, write.doubt)
		unknown := errors.Is(failed, ErrOutcomeUnknown)
		if !retryable(failed) || unknown && !write.numbered {
			continue
		}
		if unknown && write.doubt == nil {
			write.doubt = failed
		}
		if why == nil {
			why = failed
		}
		again = append(again, write)
	}
	return again, why
}

// postWrites is one POST /v1/writes. It is not idempotent for the call: tryWrites must know of a lost answer, which each
// result of a later one says nothing of.
func (c *Client) postWrites(ctx context.Context, writes []*bulkWrite) ([]api.BulkResult, error) {
	texts := make([][]byte, len(writes))
	for i, write := range writes {
		texts[i] = write.text
	}
	call := request{
		op: "writes", method: http.MethodPost, path: "/v1/writes", repeat: repeatWrite,
		header: http.Header{"Content-Type": {"application/json"}},
		body:   slices.Concat([]byte("["), bytes.Join(texts, []byte(",")), []byte("]")),
	}
	answer, err := fetch(ctx, c.API(), call, func(answer api.BulkResults) string {
		incomplete := func(one api.BulkResult) bool {
			return one.Problem == nil && (one.Result == nil || resultLacks(*one.Result) != "")
		}
		if len(answer.Results) != len(writes) || slices.ContainsFunc(answer.Results, incomplete) {
			return "not a result for each write"
		}
		return ""
	})
	return answer.Results, err
}

// Writes makes writes under the lease's token and the next numbers, as [Client.Writes] does. One without a Resource is
// on the lease's own. It waits for the lease's earlier writes. A refusal that says that the lease has ended ends
// it, as in Put.
func (l *Lease) Writes(ctx context.Context, writes []api.BulkWrite) []WriteOutcome {
	if err := takeTurn(ctx, l.writing, "writes under "+l.String()); err != nil {
		return slices.Repeat([]WriteOutcome{{Err: err}}, len(writes))
	}
	defer endTurn(l.writing)
	writes = slices.Clone(writes)
	for i := range writes {
		if writes[i].Resource == "" {
			writes[i].Resource = l.granted.Lock
		}
		l.sequence++
		writes[i].FencingToken, writes[i].LeaseID = &l.granted.FencingToken, &l.granted.LeaseID
		writes[i].Sequence = pointer(l.sequence)
	}
	outcomes := l.client.Writes(ctx, writes)
	ended := false
	for i := range outcomes {
		ended = l.endIfRejected(writes[i].Resource, outcomes[i].Err) || ended
	}
	if ended {
		l.askForHolder(ctx)
	}
	return outcomes
}
