package lockclient

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/fencegate/fencegate/lockclient/api"
)

// Pipeline sends many writes of one lease without waiting for each. The gateway decides them in the order of the calls
// of Put and Delete, which also numbers them. It is safe for concurrent use.
//
// Each write stands alone: one that is rejected, for a precondition or for its data, does not stop the writes after it.
//
// # A stream that is cut
//
// The pipeline opens another stream, to the next gateway if need be, and resends all writes without a verdict, with the
// same numbers. None is applied twice. But a fence remembers the content of its last accepted write only. Of an earlier
// write it knows no more than that a later one was accepted. [PendingWrite.Wait] returns then:
//
//   - For a put without a precondition: success, if this put or a later one of the same lease stored the record. The
//     pipeline reads the record to find out. The result has Replayed set, and Version 0, because it is not known.
//   - Otherwise ErrTokenStale and [ErrOutcomeUnknown]. The write may have been rejected, for its data or by a policy
//     that has changed since, and the answer lost. Read the record if you need to know.
//
// # The end
//
// When the lease is lost, Put and Delete return ErrLeaseLost. Writes that were sent before still get their verdicts.
// When no gateway gives a verdict for some 30 seconds ([PipelineRetryFor]), all writes in the pipeline fail with
// ErrUnavailable, and with ErrOutcomeUnknown if they may have been applied. The next write of this lease to the same
// resource that is admitted settles them: each was applied before it, or never will be.
type Pipeline struct {
	lease  *Lease
	writer *BulkWriter
}

// Pipeline starts a pipeline. Close it: it runs in the background until Close, or until ctx or the client ends. Its
// writes fail then, with ErrOutcomeUnknown if they were sent.
//
// While the pipeline has writes without a verdict, the lease's other writes wait; call Flush to let them continue.
// Pipeline returns ErrInvalidRequest for an option out of its limits, ErrClosed if the client is closed, and the error
// of Lease.Err if the lease has ended.
func (l *Lease) Pipeline(ctx context.Context, opts ...PipelineOption) (*Pipeline, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	writer, err := l.client.startBulk(ctx, l, "writes under "+l.String(), opts)
	if err != nil {
		return nil, err
	}
	return &Pipeline{lease: l, writer: writer}, nil
}

// Put adds a write like Lease.Put. It returns when there is room for it in the window, which is before it has a
// verdict. The value is read before Put returns.
//
// It returns ErrInvalidRequest or ErrInvalidName for a write that would not arrive as it is; ErrLeaseLost,
// ErrLeaseReleased or ErrClosed if the lease has ended; ErrUnavailable, or an error that matches context.Canceled, if
// ctx ended before there was room. The write was not sent then, and used no number.
func (p *Pipeline) Put(ctx context.Context, key string, value []byte, opts ...WriteOption) (*PendingWrite, error) {
	config := p.lease.writeConfig(opts)
	return p.add(ctx, "put", key, config, pointer(base64.StdEncoding.EncodeToString(value)))
}

// PutJSON adds a write like Put, of a value as application/json.
func (p *Pipeline) PutJSON(ctx context.Context, key string, value any, opts ...WriteOption) (*PendingWrite, error) {
	text, err := jsonText("put "+p.lease.granted.Lock+" "+key, "value", value)
	if err != nil {
		return nil, err
	}
	return p.Put(ctx, key, text, append([]WriteOption{WithContentType("application/json")}, opts...)...)
}

// Delete adds the removal of a record, as Put adds a write. Its result is ErrNotFound if there is no record.
func (p *Pipeline) Delete(ctx context.Context, key string, opts ...WriteOption) (*PendingWrite, error) {
	config := p.lease.writeConfig(opts)
	if err := config.checkDelete("delete " + config.resource + " " + key); err != nil {
		return nil, err
	}
	return p.add(ctx, "delete", key, config, nil)
}

