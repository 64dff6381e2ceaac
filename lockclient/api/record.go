package api

import "encoding/json"

// WriteResult is the answer to an admitted put or delete.
type WriteResult struct {
	Resource     string `json:"resource" schema:"Name"`
	Key          string `json:"key" schema:"Name"`
	Version      int64  `json:"version" schema:"Version"`
	FencingToken int64  `json:"fencing_token" schema:"Token"`
	Sequence     *int64 `json:"sequence,omitempty" schema:"Sequence"`
	// The write had been applied before, and this is its first answer again.
	Replayed bool `json:"replayed"`
}

// RecordInfo describes a record without its value.
type RecordInfo struct {
	Key     string `json:"key" schema:"Name"`
	Version int64  `json:"version" schema:"Version"`
	// Of the write that stored it.
	FencingToken int64 `json:"fencing_token" schema:"Token"`
	// Of that write, if it was numbered.
	Sequence    *int64 `json:"sequence,omitempty" schema:"Sequence"`
	ContentType string `json:"content_type" schema:"maxLength=255"`
	// Of the value, in bytes.
	Size      int64 `json:"size" schema:"minimum=0"`
	UpdatedAt Time  `json:"updated_at"`
}

// Records is a page of GET /v1/resources/{resource}/records, ordered by key.
type Records struct {
	Resource   string       `json:"resource" schema:"Name"`
	Records    []RecordInfo `json:"records" schema:"maxItems=1000"`
	NextCursor string       `json:"next_cursor,omitempty" schema:"Cursor"`
}

// TransactionRequest is the body of POST /v1/transactions: one atomic change under one or more tokens.
type TransactionRequest struct {
	// The tokens to write under, each resource once.
	Fences []WriteToken `json:"fences" schema:"minItems=1 maxItems=64"`
	// The changes, each record once, on resources among `fences`.
	Ops []Op `json:"ops" schema:"minItems=1 maxItems=1000"`
}

// WriteToken is the token under which a resource is written.
type WriteToken struct {
	Resource     string `json:"resource" schema:"Name"`
	FencingToken *int64 `json:"fencing_token" schema:"Token"`
	// The number of this write under the token, 0 to 2^53-1.
	Sequence *int64 `json:"sequence,omitempty" schema:"Sequence nullable"`
	// Checked where it is sent or the policy requires it.
	LeaseID *string `json:"lease_id,omitempty" schema:"LeaseID nullable"`
}

// Op is one operation of a transaction. On a record (`key`), a put has either `value` or `value_base64`, a delete
// neither. On the rows of a `table` that belong to the resource, an insert has `row` or `rows`, an upsert also
// `conflict`, an update `set` and `where`, a delete `where`.
type Op struct {
	// On a record `put` or `delete`; on a table `insert`, `upsert`, `update` or `delete`.
	Op       string `json:"op" schema:"enum=put|delete|insert|upsert|update"`
	Resource string `json:"resource" schema:"Name"`
	Key      string `json:"key,omitempty" schema:"Name"`
	// Any JSON, `null` too, stored byte for byte as it is written here, as `application/json`.
	Value json.RawMessage `json:"value,omitempty" schema:"any"`
	// Any bytes, in base64 with padding.
	ValueBase64 *string `json:"value_base64,omitempty" schema:"format=byte nullable"`
	// Of `value_base64`, at most 255 bytes. JSON is checked to be JSON.
	ContentType string `json:"content_type,omitempty" schema:"maxLength=255 nullable default=application/octet-stream"`
	// The version that the record must have; 0: there must be none.
	IfVersion *int64 `json:"if_version,omitempty" schema:"minimum=0 nullable"`

	// A protected table that an administrator has opened, with its schema, without quotes.
	Table string `json:"table,omitempty" schema:"minLength=1 maxLength=127"`
	// The values by column; other columns get their defaults.
	Row json.RawMessage `json:"row,omitempty" schema:"object"`
	// The values that change.
	Set json.RawMessage `json:"set,omitempty" schema:"object minProperties=1"`
	// Many rows, in place of `row`, all with the same columns. One statement writes them, in their order.
	Rows json.RawMessage `json:"rows,omitempty" schema:"rows minItems=1 maxItems=10000"`
	// The values that the rows have; `null`: the column is null.
	Where json.RawMessage `json:"where,omitempty" schema:"object minProperties=1"`
	// The columns of a unique constraint: a row with the same values in them is updated.
	Conflict []string `json:"conflict,omitempty" schema:"minItems=1 maxItems=1600"`
	// The columns of the written rows that the answer has.
	Returning []string `json:"returning,omitempty" schema:"maxItems=1600"`
	// How many rows must be written; otherwise nothing is changed (`rows_mismatch`).
	ExpectRows *int64 `json:"expect_rows,omitempty" schema:"minimum=0 nullable"`
}

