// Package writes is the part of the API that writes: records, transactions, writes in bulk, and the fences that decide
// about them.
package writes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

const (
	resourceRoute = "/v1/resources/{resource" + endpoint.AnyText
	// RecordRoute is the path of a record.
	RecordRoute = resourceRoute + "/records/{key" + endpoint.AnyText
)

// Service commits writes of many callers together, and remembers which are refused. It takes transactions, each alone,
// and has what was written.
type Service interface {
	Commit(context.Context, store.Write) (store.Result, error)
	Submit(ctx context.Context, write store.Write, done func(store.Result, error))
	SetFence(ctx context.Context, resource store.Name, last store.Accepted, reason string) (was store.Accepted, err error)

	Transact(context.Context, store.Transaction) (store.TransactionResult, error)
	Record(ctx context.Context, resource, key store.Name) (store.Record, error)
	DurableRecord(ctx context.Context, resource, key store.Name) (store.Record, error)
	Records(context.Context, store.RecordQuery) ([]store.Record, error)
	Fence(context.Context, store.Name) (store.Fence, error)
}

// Recorder records rejected writes. Record does no I/O.
type Recorder interface {
	Record(rejected *store.RejectedError, source, address, principal string)
}

// Endpoints are those of records, transactions, bulk writes, and fences.
type Endpoints struct {
	*endpoint.Server

	service  Service
	recorder Recorder
}

// New returns the endpoints of writes.
func New(server *endpoint.Server, service Service, recorder Recorder) *Endpoints {
	return &Endpoints{Server: server, service: service, recorder: recorder}
}

// Routes adds the routes of records, fences, transactions and bulk writes.
func (e *Endpoints) Routes(router *mux.Router) {
	e.Route(router, RecordRoute, endpoint.Methods{
		"PUT": e.PutRecord, "DELETE": e.DeleteRecord, "GET": e.getRecord, "HEAD": e.getRecord,
	})
	e.Route(router, resourceRoute+"/records", endpoint.Methods{"GET": e.WithoutBody(e.listRecords)})
	e.Route(router, resourceRoute+"/fence", endpoint.Methods{
		"GET": endpoint.WithoutBodyNamed(e.Server, endpoint.ResourceName, e.getFence),
		"PUT": endpoint.WithBody(e.Server, endpoint.ResourceName, e.setFence),
	})
	e.Route(router, "/v1/transactions", endpoint.Methods{"POST": endpoint.WithBody(e.Server, endpoint.NoName, e.transact)})
	e.Route(router, "/v1/writes", endpoint.Methods{"POST": e.bulk})
}

// PutRecord writes a record.
func (e *Endpoints) PutRecord(w *endpoint.Answer, r *http.Request) error {
	write, err := writeOf(r, store.Put)
	if err != nil {
		return err
	}
	if write.Token == 0 { // the rule refuses it whatever the body is
		write.ContentType = contentTypeDefault
		return e.write(w, r, write)
	}
	if write.Value, err = e.ReadBody(w, r); err != nil {
		return err
	}
	if write.ContentType, err = contentTypeOf(r.Header); err != nil {
		return err
	}
	if isJSON(write.ContentType) && !validJSON(write.Value) {
		return endpoint.Invalid("The value is not JSON, though its Content-Type is %s.", endpoint.Clip(write.ContentType))
	}
	return e.write(w, r, write)
}

// DeleteRecord deletes a record.
func (e *Endpoints) DeleteRecord(w *endpoint.Answer, r *http.Request) error {
	write, err := writeOf(r, store.Delete)
	if err != nil {
		return err
	}
	return e.write(w, r, write)
}

// writeOf reads everything of a write but its value.
func writeOf(r *http.Request, kind store.Kind) (store.Write, error) {
	write := store.Write{Operation: store.Operation{Kind: kind}}
	var err error
	if write.Resource, write.Key, err = pathRecord(r); err != nil {
		return write, err
	}
	if _, err = endpoint.Query(r); err != nil {
		return write, err
	}
	if err := readWriteToken(r.Header, &write.WriteToken); err != nil {
		return write, err
	}
	write.Expect, err = expectedVersion(r.Header)
	return write, err
}

// pathRecord reads the names in the path of a record.
func pathRecord(r *http.Request) (resource, key store.Name, err error) {
	if resource, err = endpoint.ResourceName(r); err != nil {
		return "", "", err
	}
	key, err = endpoint.KeyName(r)
	return resource, key, err
}

