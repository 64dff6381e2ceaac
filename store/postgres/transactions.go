package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/fencegate/fencegate/store"
)

// Transact applies all of a transaction or nothing, in one commit.
//
// It returns a RejectedError for the first token, or else the first operation, that was refused (an operation on a
// resource without a token is ErrTokenRequired, and so is one on a row of another resource than its own); ErrNotFound
// where an operation deletes what is not there, or its table is not open; a TableError; ErrTooLarge; ErrInvalid; or
// ErrUnavailable.
func (s *Store) Transact(ctx context.Context, transaction store.Transaction) (store.TransactionResult, error) {
	ofTokens, err := transaction.Check()
	if err != nil {
		return store.TransactionResult{}, err
	}
	call := newTransactCall(transaction, ofTokens)
	if err := s.queryRow(ctx, call.stmt, call.sql, call.args, call.dest...); err != nil {
		return store.TransactionResult{}, err
	}
	return call.result()
}

const (
	transactColumns = `select verdict, coalesce(reason, ''), coalesce(index, 0), coalesce(of_token, false), versions,
			coalesce(current, 0), coalesce(replayed, false),
			coalesce(granted_token, 0), coalesce(last_token, 0), coalesce(last_sequence, 0)`
	transactSQL       = transactColumns + ` from fence.transact($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`
	transactTablesSQL = transactColumns + `, row_counts, returned, failure
		from fence.transact_tables($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`
)

// verdictFailed says that an operation on a table failed; see TableError.
const verdictFailed store.Verdict = "failed"

// transactCall is the statement of a transaction, and its answer.
type transactCall struct {
	transaction store.Transaction
	ofTokens    []int32 // of the operations, from 1
	records     []int   // which operations are on records,
	tables      []int   // and which are on tables

	stmt statement
	sql  string
	args []any
	dest []any // the fields below

	row       store.Decision
	index     int // of a token (ofToken), or else of the records or tables, from 1
	ofToken   bool
	versions  []int64
	rowCounts []int64
	returned  []*string
	failure   []string
}

func newTransactCall(t store.Transaction, ofTokens []int32) *transactCall {
	c := &transactCall{transaction: t, ofTokens: ofTokens, stmt: statement{purpose: forTransactions}, sql: transactSQL}
	var tokens tokenColumns
	for i := range t.Tokens {
		tokens.add(&t.Tokens[i])
		c.stmt.locks = append(c.stmt.locks, t.Tokens[i].Resource)
	}
	var ops operationColumns
	var tables tableColumns
	ofRecords := []int32{}
	for i := range t.Operations {
		if op := &t.Operations[i]; op.Table != nil {
			tables.add(op.Table, ofTokens[i])
			c.tables = append(c.tables, i)
		} else {
			ops.add(&op.Operation)
			ofRecords, c.records = append(ofRecords, ofTokens[i]), append(c.records, i)
		}
	}
	c.args = []any{
		tokens.resources, tokens.tokens, tokens.sequences, tokens.leaseIDs, t.Digest(),
		ops.kinds, ofRecords, ops.keys, ops.values, ops.contentTypes, ops.expected,
	}
	c.dest = []any{
		&c.row.Verdict, &c.row.Reason, &c.index, &c.ofToken, &c.versions, &c.row.Version, &c.row.Replayed,
		&c.row.GrantedToken, &c.row.LastToken, &c.row.LastSequence,
	}
	if len(c.tables) > 0 {
		c.stmt.purpose, c.sql = forTables, transactTablesSQL
		c.args = append(c.args, tables.ofTokens, tables.kinds, tables.tables, tables.rows, tables.wheres,
			tables.conflicts, tables.returnings, tables.counts)
		c.dest = append(c.dest, &c.rowCounts, &c.returned, &c.failure)
	}
	return c
}

func (c *transactCall) result() (store.TransactionResult, error) {
	if c.row.Verdict != store.Admitted {
		return store.TransactionResult{}, c.refusal()
	}
	result := store.TransactionResult{Replayed: c.row.Replayed, Versions: make([]int64, len(c.transaction.Operations))}
	for i, version := range c.versions {
		result.Versions[c.records[i]] = version
	}
	if len(c.rowCounts) > 0 {
		result.Tables = make([]store.TableResult, len(c.transaction.Operations))
	}
	for i, rows := range c.rowCounts {
		written := store.TableResult{Rows: rows}
		if returned := c.returned[i]; returned != nil {
			written.Returned = []byte(*returned)
		} else if len(c.transaction.Operations[c.tables[i]].Table.Returning) > 0 {
			written.Returned = []byte("[]")
		}
		result.Tables[c.tables[i]] = written
	}
	return result, nil
}

