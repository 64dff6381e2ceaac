package gateway

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fencegate/fencegate/store"
)

const pageDefault = 100

// page is the part of a list that a request asks for.
type page struct {
	parameters

	limit  int    // the store checks it
	after  string // where the page before ended; clients see it as an opaque cursor
	prefix string // any text that a name could begin with
}

// readPage reads the parameters of a list: limit, cursor, and the others that it has.
func readPage(r *http.Request, others ...string) page {
	p := page{parameters: readParameters(r, append(others[:len(others):len(others)], "limit", "cursor")...)}
	p.limit = p.integer("limit", 1, store.PageMax, pageDefault)
	cursor, err := base64.RawURLEncoding.DecodeString(p.Get("cursor"))
	if err != nil || !utf8.Valid(cursor) || bytes.IndexByte(cursor, 0) >= 0 {
		p.fail(errBadCursor)
	}
	p.after, p.prefix = string(cursor), p.Get("prefix")
	if len(p.prefix) > store.NameBytesMax || !utf8.ValidString(p.prefix) || strings.ContainsRune(p.prefix, 0) {
		p.fail(invalid("prefix must be UTF-8 of at most %d bytes, without NUL.", store.NameBytesMax))
	}
	return p
}

var errBadCursor = invalid("cursor must be a next_cursor that the gateway returned.")

// numbered reads a cursor that is a positive number, a space and a text.
func (p *page) numbered() (number int64, text string) {
	if p.after == "" {
		return 0, ""
	}
	first, text, _ := strings.Cut(p.after, " ")
	number, err := strconv.ParseInt(first, 10, 64)
	if err != nil || number < 1 || text == "" {
		p.fail(errBadCursor)
	}
	return number, text
}

// nextCursor returns the cursor after a page of these rows; "" if it is the last one. mark returns where a page ends
// that ends with this row.
func nextCursor[Row any](p page, rows []Row, mark func(Row) string) string {
	if len(rows) == 0 || len(rows) < p.limit {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(mark(rows[len(rows)-1])))
}

// convert returns the items of rows. It is never nil, so that an empty list is [] in JSON.
func convert[Row, Item any](rows []Row, item func(Row) Item) []Item {
	items := make([]Item, len(rows))
	for i := range rows {
		items[i] = item(rows[i])
	}
	return items
}
