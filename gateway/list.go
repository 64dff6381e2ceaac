package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fencegate/fencegate/store"
)

const pageDefault = 100

// collection is the GET of a collection, a page at a time.
type collection[Query, Row, Item any] struct {
	// parameters are those of the URL beside limit and cursor.
	parameters []string
	// query reads the parameters and the cursor.
	query func(*http.Request, page) (Query, error)
	// rows reads a page.
	rows func(Backend, context.Context, Query) ([]Row, error)
	item func(Row) Item
	// cursor returns where the page ends that ends with this row.
	cursor func(Query, Row) string
	// answer returns the document; next is "" on the last page.
	answer func(ctx context.Context, query Query, items []Item, next string) (any, error)
}

// listing returns the handler of a list.
func listing[Query, Row, Item any](g *Gateway, l collection[Query, Row, Item]) handler {
	return g.answering(func(ctx context.Context, r *http.Request) (any, error) {
		page, err := readPage(r, l.parameters...)
		if err != nil {
			return nil, err
		}
		return listPage(ctx, g, r, page, l)
	})
}

func listPage[Query, Row, Item any](
	ctx context.Context, g *Gateway, r *http.Request, page page, l collection[Query, Row, Item],
) (any, error) {
	query, err := l.query(r, page)
	if err != nil {
		return nil, err
	}
	rows, err := l.rows(g.backend, ctx, query)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(rows) > 0 && len(rows) >= page.limit {
		next = base64.RawURLEncoding.EncodeToString([]byte(l.cursor(query, rows[len(rows)-1])))
	}
	return l.answer(ctx, query, convert(rows, l.item), next)
}

// convert returns the items of rows. It is never nil, so that an empty list is [] in JSON.
func convert[Row, Item any](rows []Row, item func(Row) Item) []Item {
	items := make([]Item, len(rows))
	for i := range rows {
		items[i] = item(rows[i])
	}
	return items
}

// page is the part of a list that a request asks for.
type page struct {
	url.Values        // all parameters
	limit      int    // the store checks it
	after      string // where the page before ended; clients see it as an opaque cursor
	prefix     string // any text that a name could begin with
}

// readPage reads the parameters of a list: limit, cursor, and the others that it has.
func readPage(r *http.Request, others ...string) (page, error) {
	values, err := query(r, append(others[:len(others):len(others)], "limit", "cursor")...)
	if err != nil {
		return page{}, err
	}
	p := page{Values: values, prefix: values.Get("prefix")}
	if p.limit, err = p.integer("limit", 1, store.PageMax, pageDefault); err != nil {
		return page{}, err
	}
	cursor, err := base64.RawURLEncoding.DecodeString(values.Get("cursor"))
	if err != nil || !utf8.Valid(cursor) || bytes.IndexByte(cursor, 0) >= 0 {
		return page{}, errBadCursor
	}
	p.after = string(cursor)
	if len(p.prefix) > store.NameBytesMax || !utf8.ValidString(p.prefix) || strings.ContainsRune(p.prefix, 0) {
		return page{}, invalid("prefix must be UTF-8 of at most %d bytes, without NUL.", store.NameBytesMax)
	}
	return p, nil
}

var errBadCursor = invalid("cursor must be a next_cursor that the gateway returned.")

// integer reads an integer; the message names its limits, which the store checks.
func (p page) integer(parameter string, least, most, absent int) (int, error) {
	text := p.Get(parameter)
	if text == "" {
		return absent, nil
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		return 0, invalid("%s must be an integer from %d to %d.", parameter, least, most)
	}
	return number, nil
}

// choice reads a parameter with two possible values and reports whether it is the second; absent means the first.
func (p page) choice(parameter, first, second string) (bool, error) {
	switch p.Get(parameter) {
	case "", first:
		return false, nil
	case second:
		return true, nil
	}
	return false, invalid("%s must be %s or %s.", parameter, first, second)
}

// name reads a parameter that is the name of a lock or resource; "" if it is absent.
func (p page) name(parameter string) (store.Name, error) {
	text := p.Get(parameter)
	if text == "" {
		return "", nil
	}
	return parseName(parameter, text)
}

// numbered reads a cursor that is a positive number, a space and a text.
func (p page) numbered() (number int64, text string, err error) {
	if p.after == "" {
		return 0, "", nil
	}
	first, text, found := strings.Cut(p.after, " ")
	number, err = strconv.ParseInt(first, 10, 64)
	if err != nil || !found || number < 1 || text == "" {
		return 0, "", errBadCursor
	}
	return number, text, nil
}