// refusal is the error of the token or operation that was refused.
func (c *transactCall) refusal() error {
	switch {
	case c.row.Verdict == verdictFailed:
		return c.tableError()
	case c.ofToken:
		return c.row.Result(&store.Write{WriteToken: c.transaction.Tokens[c.index-1]}).Err
	}
	index := c.records[c.index-1]
	token := c.transaction.Tokens[c.ofTokens[index]-1]
	err := c.row.Result(&store.Write{WriteToken: token, Operation: c.transaction.Operations[index].Operation}).Err
	var rejected *store.RejectedError
	if errors.As(err, &rejected) {
		rejected.Op = &index
	}
	return err
}

// tableColumns are table operations as the arrays that fence.transact_tables takes.
type tableColumns struct {
	ofTokens                                           []int32
	kinds, tables, rows, wheres, conflicts, returnings []string
	counts                                             []*int64
}

func (c *tableColumns) add(op *store.TableOperation, ofToken int32) {
	c.ofTokens = append(c.ofTokens, ofToken)
	c.kinds = append(c.kinds, string(op.Kind))
	c.tables = append(c.tables, op.Table)
	c.rows = append(c.rows, objectText(op.Values()))
	c.wheres = append(c.wheres, objectText(op.Where))
	c.conflicts = append(c.conflicts, listText(op.Conflict))
	c.returnings = append(c.returnings, listText(op.Returning))
	c.counts = append(c.counts, op.ExpectRows)
}

func objectText(object []byte) string {
	if len(object) == 0 {
		return "{}"
	}
	return string(object)
}

func listText(columns []string) string {
	text, _ := json.Marshal(append([]string{}, columns...)) // texts can't fail; nil would be null
	return string(text)
}

// tableError is the error of an operation on a table that failed.
func (c *transactCall) tableError() error {
	failed := &store.TableError{
		Kind: store.ErrConstraint, SQLState: c.failure[0], Message: c.failure[1], Detail: c.failure[2],
		Column: c.failure[3], Constraint: c.failure[4], Table: c.failure[5],
	}
	resource, at := c.transaction.Tokens[0].Resource, "a deferred constraint"
	upserted := false
	if c.index > 0 {
		index := c.tables[c.index-1]
		op := &c.transaction.Operations[index]
		failed.Op, at, resource = &index, fmt.Sprintf("ops[%d]", index), op.Resource
		failed.Table, upserted = cmp.Or(failed.Table, op.Table.Table), op.Table.Kind == store.Upsert
	}
	switch state := failed.SQLState; {
	case state == "LF201":
		return fmt.Errorf("%w: no table %q is open to writes by HTTP (%s); its name has a schema, as in public.jobs, and "+
			"fence.open_table opens it", store.ErrNotFound, failed.Table, at)
	case state == "LF202":
		failed.Kind, failed.SQLState, failed.Detail = store.ErrRowCount, "", ""
		failed.Rows, _ = strconv.ParseInt(c.failure[2], 10, 64)
	case state == "LF203":
		return fmt.Errorf("%w: %s", store.ErrTooLarge, failed.Message)
	case state[:3] == "LF1":
		if rejected := rejectedRow(failed, resource); rejected != nil {
			return rejected
		}
	// Details of these show the row, perhaps of another resource: the fence is checked after the row is changed.
	case state == "23502", state == "23514", state == "44000":
		failed.Detail = ""
	case state == "42501":
		failed.Kind = store.ErrForbidden
	case state == "21000" && upserted:
		return fmt.Errorf("%w: %s: two rows have the same key: %s", store.ErrInvalid, at, failed.Message)
	// A value that is not of its column's type; too deep; no equality; a generated column; no such constraint.
	case state[:2] == "22", state == "54001", state == "42883", state == "428C9", state == "42P10":
		return fmt.Errorf("%w: %s: %s", store.ErrInvalid, at, failed.Message)
	}
	return failed
}

// rejectedRow is the rejection that a trigger of a protected table raised (fence.rejection_error): the row is not of
// the operation's resource. It returns nil for a rejection without a verdict.
func rejectedRow(failed *store.TableError, resource store.Name) error {
	var row struct {
		Code         store.Verdict `json:"code"`
		Reason       string        `json:"reason"`
		Resource     string        `json:"resource"`
		Table        string        `json:"table"`
		GrantedToken int64         `json:"granted_token"`
		LastToken    int64         `json:"last_token"`
		LastSequence int64         `json:"last_sequence"`
	}
	if err := json.Unmarshal([]byte(failed.Detail), &row); err != nil || row.Code.Err() == nil {
		return nil
	}
	if name, err := store.ParseName("resource", row.Resource); err == nil { // of a row it may be too long for a name
		resource = name
	}
	return &store.RejectedError{
		Verdict: row.Code, Reason: row.Reason, Resource: resource, Key: store.Name(row.Table), Table: row.Table,
		GrantedToken: row.GrantedToken, LastToken: row.LastToken, LastSequence: row.LastSequence, Op: failed.Op,
	}
}
