package api

import "encoding/json"

// WriteResult is the answer to an admitted put or delete.
type WriteResult struct {
	Resource     string `json:"resource"`
	Key          string `json:"key"`
	Version      int64  `json:"version"`
	FencingToken int64  `json:"fencing_token"`
	Sequence     *int64 `json:"sequence,omitempty"`
	// Replayed says that the write was applied before, and that this is its first answer again.
	Replayed bool `json:"replayed"`
}

// RecordInfo describes a record without its value.
type RecordInfo struct {
	Key          string `json:"key"`
	Version      int64  `json:"version"`
	FencingToken int64  `json:"fencing_token"`
	Sequence     *int64 `json:"sequence,omitempty"`
	ContentType  string `json:"content_type"`
	Size         int64  `json:"size"`
	UpdatedAt    Time   `json:"updated_at"`
}

// Records is a page of GET /v1/resources/{resource}/records, ordered by key.
type Records struct {
	Resource   string       `json:"resource"`
	Records    []RecordInfo `json:"records"`
	NextCursor string       `json:"next_cursor,omitempty"`
}

// TransactionRequest is the body of POST /v1/transactions: one atomic change under one or more tokens.
type TransactionRequest struct {
	// Fences are 1 to 64, each resource once.
	Fences []WriteToken `json:"fences"`
	// Ops are 1 to 1000, each record once, on resources among Fences. Those on tables are applied in their order.
	Ops []Op `json:"ops"`
}

// WriteToken is the token under which a resource is written.
type WriteToken struct {
	Resource     string  `json:"resource"`
	FencingToken *int64  `json:"fencing_token"`
	Sequence     *int64  `json:"sequence,omitempty"`
	LeaseID      *string `json:"lease_id,omitempty"`
}

// Op is one operation of a transaction: on a record (Key), or on the rows of a table (Table) that belong to Resource.
type Op struct {
	// Op is "put" or "delete"; on a table "insert", "upsert", "update" or "delete".
	Op       string `json:"op"`
	Resource string `json:"resource"`
	Key      string `json:"key,omitempty"`
	// Value is stored exactly as it is written here, as application/json. A put has Value or ValueBase64.
	Value json.RawMessage `json:"value,omitempty"`
	// ValueBase64 is any bytes of the type ContentType (absent: application/octet-stream).
	ValueBase64 *string `json:"value_base64,omitempty"`
	ContentType string  `json:"content_type,omitempty"`
	// IfVersion is the version that the record must have; 0: there must be none.
	IfVersion *int64 `json:"if_version,omitempty"`

	// Table is a protected table that is open to writes by HTTP, with its schema. It has no quotes, nor have columns.
	Table string `json:"table,omitempty"`
	// Row is an object of values by column, of an insert or upsert; Set, of an update, those that change.
	Row json.RawMessage `json:"row,omitempty"`
	Set json.RawMessage `json:"set,omitempty"`
	// Rows, in place of Row, is an array of 1 to 10,000 such objects, all with the same columns: a row each.
	Rows json.RawMessage `json:"rows,omitempty"`
	// Where, of an update or delete, is an object of the values that the rows have; null: the column is null.
	Where json.RawMessage `json:"where,omitempty"`
	// Conflict are the columns of a unique constraint, of an upsert: a row with the same values in them is updated.
	Conflict []string `json:"conflict,omitempty"`
	// Returning are the columns of the written rows that the answer has, in the order of Rows.
	Returning []string `json:"returning,omitempty"`
	// ExpectRows is how many rows the operation must write.
	ExpectRows *int64 `json:"expect_rows,omitempty"`
}

// TransactionResult is the answer to an admitted transaction: a result per operation.
type TransactionResult struct {
	Results  []OpResult `json:"results"`
	Replayed bool       `json:"replayed"`
}

// OpResult is the result of one operation. One on a table has Table in place of Key and Version.
type OpResult struct {
	Op       string `json:"op"`
	Resource string `json:"resource"`
	Key      string `json:"key,omitempty"`
	Version  int64  `json:"version,omitempty"`

	Table string `json:"table,omitempty"`
	// Rows is the number of rows that were written. It and Returning are absent from a replay: they are not remembered.
	Rows *int64 `json:"rows,omitempty"`
	// Returning is an array of the written rows, objects of the columns that were asked for; absent if none were.
	Returning json.RawMessage `json:"returning,omitempty"`
}

// BulkWritesMax and BulkBytesMax bound the body of POST /v1/writes.
const (
	BulkWritesMax = 1000
	BulkBytesMax  = 4 << 20
)

// BulkWrite is one write of POST /v1/writes, whose body is an array of them. Each is independent of the others.
type BulkWrite struct {
	// These are as in an Op on a record.
	Op          string          `json:"op"`
	Resource    string          `json:"resource"`
	Key         string          `json:"key"`
	Value       json.RawMessage `json:"value,omitempty"`
	ValueBase64 *string         `json:"value_base64,omitempty"`
	ContentType string          `json:"content_type,omitempty"`
	IfVersion   *int64          `json:"if_version,omitempty"`

	FencingToken *int64  `json:"fencing_token"`
	Sequence     *int64  `json:"sequence,omitempty"`
	LeaseID      *string `json:"lease_id,omitempty"`
}

// BulkResults is the answer to POST /v1/writes: a result for each write, in the order of the writes.
type BulkResults struct {
	Results []BulkResult `json:"results"`
}

// BulkResult is what a single write would have been answered: Result or Problem.
type BulkResult struct {
	Status  int          `json:"status"`
	Result  *WriteResult `json:"result,omitempty"`
	Problem *Problem     `json:"problem,omitempty"`
}

// StateVersions are the versions of a state of Terraform that are kept, the newest first.
type StateVersions struct {
	Resource string         `json:"resource"`
	Versions []StateVersion `json:"versions"`
}

// StateVersion describes a version of a state.
type StateVersion struct {
	Version      int64  `json:"version"`
	FencingToken int64  `json:"fencing_token"`
	Serial       *int64 `json:"serial,omitempty"`
	Size         int64  `json:"size"`
	UpdatedAt    Time   `json:"updated_at"`
}
