package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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

// checkRows checks that a text is a JSON array of 1 to rowsMax objects with the same columns. It reads row by row: all
// rows as maps would take many times the memory of the text.
func checkRows(text []byte) error {
	decoder := jsontext.NewDecoder(bytes.NewReader(text))
	if start, err := decoder.ReadToken(); err != nil || start.Kind() != '[' {
		return fmt.Errorf("%w: rows must be an array of objects of values by column", ErrInvalid)
	}
	var first, row map[string]skipped
	index := 0
	for ; decoder.PeekKind() != ']'; index++ {
		if index == rowsMax {
			return fmt.Errorf("%w: a transaction changes at most %d rows of tables", ErrTooLarge, rowsMax)
		}
		clear(row)
		if err := json.UnmarshalDecode(decoder, &row); err != nil || row == nil {
			return fmt.Errorf("%w: rows[%d] must be an object of values by column", ErrInvalid, index)
		}
		if index == 0 {
			first, row = row, nil
			continue
		}
		for column := range row {
			if _, there := first[column]; !there {
				return fmt.Errorf("%w: rows[%d] has the column %.100q, which rows[0] has not", ErrInvalid, index, column)
			}
		}
		if len(row) < len(first) {
			return fmt.Errorf("%w: rows[%d] lacks a column of rows[0]: all rows must have the same", ErrInvalid, index)
		}
	}
	if index == 0 {
		return fmt.Errorf("%w: rows is empty, it must have 1 to %d objects", ErrInvalid, rowsMax)
	}
	return nil
}

// skipped is a value of a row, which is read over.
type skipped struct{}

func (*skipped) UnmarshalJSONFrom(decoder *jsontext.Decoder) error { return decoder.SkipValue() }

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

// SQLVerdicts are the codes of rejections by SQL.
var SQLVerdicts = []Verdict{
	VerdictTokenRequired, VerdictTokenUnknown, VerdictTokenStale, VerdictLeaseMismatch, VerdictLeaseExpired,
	VerdictTokenReused, VerdictTruncate,
}

// The verdicts that only SQL has.
const (
	// VerdictTokenReused: the transaction with this token and sequence was committed before.
	VerdictTokenReused Verdict = "token_reused"
	// VerdictTruncate: a protected table whose rows belong to many resources was to be truncated.
	VerdictTruncate Verdict = "truncate"
)

// ProtectedTable is a user's table whose rows can only be written under the fence of their resource.
type ProtectedTable struct {
	ID          int64
	Name        string // schema.table, not quoted; the oid of a table that was dropped
	Template    string
	Mode        string // enforce or observe
	Inserts     string // guarded or free
	ProtectedAt time.Time
	Problem     string     // what kept rows from being checked at CheckedAt; "": nothing
	CheckedAt   *time.Time // when a gateway looked last, some 30 s ago; nil: never yet
	// Rows is the estimate of the last vacuum or analyze; nil before the first.
	Rows *int64
	// Rejections counts the rejections by SQL of groups seen in the last 24 hours: those by the triggers of the table, and,
	// in the newest 10,000 groups, those of guards of a resource that fits the template.
	Rejections int64
}

// SQLRole is a role of the database with the rights of an application.
type SQLRole struct {
	Name     string
	Prefixes *[]string // of the names that it may use by SQL; nil: all names
}

// TableQuery selects protected tables, in byte order of their names.
type TableQuery struct {
	Prefix string // of the name, any text

	// AfterID and AfterName are those of the last table that was seen; zero: none was.
	AfterID   int64
	AfterName string
	Limit     int // 1 to PageMax
}

// Check returns ErrInvalid, naming the field, if the query is outside its limits.
func (q TableQuery) Check() error {
	return cmp.Or(checkText("prefix", q.Prefix, 0, NameBytesMax), checkLimit(q.Limit))
}
