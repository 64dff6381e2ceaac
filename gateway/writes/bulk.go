package writes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

const (
	// BulkSpansMax is how many writes of one request get spans.
	BulkSpansMax = 100
	// bulkPauseMin and bulkPauseMax bound the pause between two tries of a write for which the store has no room.
	bulkPauseMin = time.Millisecond
	bulkPauseMax = 50 * time.Millisecond
)

// bulk takes an array of independent writes, and answers the result of each.
func (e *Endpoints) bulk(w *endpoint.Answer, r *http.Request) error {
	if _, err := endpoint.Query(r); err != nil {
		return err
	}
	if err := endpoint.CheckContentType(r, "application/json", "a JSON array of writes"); err != nil {
		return err
	}
	body, err := e.ReadBodyWithin(w, r, endpoint.BodyLimit{Bytes: api.BulkBytesMax, Flag: "the most of one request"})
	if err != nil {
		return err
	}
	b := &bulkRequest{endpoints: e, begun: time.Now()}
	if err := b.parse(body); err != nil {
		return err
	}
	if err := e.CountMore(w, len(b.writes)-1); err != nil {
		return err
	}
	for i := range b.writes {
		if one := &b.writes[i]; one.err == nil {
			one.err = mayWrite(w.Principal, one.write.Resource)
			e.NoteForbidden(w, r, one.write.Resource, endpoint.CodeOf(one.err))
			one.malformed = one.err != nil
		}
	}
	b.commit(r)
	b.count(w, r)
	answer := api.BulkResults{Results: make([]api.BulkResult, len(b.writes))}
	for i := range b.writes {
		answer.Results[i] = b.writes[i].answer(w)
	}
	endpoint.AnswerDocument(w, endpoint.JSONContentType, http.StatusOK, &answer)
	return nil
}

// bulkRequest is one POST /v1/writes.
type bulkRequest struct {
	endpoints *Endpoints
	begun     time.Time
	writes    []bulkWrite
	undecided sync.WaitGroup

	// entering is held while a write is submitted, and while one is noted as undecided. The store reports such a write
	// before it refuses the writes that wait behind it on its resource. So a later write either waits behind it by then
	// or is not submitted: no later write of a resource is admitted after an earlier one that was not decided.
	entering sync.Mutex
	failure  error // why a write could not be decided; guarded by entering

	mu         sync.Mutex
	submitting *bulkWrite // Submit has not returned
	refused    error      // why the store did not decide it
}

// bulkWrite is one write of a request.
type bulkWrite struct {
	write     store.Write
	malformed bool // it was refused before it was submitted
	took      time.Duration
	result    store.Result
	err       error
}

