package store

import (
	"context"
	"errors"
	"fmt"
)

// Limits of a transaction.
const (
	WriteTokensMax = 64
	OperationsMax  = 1000
)

// Transaction is one atomic change under one or more tokens. Sent again with the same numbered tokens and the same
// operations it is a replay, if it is one on each of its fences.
type Transaction struct {
	Tokens     []WriteToken // 1 to 64, each resource once
	Operations []ResourceOperation
}

// ResourceOperation is an operation on a record of one of the resources of the tokens, each record once, or on rows of
// a table that belong to one. A transaction has 1 to 1000.
type ResourceOperation struct {
	Resource Name
	Operation
	// Table, if not nil, is the operation, in place of Operation.
	Table *TableOperation
}

// TransactionResult has what the operations did, in their order.
type TransactionResult struct {
	Versions []int64       // that the operations gave; 0 for those on tables
	Tables   []TableResult // of the operations on tables; nil for a replay, whose rows are not remembered
	Replayed bool
}

// Transact applies all of a transaction or nothing, in one commit.
//
// It returns a RejectedError for the first token, or else the first operation, that was refused (an operation on a
// resource without a token is ErrTokenRequired, and so is one on a row of another resource than its own); ErrNotFound
// where an operation deletes what is not there, or its table is not open; a TableError; ErrTooLarge; ErrInvalid; or
// ErrUnavailable.
func (s *Store) Transact(ctx context.Context, transaction Transaction) (TransactionResult, error) {
	ofTokens, err := transaction.Check()
	if err != nil {
		return TransactionResult{}, err
	}
	call := newTransactCall(transaction, ofTokens)
	if err := s.queryRow(ctx, call.stmt, call.sql, call.args, call.dest...); err != nil {
		return TransactionResult{}, err
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
const verdictFailed Verdict = "failed"

// transactCall is the statement of a transaction, and its answer.
type transactCall struct {
	transaction Transaction
	ofTokens    []int32 // of the operations, from 1
	records     []int   // which operations are on records,
	tables      []int   // and which are on tables

	stmt statement
	sql  string
	args []any
	dest []any // the fields below

	row       Decision
	index     int // of a token (ofToken), or else of the records or tables, from 1
	ofToken   bool
	versions  []int64
	rowCounts []int64
	returned  []*string
	failure   []string
}

func newTransactCall(t Transaction, ofTokens []int32) *transactCall {
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

func (c *transactCall) result() (TransactionResult, error) {
	if c.row.Verdict != Admitted {
		return TransactionResult{}, c.refusal()
	}
	result := TransactionResult{Replayed: c.row.Replayed, Versions: make([]int64, len(c.transaction.Operations))}
	for i, version := range c.versions {
		result.Versions[c.records[i]] = version
	}
	if len(c.rowCounts) > 0 {
		result.Tables = make([]TableResult, len(c.transaction.Operations))
	}
	for i, rows := range c.rowCounts {
		written := TableResult{Rows: rows}
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
		return c.row.Result(&Write{WriteToken: c.transaction.Tokens[c.index-1]}).Err
	}
	index := c.records[c.index-1]
	token := c.transaction.Tokens[c.ofTokens[index]-1]
	err := c.row.Result(&Write{WriteToken: token, Operation: c.transaction.Operations[index].Operation}).Err
	var rejected *RejectedError
	if errors.As(err, &rejected) {
		rejected.Op = &index
	}
	return err
}

// Check returns the index of each operation's token, from 1. It returns ErrInvalid, or a RejectedError for an operation
// on a resource without a token.
func (t *Transaction) Check() ([]int32, error) {
	if len(t.Tokens) < 1 || len(t.Tokens) > WriteTokensMax {
		return nil, fmt.Errorf("%w: there are %d fences, a transaction has 1 to %d",
			ErrInvalid, len(t.Tokens), WriteTokensMax)
	}
	if len(t.Operations) < 1 || len(t.Operations) > OperationsMax {
		return nil, fmt.Errorf("%w: there are %d ops, a transaction has 1 to %d",
			ErrInvalid, len(t.Operations), OperationsMax)
	}
	tokenOf := map[Name]int32{}
	for i, token := range t.Tokens {
		if err := token.check(); err != nil {
			return nil, fmt.Errorf("fences[%d]: %w", i, err)
		}
		if _, twice := tokenOf[token.Resource]; twice {
			return nil, fmt.Errorf("%w: fences[%d]: resource %s is there twice", ErrInvalid, i, token.Resource)
		}
		tokenOf[token.Resource] = int32(i) + 1
	}

	type record struct{ resource, key Name }
	seen := map[record]bool{}
	ofTokens := make([]int32, len(t.Operations))
	for i, op := range t.Operations {
		if err := op.check(); err != nil {
			return nil, fmt.Errorf("ops[%d]: %w", i, err)
		}
		token, there := tokenOf[op.Resource]
		if !there {
			return nil, &RejectedError{Verdict: VerdictTokenRequired, Resource: op.Resource, Key: op.Key, Op: &i}
		}
		ofTokens[i] = token
		if op.Table != nil {
			continue
		}
		if seen[record{op.Resource, op.Key}] {
			return nil, fmt.Errorf("%w: ops[%d]: record %s of %s is changed twice", ErrInvalid, i, op.Key, op.Resource)
		}
		seen[record{op.Resource, op.Key}] = true
	}
	return ofTokens, nil
}

func (o ResourceOperation) check() error {
	if o.Table != nil {
		return o.Table.check()
	}
	return o.Operation.check()
}
