package store

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

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