// parse reads the writes. A write that is malformed has an err; it returns an error if the array is.
func (b *bulkRequest) parse(body []byte) error {
	// What is in a write is judged by itself.
	array := jsontext.NewDecoder(
		bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if array.PeekKind() != '[' {
		return endpoint.Invalid("The body must be a JSON array of writes.")
	}
	if _, err := array.ReadToken(); err != nil {
		return endpoint.InvalidJSON(err)
	}
	for array.PeekKind() != ']' {
		text, err := array.ReadValue()
		if err != nil {
			return endpoint.InvalidJSON(err)
		}
		if len(b.writes) == api.BulkWritesMax {
			return endpoint.Invalid("The array has more than %d writes: send several requests.", api.BulkWritesMax)
		}
		b.writes = append(b.writes, bulkWrite{})
		one := &b.writes[len(b.writes)-1]
		one.err = one.parse(text, b.endpoints.BodyBytesMax)
		one.malformed = one.err != nil
	}
	if _, err := array.ReadToken(); err != nil {
		return endpoint.InvalidJSON(err)
	}
	if _, err := array.ReadToken(); !errors.Is(err, io.EOF) {
		return endpoint.Invalid("The body is not JSON: something follows the array.")
	}
	return nil
}

func (b *bulkWrite) parse(text []byte, valueMax int64) error {
	if text[0] != '{' { // null would decode as an object without fields
		return endpoint.Invalid("The write must be a JSON object.")
	}
	var write api.BulkWrite
	if err := json.Unmarshal(text, &write, json.RejectUnknownMembers(true)); err != nil {
		return endpoint.InvalidJSON(err)
	}
	token, err := writeTokenOf(api.WriteToken{
		Resource: write.Resource, FencingToken: write.FencingToken, Sequence: write.Sequence, LeaseID: write.LeaseID,
	})
	if err != nil {
		return err
	}
	operation, err := operationOf(&api.Op{
		Op: write.Op, Key: write.Key, Value: write.Value, ValueBase64: write.ValueBase64,
		ContentType: write.ContentType, IfVersion: write.IfVersion,
	})
	if err != nil {
		return err
	}
	if int64(len(operation.Value)) > valueMax {
		return endpoint.OverLimit("The value", valueMax)
	}
	b.write = store.Write{WriteToken: token, Operation: operation}
	return nil
}

// commit submits the writes in their order, and waits until each is decided. It finishes them even if the client leaves:
// the store bounds the time of each.
func (b *bulkRequest) commit(r *http.Request) {
	ctx := context.WithoutCancel(r.Context())
	for i := range b.writes {
		if i == BulkSpansMax {
			ctx = trace.ContextWithSpan(ctx, nil)
		}
		if one := &b.writes[i]; one.err == nil {
			b.undecided.Add(1)
			b.submit(ctx, one)
		}
	}
	b.undecided.Wait()
}

// submit submits a write to the store. While too many writes wait, it retries, and takes no other write: the order of
// the array is the order of the writes to a resource.
func (b *bulkRequest) submit(ctx context.Context, one *bulkWrite) {
	decided := func(result store.Result, err error) { b.decide(one, result, err) }
	for pause := bulkPauseMin; ; pause = min(2*pause, bulkPauseMax) {
		err := b.enter(ctx, one, decided)
		if err == nil {
			return
		}
		if !errors.Is(err, store.ErrOverloaded) || time.Since(b.begun) > b.endpoints.RequestTimeout {
			b.fail(err)
			b.settle(one, store.Result{}, err)
			return
		}
		time.Sleep(endpoint.Jittered(pause))
	}
}

// enter returns an error if the write was not submitted, or not decided at once.
func (b *bulkRequest) enter(ctx context.Context, one *bulkWrite, decided func(store.Result, error)) error {
	b.entering.Lock()
	defer b.entering.Unlock()
	if b.failure != nil {
		return b.failure
	}
	b.mu.Lock()
	b.submitting, b.refused = one, nil
	b.mu.Unlock()
	b.endpoints.service.Submit(ctx, one.write, decided)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.submitting = nil
	return b.refused
}

// decide takes the verdict of the store, once, from any goroutine. An ErrUnavailable that arrives before Submit has
// returned is left to submit, which may submit the write again.
func (b *bulkRequest) decide(one *bulkWrite, result store.Result, err error) {
	if errors.Is(err, store.ErrUnavailable) {
		b.mu.Lock()
		left := b.submitting == one
		if left {
			b.refused = err
		}
		b.mu.Unlock()
		if left {
			return
		}
		b.fail(err)
	}
	b.settle(one, result, err)
}

// fail keeps later writes from being submitted.
func (b *bulkRequest) fail(err error) {
	b.entering.Lock()
	defer b.entering.Unlock()
	if b.failure == nil {
		b.failure = store.NotApplied(fmt.Errorf("a write before it could not be decided: %w", err))
	}
}

func (b *bulkRequest) settle(one *bulkWrite, result store.Result, err error) {
	if err == nil {
		err = result.Err
	}
	one.result, one.err, one.took = result, err, time.Since(b.begun)
	b.undecided.Done()
}

// count counts the verdicts of the store, logs one failure that is not the client's, and delays the answer to a client
// whose tokens are refused again and again.
func (b *bulkRequest) count(w *endpoint.Answer, r *http.Request) {
	var refused error
	admitted, logged := false, false
	for i := range b.writes {
		one := &b.writes[i]
		if one.malformed {
			continue
		}
		b.endpoints.Count(w, r, metrics.SourceBulk, one.took, one.err)
		if one.err == nil {
			admitted = true
			continue
		}
		if refused == nil || endpoint.IsRefusedForGood(one.err) {
			refused = one.err
		}
		if level, message := endpoint.Failure(one.err, endpoint.CodeOf(one.err)); message != "" && !logged {
			logged = true
			b.endpoints.Logger.Log(r.Context(), level, message,
				"method", r.Method, "path", r.URL.Path, "index", i, "error", one.err)
		}
	}
	if !admitted && refused != nil {
		b.endpoints.RefusalDelays.Hold(w, r, refused)
	}
}

func (b *bulkWrite) answer(w *endpoint.Answer) api.BulkResult {
	if b.err != nil {
		problem := endpoint.ProblemOf(endpoint.Redacted(w.Principal, b.err))
		return api.BulkResult{Status: problem.Status, Problem: problem}
	}
	return api.BulkResult{Status: writeStatus(b.result), Result: writeResult(&b.write, b.result)}
}
