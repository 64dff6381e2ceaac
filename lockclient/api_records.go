package lockclient

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fencegate/fencegate/lockclient/api"
)

// Write is a value to store, or the delete of a record, with its token. A delete uses Token, LeaseID and IfMatch, and
// ignores the rest.
type Write struct {
	// Token is that of the writer's lease. Without a Sequence it admits one write in all.
	Token api.FencingToken
	// LeaseID is checked if it is not empty; a policy may require it.
	LeaseID string
	// ContentType defaults to application/octet-stream. A value of application/json must be JSON.
	ContentType string
	// Value is stored byte for byte.
	Value []byte
	// IfMatch, if set, is the version that the record must have.
	IfMatch *int64
	// IfNoneMatch requires that there is no record.
	IfNoneMatch bool
}

// Record is a stored value.
type Record struct {
	Value       []byte
	ContentType string
	Version     int64
	// Token is that of the write that stored it.
	Token api.FencingToken
}

// Put stores a record if the fence admits the write. It returns ErrTokenStale, ErrTokenUnknown, ErrLeaseMismatch or
// ErrLeaseExpired if the caller is not the holder, ErrVersionMismatch if a precondition does not hold, and ErrTooLarge.
// Nothing is changed then.
func (a *API) Put(ctx context.Context, resource, key string, write Write) (api.WriteResult, error) {
	call := writeCall("put", http.MethodPut, resource, key, write)
	call.body = write.Value
	call.header.Set("Content-Type", cmp.Or(write.ContentType, "application/octet-stream"))
	if write.IfNoneMatch {
		call.header.Set("If-None-Match", "*")
	}
	return fetch(ctx, a, call, resultLacks)
}

// Delete removes a record if the fence admits the write. It returns the errors of Put, ErrNotFound if there is no
// record, and ErrInvalidRequest if a field is set that is for Put only: ContentType, Value or IfNoneMatch.
func (a *API) Delete(ctx context.Context, resource, key string, write Write) (api.WriteResult, error) {
	call := writeCall("delete", http.MethodDelete, resource, key, write)
	if call.err == nil && (write.IfNoneMatch || write.ContentType != "" || write.Value != nil) {
		call.err = refused(call.op, api.CodeInvalidRequest, "a delete has no value, no content type and no IfNoneMatch")
	}
	return fetch(ctx, a, call, resultLacks)
}

// ReadOption configures Get.
type ReadOption func(*request)

// Durable has Get return when what it has read, also that there is no record, is as durable as an acknowledged write.
// Otherwise a failover may take back what Get has returned.
func Durable() ReadOption {
	return func(call *request) { call.query = url.Values{"consistency": {"durable"}} }
}

// Get returns a record. It returns ErrNotFound if there is none.
func (a *API) Get(ctx context.Context, resource, key string, opts ...ReadOption) (Record, error) {
	call := recordCall("get", http.MethodGet, resource, key)
	for _, opt := range opts {
		opt(&call)
	}
	var record Record
	call.check = record.read
	if err := a.send(ctx, call); err != nil {
		return Record{}, err
	}
	return record, nil
}

// read returns what is missing from the answer. A value may be any bytes, so only the headers distinguish a record
// from a proxy's page.
func (r *Record) read(got answer) string {
	// A proxy that compresses the answer marks the ETag as weak.
	etag := strings.TrimPrefix(got.header.Get("ETag"), "W/")
	version, err := strconv.ParseInt(strings.Trim(etag, `"`), 10, 64)
	if err != nil {
		return "a record without a version as its ETag"
	}
	token, err := api.ParseFencingToken(got.header.Get(api.HeaderFencingToken))
	if err != nil {
		return "a record without the Fencing-Token of its write"
	}
	*r = Record{Value: got.body, ContentType: got.header.Get("Content-Type"), Version: version, Token: token}
	return ""
}

// RecordsQuery selects records of one resource. The zero value is the first page of all.
type RecordsQuery struct {
	// Prefix is that of the key.
	Prefix string
	// Limit is the size of a page; 0: the gateway's default.
	Limit int
	// Cursor is the NextCursor of the page before.
	Cursor string
}

// Records lists the records of a resource by key, without their values, a page at a time.
func (a *API) Records(ctx context.Context, resource string, which RecordsQuery) (api.Records, error) {
	query := map[string]string{"prefix": which.Prefix, "cursor": which.Cursor}
	if which.Limit != 0 {
		query["limit"] = strconv.Itoa(which.Limit)
	}
	call := Call{Op: "list records of", Path: "/v1/resources/{name}/records", Name: resource, Query: query}
	var records api.Records
	err := a.Call(ctx, call, &records)
	return records, err
}

// Transaction applies all operations as one atomic change under one or more tokens, or none. It returns the errors of
// Put; Problem.Op is the index of the operation that was rejected. A JSON Value loses the white space between its
// parts; ValueBase64 keeps every byte.
func (a *API) Transaction(ctx context.Context, body api.TransactionRequest) (api.TransactionResult, error) {
	call := request{op: "transaction", method: http.MethodPost, path: "/v1/transactions"}.withJSON(body)
	unnumbered := func(token api.WriteToken) bool { return token.Sequence == nil }
	call.repeat, call.idempotent = repeatWrite, !slices.ContainsFunc(body.Fences, unnumbered)
	return fetch(ctx, a, call, func(result api.TransactionResult) string {
		if len(result.Results) != len(body.Ops) {
			return "not a result for each operation"
		}
		return ""
	})
}

func resultLacks(result api.WriteResult) string {
	if result.Version < 1 || result.FencingToken < 1 {
		return "a write's result without version or fencing_token"
	}
	return ""
}

func recordPath(op, resource, key string) (string, error) {
	resourcePath, err := namePath(op, resource)
	if err != nil {
		return "", err
	}
	keyPath, err := namePath(op, key)
	if err != nil {
		return "", err
	}
	return "/v1/resources/" + resourcePath + "/records/" + keyPath, nil
}

func recordCall(verb, method, resource, key string) request {
	call := request{op: verb + " " + resource + " " + key, method: method}
	call.path, call.err = recordPath(call.op, resource, key)
	return call
}

// writeCall leaves out a token that was never set: the gateway answers token_required.
func writeCall(verb, method, resource, key string, write Write) request {
	call := recordCall(verb, method, resource, key)
	call.repeat, call.idempotent = repeatWrite, write.Token.Sequence != nil
	call.header = http.Header{}
	if write.Token != (api.FencingToken{}) {
		call.header.Set(api.HeaderFencingToken, write.Token.String())
	}
	if write.LeaseID != "" {
		call.header.Set(api.HeaderLeaseID, write.LeaseID)
	}
	if write.IfMatch != nil {
		call.header.Set("If-Match", `"`+strconv.FormatInt(*write.IfMatch, 10)+`"`)
	}
	return call
}