// Flush waits until every write that was added before has its result. It returns the first error of a write that no
// Flush has returned before, or ctx's error. PendingWrite.Wait returns the error of each.
func (p *Pipeline) Flush(ctx context.Context) error { return p.writer.Flush(ctx) }

// Close waits until every write has its result, as Flush does, and ends the pipeline; none of its goroutines is left.
// Later writes are refused. It returns what Flush would. If no gateway answers it takes some 30 seconds; cancel the
// pipeline's ctx to end it at once. It may be called again.
func (p *Pipeline) Close() error { return p.writer.Close() }

func (p *Pipeline) add(ctx context.Context, op, key string, config writeConfig, value *string) (*PendingWrite, error) {
	w := &PendingWrite{op: op + " " + config.resource + " " + key, resource: config.resource, key: key}
	if err := w.check(config); err != nil {
		return nil, err
	}
	lease := &p.lease.granted
	line := api.BulkWrite{
		Op: op, Resource: config.resource, Key: key,
		ValueBase64: value, ContentType: config.ContentType, IfVersion: config.IfMatch,
		FencingToken: &lease.FencingToken, LeaseID: &lease.LeaseID,
	}
	if config.IfNoneMatch {
		line.IfVersion = new(int64)
	}
	text, _ := json.Marshal(line) // valid UTF-8 and no custom types: it can't fail
	// The writer appends the number when there is room.
	w.line = slices.Concat(text[:len(text)-1], []byte(`,"sequence":`))
	if err := p.writer.add(ctx, w); err != nil {
		return nil, err
	}
	return w, nil
}

// PendingWrite is a write in a [Pipeline]. It is safe for concurrent use.
type PendingWrite struct {
	op, resource, key string
	index, sequence   int64
	line              []byte
	// doubt is why an earlier attempt got no verdict. Only the writer's sending goroutine uses it.
	doubt error
	// The writer's mutex guards the rest until done is closed.
	next    *PendingWrite
	settled bool
	verdict api.BulkVerdict
	err     error
	done    chan struct{}
}

// Done is closed when the write has its result.
func (w *PendingWrite) Done() <-chan struct{} { return w.done }

// Sequence returns the number of the write under the lease's token.
func (w *PendingWrite) Sequence() int64 { return w.sequence }

// Wait waits for the result, and returns what Lease.Put would have returned. See [Pipeline] for a write whose verdict
// was lost. If ctx ends first it returns ctx's error, and the write stays in the pipeline.
func (w *PendingWrite) Wait(ctx context.Context) (api.WriteResult, error) {
	select {
	case <-w.done:
		return w.result()
	default:
	}
	select {
	case <-w.done:
		return w.result()
	case <-ctx.Done():
		return api.WriteResult{}, ctx.Err()
	}
}

func (w *PendingWrite) result() (api.WriteResult, error) {
	if w.err != nil {
		return api.WriteResult{}, w.err
	}
	result := api.WriteResult{
		Resource: w.resource, Key: w.key, FencingToken: *w.verdict.FencingToken, Sequence: &w.sequence,
		Replayed: *w.verdict.Replayed,
	}
	if w.verdict.Version != nil {
		result.Version = *w.verdict.Version
	}
	return result, nil
}

// check refuses a write that would not arrive as it is.
func (w *PendingWrite) check(config writeConfig) error {
	if _, err := recordPath(w.op, w.resource, w.key); err != nil {
		return err
	}
	for _, text := range []string{w.resource, w.key, config.ContentType} {
		if !utf8.ValidString(text) {
			return refused(w.op, api.CodeInvalidRequest, "a name or type is not valid UTF-8: "+quoteClipped(text))
		}
	}
	switch version := config.IfMatch; {
	case version != nil && config.IfNoneMatch:
		return refused(w.op, api.CodeInvalidRequest, "IfVersion and IfAbsent exclude each other")
	case version != nil && *version < 1:
		return refused(w.op, api.CodeInvalidRequest, "IfVersion is "+strconv.FormatInt(*version, 10)+
			", versions are positive; use IfAbsent for no record")
	}
	return nil
}