// readWriteToken reads the token and the lease_id. A write without a token is for the rule to reject.
func readWriteToken(header http.Header, token *store.WriteToken) error {
	given := header[api.HeaderFencingToken]
	if other := header[api.HeaderFencingTokenX]; len(other) > 0 {
		given = slices.Concat(given, other)
	}
	switch len(given) {
	case 0:
	case 1:
		parsed, err := api.ParseFencingToken(given[0])
		if err != nil {
			return endpoint.InvalidToken(api.HeaderFencingToken + ": " + err.Error() + ".")
		}
		token.Token, token.Sequence = parsed.Token, parsed.Sequence
	default:
		return endpoint.InvalidToken("There are several headers " + api.HeaderFencingToken + "; a write carries one token.")
	}
	switch given := header[api.HeaderLeaseID]; len(given) {
	case 0:
	case 1:
		id, err := endpoint.ParseLeaseID("The header "+api.HeaderLeaseID, given[0])
		if err != nil {
			return err
		}
		token.LeaseID = &id
	default:
		return endpoint.Invalid("There are %d headers %s; a write belongs to one lease.", len(given), api.HeaderLeaseID)
	}
	return nil
}

func (e *Endpoints) write(w *endpoint.Answer, r *http.Request, write store.Write) error {
	begun := time.Now()
	result, err := e.service.Commit(e.Work(r), write)
	if err == nil {
		err = result.Err
	}
	e.Count(w, r, metrics.SourceHTTP, time.Since(begun), err)
	if err != nil {
		return err
	}
	answerWrite(w, &write, result)
	return nil
}

func (e *Endpoints) getRecord(w *endpoint.Answer, r *http.Request) error {
	resource, key, err := pathRecord(r)
	if err != nil {
		return err
	}
	parameters := endpoint.ReadParameters(r, "consistency")
	read := e.service.Record
	if parameters.Choice("consistency", "default", "durable") {
		read = e.service.DurableRecord
	}
	if parameters.Err != nil {
		return parameters.Err
	}
	record, err := read(e.Work(r), resource, key)
	if err != nil {
		return err
	}
	return AnswerRecord(w, r, record)
}

// AnswerRecord answers a read of a record with its value, or as the request's conditions require.
func AnswerRecord(w *endpoint.Answer, r *http.Request, record store.Record) error {
	tag := endpoint.ETag(record.Version)
	if !endpoint.Matches(r.Header, tag) {
		return versionMismatch(record.Version)
	}
	header := w.Header()
	header.Set("ETag", tag)
	header.Set(api.HeaderFencingToken, api.FencingToken{Token: record.Token, Sequence: record.Sequence}.String())
	header.Set("Cache-Control", "no-cache")
	if endpoint.MatchesNone(r.Header, tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	header.Set("Content-Type", record.ContentType)
	// Clients choose the value: a browser must not run it on the gateway's origin.
	header.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(record.Value)))
	_, _ = w.Write(record.Value)
	return nil
}

func (e *Endpoints) listRecords(ctx context.Context, r *http.Request) (any, error) {
	page := endpoint.ReadPage(r, "prefix", "sort")
	resource, err := endpoint.ResourceName(r)
	page.Fail(err)
	query := store.RecordQuery{
		Resource: resource, Prefix: page.Prefix, After: page.After, Limit: page.Limit,
		ByTime: page.Choice("sort", "key", "updated_at"),
	}
	mark := func(last store.Record) string { return string(last.Key) }
	if query.ByTime {
		query.AfterMicros, query.After = page.Numbered()
		mark = func(last store.Record) string { return fmt.Sprint(last.UpdatedAt.UnixMicro(), " ", last.Key) }
	}
	if page.Err != nil {
		return nil, page.Err
	}
	records, err := e.service.Records(ctx, query)
	return api.Records{
		Resource: string(resource), Records: endpoint.Convert(records, recordInfo), NextCursor: endpoint.NextCursor(page, records, mark),
	}, err
}

func recordInfo(record store.Record) api.RecordInfo {
	return api.RecordInfo{
		Key: string(record.Key), Version: record.Version, FencingToken: record.Token, Sequence: record.Sequence,
		ContentType: record.ContentType, Size: record.Size, UpdatedAt: api.Time{Time: record.UpdatedAt},
	}
}

// contentTypeOf reads the type of a value; the store checks it.
func contentTypeOf(header http.Header) (string, error) {
	switch given := header["Content-Type"]; len(given) {
	case 0:
		return contentTypeDefault, nil
	case 1:
		return given[0], nil
	default:
		return "", endpoint.Invalid("The request has %d Content-Type headers; send one.", len(given))
	}
}

