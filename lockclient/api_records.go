package lockclient

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
)

// Write is a value to store, with its token.
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

// Removal is the token and the precondition of a delete.
type Removal struct {
	Token   api.FencingToken
	LeaseID string
	// IfMatch, if set, is the version that the record must have.
	IfMatch *int64
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
	op := "put " + resource + " " + key
	path, err := recordPath(op, resource, key)
	if err != nil {
		return api.WriteResult{}, err
	}
	header := writeHeader(write.Token, write.LeaseID, write.IfMatch)
	header.Set("Content-Type", "application/octet-stream")
	if write.ContentType != "" {
		header.Set("Content-Type", write.ContentType)
	}
	if write.IfNoneMatch {
		header.Set("If-None-Match", "*")
	}
	call := request{
		op: op, method: http.MethodPut, path: path, header: header, body: write.Value,
		repeat: repeatWrite, idempotent: write.Token.Sequence != nil,
	}
	return fetch(ctx, a, call, resultLacks)
}

// Delete removes a record if the fence admits the write. It returns the errors of Put, and ErrNotFound if there is no
// record.
func (a *API) Delete(ctx context.Context, resource, key string, removal Removal) (api.WriteResult, error) {
	op := "delete " + resource + " " + key
	path, err := recordPath(op, resource, key)
	if err != nil {
		return api.WriteResult{}, err
	}
	header := writeHeader(removal.Token, removal.LeaseID, removal.IfMatch)
	call := request{
		op: op, method: http.MethodDelete, path: path, header: header,
		repeat: repeatWrite, idempotent: removal.Token.Sequence != nil,
	}
	return fetch(ctx, a, call, resultLacks)
}

// Get returns a record. It returns ErrNotFound if there is none.
func (a *API) Get(ctx context.Context, resource, key string) (Record, error) {
	op := "get " + resource + " " + key
	path, err := recordPath(op, resource, key)
	if err != nil {
		return Record{}, err
	}
	call := request{op: op, method: http.MethodGet, path: path}
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
	version, err := parseETag(got.header.Get("ETag"))
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
	op := "list records of " + resource
	path, err := namePath(op, resource)
	if err != nil {
		return api.Records{}, err
	}
	query := pageQuery(which.Limit, which.Cursor)
	setIf(query, "prefix", which.Prefix)
	call := request{op: op, method: http.MethodGet, path: "/v1/resources/" + path + "/records", query: query}
	return fetch(ctx, a, call, nothing[api.Records])
}

// Transaction applies all operations as one atomic change under one or more tokens, or none. It returns the errors of
// Put; Problem.Op is the index of the operation that was rejected. A JSON Value loses the white space between its
// parts; ValueBase64 keeps every byte.
func (a *API) Transaction(ctx context.Context, body api.TransactionRequest) (api.TransactionResult, error) {
	const op = "transaction"
	text, err := jsonBody(op, body)
	if err != nil {
		return api.TransactionResult{}, err
	}
	call := request{
		op: op, method: http.MethodPost, path: "/v1/transactions",
		header: http.Header{"Content-Type": {"application/json"}}, body: text,
		repeat: repeatWrite, idempotent: allNumbered(body.Fences),
	}
	return fetch(ctx, a, call, func(result api.TransactionResult) string {
		if len(result.Results) != len(body.Ops) {
			return "not a result for each operation"
		}
		return ""
	})
}

func allNumbered(fences []api.WriteToken) bool {
	return !slices.ContainsFunc(fences, func(token api.WriteToken) bool { return token.Sequence == nil })
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

// writeHeader leaves out a token that was never set: the gateway answers token_required.
func writeHeader(token api.FencingToken, leaseID string, ifMatch *int64) http.Header {
	header := http.Header{}
	if token != (api.FencingToken{}) {
		header.Set(api.HeaderFencingToken, token.String())
	}
	if leaseID != "" {
		header.Set(api.HeaderLeaseID, leaseID)
	}
	if ifMatch != nil {
		header.Set("If-Match", `"`+strconv.FormatInt(*ifMatch, 10)+`"`)
	}
	return header
}

// parseETag returns the version. A proxy that compresses the answer marks the ETag as weak.
func parseETag(etag string) (int64, error) {
	return strconv.ParseInt(strings.Trim(strings.TrimPrefix(etag, "W/"), `"`), 10, 64)
}

func pageQuery(limit int, cursor string) url.Values {
	query := url.Values{}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	setIf(query, "cursor", cursor)
	return query
}