// TransactionResult is the answer to an admitted transaction: a result per operation.
type TransactionResult struct {
	// A result per operation, in their order.
	Results []OpResult `json:"results" schema:"minItems=1 maxItems=1000"`
	// The transaction had been applied before, and this is its first answer again.
	Replayed bool `json:"replayed"`
}

// OpResult is the result of one operation: on a record `key` and `version`; on a table `table`, and unless replayed
// `rows`.
type OpResult struct {
	Op       string `json:"op" schema:"enum=put|delete|insert|upsert|update"`
	Resource string `json:"resource" schema:"Name"`
	Key      string `json:"key,omitempty" schema:"Name"`
	Version  int64  `json:"version,omitempty" schema:"Version"`

	Table string `json:"table,omitempty"`
	// The number of rows that were written.
	Rows *int64 `json:"rows,omitempty" schema:"minimum=0"`
	// The written rows, with the columns that were asked for.
	Returning json.RawMessage `json:"returning,omitempty" schema:"rows"`
}

// BulkWritesMax and BulkBytesMax bound the body of POST /v1/writes.
const (
	BulkWritesMax = 1000
	BulkBytesMax  = 4 << 20
)

// BulkWrite is one write of POST /v1/writes, whose body is an array of them. Each is independent of the others.
type BulkWrite struct {
	Op       string `json:"op" schema:"enum=put|delete"`
	Resource string `json:"resource" schema:"Name"`
	Key      string `json:"key" schema:"Name"`
	// Any JSON, `null` too, stored byte for byte as it is written here, as `application/json`.
	Value json.RawMessage `json:"value,omitempty" schema:"any"`
	// Any bytes, in base64 with padding.
	ValueBase64 *string `json:"value_base64,omitempty" schema:"format=byte nullable"`
	// Of `value_base64`, at most 255 bytes. JSON is checked to be JSON.
	ContentType string `json:"content_type,omitempty" schema:"maxLength=255 nullable default=application/octet-stream"`
	// The version that the record must have; 0: there must be none.
	IfVersion *int64 `json:"if_version,omitempty" schema:"minimum=0 nullable"`

	FencingToken *int64 `json:"fencing_token" schema:"Token"`
	// The number of this write under the token, 0 to 2^53-1. Only a numbered write can be sent again.
	Sequence *int64 `json:"sequence,omitempty" schema:"Sequence nullable"`
	// Checked where it is sent or the policy requires it.
	LeaseID *string `json:"lease_id,omitempty" schema:"LeaseID nullable"`
}

// BulkResults is the answer to POST /v1/writes: a result for each write, in the order of the writes.
type BulkResults struct {
	// A result for each write, in their order.
	Results []BulkResult `json:"results" schema:"maxItems=1000"`
}

// BulkResult is what a single write would have been answered: Result or Problem.
type BulkResult struct {
	// The HTTP status of a single write.
	Status  int          `json:"status"`
	Result  *WriteResult `json:"result,omitempty"`
	Problem *Problem     `json:"problem,omitempty" schema:"BulkProblem"`
}

// StateVersions are the versions of a state of Terraform that are kept, the newest first.
type StateVersions struct {
	Resource string         `json:"resource" schema:"Name"`
	Versions []StateVersion `json:"versions"`
}

// StateVersion describes a version of a state.
type StateVersion struct {
	Version int64 `json:"version" schema:"Version"`
	// Of the lock that wrote it.
	FencingToken int64 `json:"fencing_token" schema:"Token"`
	// Of the state.
	Serial *int64 `json:"serial,omitempty" schema:"Sequence"`
	// In bytes.
	Size      int64 `json:"size" schema:"minimum=0"`
	UpdatedAt Time  `json:"updated_at"`
}