func (e *Endpoints) getFence(ctx context.Context, resource store.Name) (any, error) {
	fence, err := e.service.Fence(ctx, resource)
	return endpoint.FenceAnswer(fence), err
}

func (e *Endpoints) setFence(ctx context.Context, a endpoint.Action[store.Name, api.FenceRequest]) (any, error) {
	if a.Body.LastToken == nil {
		return nil, endpoint.Invalid("last_token is missing or null.")
	}
	last := store.Accepted{Token: *a.Body.LastToken, Sequence: a.Body.LastSequence}
	was, err := e.service.SetFence(e.AsActor(ctx, a.W, a.R), a.Key, last, a.Body.Reason)
	if err != nil {
		return nil, err
	}
	e.Metrics.AdminAction("fence_set")
	e.Logger.InfoContext(ctx, "fence set", "resource", a.Key, "last_token", last.Token,
		"last_sequence", last.Sequence, "previous_token", was.Token, "previous_sequence", was.Sequence,
		"reason", a.Body.Reason, "by", a.W.Principal.Name, "address", e.Address(a.R))
	return api.FenceSet{
		Resource: string(a.Key), LastToken: last.Token, LastSequence: last.Sequence,
		PreviousToken: was.Token, PreviousSequence: was.Sequence,
	}, nil
}

// expectedVersion reads If-Match and If-None-Match of a write: the version that the record must have.
func expectedVersion(header http.Header) (*int64, error) {
	match, noneMatch := header["If-Match"], header["If-None-Match"]
	switch {
	case len(match) == 0 && len(noneMatch) == 0:
		return nil, nil //nolint:nilnil // no condition is no error
	case len(match)+len(noneMatch) > 1:
		return nil, endpoint.Invalid("A write takes one If-Match or one If-None-Match.")
	case len(noneMatch) == 1 && strings.TrimSpace(noneMatch[0]) == "*":
		return new(store.ExpectNone), nil
	case len(noneMatch) == 1:
		return nil, endpoint.Invalid(`If-None-Match of a write must be *: the record must not exist.`)
	case strings.TrimSpace(match[0]) == "*":
		return new(store.ExpectAny), nil
	}
	version, ok := endpoint.ParseETag(match[0])
	if !ok {
		return nil, endpoint.Invalid(`If-Match must be * or one strong ETag that the gateway returned, like "7".`)
	}
	return &version, nil
}

// versionMismatch is the answer to a read of another version than the current one.
func versionMismatch(version int64) error {
	answer := endpoint.Problem(http.StatusPreconditionFailed, api.CodeVersionMismatch,
		"The record has another version than If-Match names; version is the current one.")
	answer.Title, answer.Version = store.ErrVersionMismatch.Error(), &version
	return answer
}

// answerWrite answers a write that was admitted.
func answerWrite(w http.ResponseWriter, write *store.Write, result store.Result) {
	w.Header()["Etag"] = []string{endpoint.ETag(result.Version)}
	endpoint.AnswerDocument(w, endpoint.JSONContentType, writeStatus(result), writeResult(write, result))
}

func writeStatus(result store.Result) int {
	if result.Created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// mayWrite returns the answer to a write that the principal may not make, or nil.
func mayWrite(principal *access.Principal, resource store.Name) error {
	if !principal.May(access.Write, string(resource)) {
		return endpoint.WriteRule.Forbidden()
	}
	return nil
}

// mayTransact is mayWrite for every resource of a transaction.
func mayTransact(principal *access.Principal, transaction store.Transaction) error {
	for i := range transaction.Tokens {
		if err := mayWrite(principal, transaction.Tokens[i].Resource); err != nil {
			return atIndex("fences", i, err)
		}
	}
	for i := range transaction.Operations {
		if err := mayWrite(principal, transaction.Operations[i].Resource); err != nil {
			return atIndex("ops", i, err)
		}
	}
	return nil
}

// Count counts a write and its verdict, and records a rejection.
func (e *Endpoints) Count(w *endpoint.Answer, r *http.Request, source string, took time.Duration, err error) {
	e.Metrics.Write(source, took, err)
	if rejected, ok := errors.AsType[*store.RejectedError](err); ok {
		e.recorder.Record(rejected, source, e.Address(r), endpoint.NameOf(w.Principal))
	}
}

func writeResult(write *store.Write, result store.Result) *api.WriteResult {
	return &api.WriteResult{
		Resource: string(write.Resource), Key: string(write.Key), Version: result.Version,
		FencingToken: write.Token, Sequence: write.Sequence, Replayed: result.Replayed,
	}
}
