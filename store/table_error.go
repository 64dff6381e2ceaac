package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// TableError is an operation that a user's table refused. Nothing was applied, and no number was used. It is its Kind.
type TableError struct {
	Kind error // ErrConstraint, ErrForbidden or ErrRowCount
	// Op is the operation, from 0; nil: a deferred constraint, perhaps of several.
	Op *int
	// SQLState, Message and Detail are those of the database; see PostgreSQL's manual.
	SQLState, Message, Detail string
	// Table, with its schema, Column and Constraint are what refused the row; empty where that is none, or unknown.
	Table, Column, Constraint string
	// Rows, of ErrRowCount, is how many rows the operation would have written.
	Rows int64
}

func (e *TableError) Error() string {
	text := fmt.Sprintf("%v: %s", e.Kind, e.Message)
	if e.Detail != "" {
		text += ". " + strings.TrimSuffix(e.Detail, ".")
	}
	return text
}

// Is reports whether target is the Kind.
func (e *TableError) Is(target error) bool { return target == e.Kind }

// tableError is the error of an operation on a table that failed.
func (c *transactCall) tableError() error {
	failed := &TableError{
		Kind: ErrConstraint, SQLState: c.failure[0], Message: c.failure[1], Detail: c.failure[2],
		Column: c.failure[3], Constraint: c.failure[4], Table: c.failure[5],
	}
	resource, at := c.transaction.Tokens[0].Resource, "a deferred constraint"
	upserted := false
	if c.index > 0 {
		index := c.tables[c.index-1]
		op := &c.transaction.Operations[index]
		failed.Op, at, resource = &index, fmt.Sprintf("ops[%d]", index), op.Resource
		failed.Table, upserted = cmp.Or(failed.Table, op.Table.Table), op.Table.Kind == Upsert
	}
	switch state := failed.SQLState; {
	case state == "LF201":
		return fmt.Errorf("%w: no table %q is open to writes by HTTP (%s); its name has a schema, as in public.jobs, and "+
			"fence.open_table opens it", ErrNotFound, failed.Table, at)
	case state == "LF202":
		failed.Kind, failed.SQLState, failed.Detail = ErrRowCount, "", ""
		failed.Rows, _ = strconv.ParseInt(c.failure[2], 10, 64)
	case state == "LF203":
		return fmt.Errorf("%w: %s", ErrTooLarge, failed.Message)
	case state[:3] == "LF1":
		if rejected := rejectedRow(failed, resource); rejected != nil {
			return rejected
		}
	// Details of these show the row, which may be another resource's: the fence is checked after the row is changed.
	case state == "23502", state == "23514", state == "44000":
		failed.Detail = ""
	case state == "42501":
		failed.Kind = ErrForbidden
	case state == "21000" && upserted:
		return fmt.Errorf("%w: %s: two rows have the same key: %s", ErrInvalid, at, failed.Message)
	// A value that is not of its column's type; too deep; no equality; a generated column; no such constraint.
	case state[:2] == "22", state == "54001", state == "42883", state == "428C9", state == "42P10":
		return fmt.Errorf("%w: %s: %s", ErrInvalid, at, failed.Message)
	}
	return failed
}

// rejectedRow is the rejection that a trigger of a protected table raised (fence.raise_rejection): the row is not of
// the operation's resource. It returns nil for a rejection without a verdict.
func rejectedRow(failed *TableError, resource Name) error {
	var row struct {
		Code         Verdict `json:"code"`
		Reason       string  `json:"reason"`
		Resource     string  `json:"resource"`
		Table        string  `json:"table"`
		GrantedToken int64   `json:"granted_token"`
		LastToken    int64   `json:"last_token"`
		LastSequence int64   `json:"last_sequence"`
	}
	if err := json.Unmarshal([]byte(failed.Detail), &row); err != nil || row.Code.Err() == nil {
		return nil
	}
	if name, err := ParseName(row.Resource); err == nil { // of a row it may be too long for a name
		resource = name
	}
	return &RejectedError{
		Verdict: row.Code, Reason: row.Reason, Resource: resource, Key: Name(row.Table), Table: row.Table,
		GrantedToken: row.GrantedToken, LastToken: row.LastToken, LastSequence: row.LastSequence, Op: failed.Op,
	}
}
