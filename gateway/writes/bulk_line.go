package writes

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// bulkLine is a line that was taken. It is reused after its verdict was written.
type bulkLine struct {
	window *bulkWindow
	number int64
	bytes  int
	taken  time.Time
	write  store.Write
	// transaction is set if the line is a transaction, until it is settled; then write is not used.
	transaction *bulkTransaction
	// answer is the encoded answer of an admitted transaction, with a line feed.
	answer []byte
	// decided takes the verdict of the store, once, from any goroutine.
	decided func(store.Result, error)

	// submitting says that Submit has not returned; undecided then says why the line has no decision. The window guards
	// both.
	submitting bool
	undecided  error

	malformed bool // it was refused before it was submitted
	settled   bool // it has a result or an err
	result    store.Result
	err       error
}

// parse reads a write from the text of a line, which it does not keep.
//
// The decoder of encoding/json/v2 takes 1.4 µs for a line of 300 bytes here. A third of that checks that it is JSON
// without repeated names. A hand-written parser would save half of it, out of the 20 µs that a write costs in all.
func (l *bulkLine) parse(text []byte, valueMax int64) error {
	if text[0] != '{' { // null would decode as an object without fields
		return endpoint.Invalid("The line must be a JSON object.")
	}
	var write bulkDocument
	if err := json.Unmarshal(text, &write, json.RejectUnknownMembers(true)); err != nil {
		return endpoint.InvalidJSON(err)
	}
	if write.Fences != nil || write.Ops != nil {
		if int64(len(text)) > valueMax {
			return endpoint.OverLimit("The transaction", valueMax)
		}
		return l.parseTransaction(write)
	}
	token, err := writeTokenOf(api.WriteToken{
		Resource: write.Resource, FencingToken: write.FencingToken, Sequence: write.Sequence, LeaseID: write.LeaseID,
	})
	if err != nil {
		return err
	}
	operation, err := operationOf(&api.Op{
		Op: write.Op, Resource: write.Resource, Key: write.Key, Value: write.Value, ValueBase64: write.ValueBase64,
		ContentType: write.ContentType, IfVersion: write.IfVersion,
	})
	if err != nil {
		return err
	}
	if int64(len(operation.Value)) > valueMax {
		return endpoint.OverLimit("The value", valueMax)
	}
	l.write = store.Write{WriteToken: token, Operation: operation}
	return nil
}

// decide takes the verdict of the store. An ErrUnavailable that arrives before Submit has returned is left to the
// reader, which may submit the line again.
func (l *bulkLine) decide(result store.Result, err error) {
	if errors.Is(err, store.ErrUnavailable) && l.window.leaveUndecided(l, err) {
		return
	}
	l.window.settle(l, result, err)
}

// refuse settles a line that was not submitted to the store.
func (l *bulkLine) refuse(err error) {
	l.malformed = true
	l.window.settle(l, store.Result{}, err)
}

// LineSpansMax is how many lines of a bulk stream get spans in a second: a stream may have millions of lines.
const LineSpansMax = 100

// lineSpans chooses the lines of a bulk stream that get spans.
type lineSpans struct {
	second time.Time // the beginning of the current one
	count  int
}

// context returns the context of the next line: ctx, or one without its span.
func (l *lineSpans) context(ctx context.Context) context.Context {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx
	}
	if now := time.Now(); now.Sub(l.second) >= time.Second {
		l.second, l.count = now, 0
	}
	if l.count++; l.count > LineSpansMax {
		return trace.ContextWithSpan(ctx, nil)
	}
	return ctx
}
