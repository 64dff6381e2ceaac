package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// Limits of table operations. The statement of the database has the limits of all rows that a transaction writes, and of
// what they return.
const (
	rowsMax       = 10_000
	columnsMax    = 1600 // of a table of PostgreSQL
	tableBytesMax = 2*63 + 1
)

// The kinds of table operations, besides Delete.
const (
	Insert Kind = "insert"
	Upsert Kind = "upsert"
	Update Kind = "update"
)

// TableOperation writes to rows of a protected table that is open to writes by HTTP. All of them must belong to the
// resource of the operation. Names of tables and columns are as in the catalog, without quotes.
type TableOperation struct {
	Kind  Kind
	Table string // with its schema: public.accounts
	// Row is a JSON object with values by column; of an update the values to set, of a delete nil.
	Row []byte
	// Rows, of an insert or upsert in place of Row, is a JSON array of such objects, all with the same columns: the rows
	// that one statement writes, in their order.
	Rows []byte
	// Where, of an update or delete, is a JSON object with the values that the rows have; null: the column is null.
	Where []byte
	// Conflict are the columns of a unique constraint, of an upsert: a row with the same values in them is updated.
	Conflict []string
	// Returning are the columns of the rows to return; none: no rows are returned.
	Returning []string
	// ExpectRows is how many rows must be written; nil: any number.
	ExpectRows *int64
}

// TableResult is what a TableOperation did.
type TableResult struct {
	Rows int64
	// Returned is a JSON array of the rows, with the columns of Returning; nil if there are none.
	Returned []byte
}

// check returns ErrInvalid, naming the field.
func (o *TableOperation) check() error {
	inserts := o.Kind == Insert || o.Kind == Upsert
	if !inserts && o.Kind != Update && o.Kind != Delete {
		return fmt.Errorf("%w: op is %q, it must be insert, upsert, update or delete", ErrInvalid, o.Kind)
	}
	if err := checkText("table", o.Table, 1, tableBytesMax); err != nil {
		return err
	}
	if o.ExpectRows != nil && *o.ExpectRows < 0 {
		return fmt.Errorf("%w: expect_rows is %d, it must not be negative", ErrInvalid, *o.ExpectRows)
	}
	if (o.Kind == Upsert) != (len(o.Conflict) > 0) {
		return fmt.Errorf("%w: conflict is for an upsert, which needs the columns of a unique constraint", ErrInvalid)
	}
	return cmp.Or(
		o.checkValues(inserts),
		checkObject(o.Kind, "where", o.Where, !inserts, false),
		checkColumns("conflict", o.Conflict),
		checkColumns("returning", o.Returning))
}

func (o *TableOperation) checkValues(inserts bool) error {
	row := "row"
	if o.Kind == Update {
		row = "set"
	}
	switch {
	case len(o.Rows) == 0:
		return checkObject(o.Kind, row, o.Row, o.Kind != Delete, inserts)
	case !inserts:
		return fmt.Errorf("%w: %s has no rows", ErrInvalid, o.Kind)
	case len(o.Row) > 0:
		return fmt.Errorf("%w: there are row and rows, it must be one of them", ErrInvalid)
	}
	return cmp.Or(CheckJSON("rows", o.Rows), checkRows(o.Rows))
}

func checkColumns(field string, columns []string) error {
	if len(columns) > columnsMax {
		return fmt.Errorf("%w: %s has %d columns, the limit is %d", ErrInvalid, field, len(columns), columnsMax)
	}
	for _, column := range columns {
		if err := checkText(field, column, 1, NameBytesMax); err != nil {
			return err
		}
	}
	return nil
}

// checkObject checks a JSON object of values by column, if the kind has one.
func checkObject(kind Kind, field string, text []byte, allowed, mayBeEmpty bool) error {
	switch inner := bytes.TrimSpace(text); {
	case !allowed && len(inner) == 0:
		return nil
	case !allowed:
		return fmt.Errorf("%w: %s has no %s", ErrInvalid, kind, field)
	case len(inner) == 0 || inner[0] != '{':
		return fmt.Errorf("%w: %s must be an object of values by column", ErrInvalid, field)
	case !mayBeEmpty && len(bytes.TrimSpace(inner[1:])) == 1:
		return fmt.Errorf("%w: %s must name a column", ErrInvalid, field)
	}
	return CheckJSON(field, text)
}

// Values returns Row or Rows. One is an object and the other an array, so they are never alike.
func (o *TableOperation) Values() []byte {
	if len(o.Rows) > 0 {
		return o.Rows
	}
	return o.Row
}

// appendContent appends all of the operation, to be digested.
func (o *TableOperation) appendContent(to []byte) []byte {
	for _, part := range []string{string(o.Kind), o.Table, string(o.Values()), string(o.Where)} {
		to = appendPart(to, part)
	}
	for _, columns := range [][]string{o.Conflict, o.Returning} {
		to = binary.BigEndian.AppendUint64(to, uint64(len(columns)))
		for _, column := range columns {
			to = appendPart(to, column)
		}
	}
	if o.ExpectRows == nil {
		return appendPart(to, "")
	}
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(to, 8), uint64(*o.ExpectRows))
}

// tableColumns are table operations as the arrays that fence.transact_tables takes.
type tableColumns struct {
	ofTokens                                           []int32
	kinds, tables, rows, wheres, conflicts, returnings []string
	counts                                             []*int64
}

func (c *tableColumns) add(op *TableOperation, ofToken int32) {
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
