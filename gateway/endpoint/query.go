package endpoint

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// Query reads the parameters of a URL. It refuses unknown and repeated ones: a misspelt option must not be ignored.
func Query(r *http.Request, known ...string) (url.Values, error) {
	if r.URL.RawQuery == "" {
		return nil, nil //nolint:nilnil // a nil url.Values reads as one without parameters
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, Invalid("The query of the URL is malformed.")
	}
	for name, given := range values {
		if !slices.Contains(known, name) {
			return nil, Invalid("There is no parameter %q; %s.", Clip(name), knownParameters(known))
		}
		if len(given) > 1 {
			return nil, Invalid("The parameter %s is there %d times.", name, len(given))
		}
	}
	return values, nil
}

// Parameters reads the parameters of a URL one by one. It keeps the first error, so that its user checks err once.
type Parameters struct {
	url.Values

	Err error
}

// ReadParameters reads the parameters of a URL, see Query.
func ReadParameters(r *http.Request, known ...string) Parameters {
	values, err := Query(r, known...)
	return Parameters{values, err}
}

// Fail notes an error unless there is one.
func (p *Parameters) Fail(err error) {
	if p.Err == nil {
		p.Err = err
	}
}

// Integer reads an integer. The message names its limits, which the store checks.
func (p *Parameters) Integer(parameter string, least, most, absent int) int {
	text := p.Get(parameter)
	if text == "" {
		return absent
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		p.Fail(Invalid("%s must be an integer from %d to %d.", parameter, least, most))
	}
	return number
}

// Choice reads a parameter with two possible values and reports whether it is the second. Absent means the first.
func (p *Parameters) Choice(parameter, first, second string) bool {
	switch p.Get(parameter) {
	case "", first:
		return false
	case second:
		return true
	}
	p.Fail(Invalid("%s must be %s or %s.", parameter, first, second))
	return false
}

// Name reads the name of a lock or resource; "" if it is absent.
func (p *Parameters) Name(parameter string) store.Name {
	text := p.Get(parameter)
	if text == "" {
		return ""
	}
	name, err := ParseName(parameter, text)
	p.Fail(err)
	return name
}

// Time reads a time; the zero time if it is absent.
func (p *Parameters) Time(parameter string) time.Time {
	text := p.Get(parameter)
	if text == "" {
		return time.Time{}
	}
	instant, err := time.Parse(time.RFC3339, text)
	if err != nil {
		p.Fail(Invalid("%s must be a time like 2026-01-02T15:04:05Z.", parameter))
	}
	return instant
}

func knownParameters(known []string) string {
	if len(known) == 0 {
		return "this URL takes none"
	}
	return "the known ones are " + strings.Join(known, ", ")
}

// Milliseconds reads a duration in milliseconds; nil is 0.
func Milliseconds(field string, ms *int64, least, most time.Duration) (time.Duration, error) {
	if ms == nil {
		return 0, nil
	}
	if *ms < least.Milliseconds() || *ms > most.Milliseconds() {
		return 0, Invalid("%s is %d, it must be %d to %d.", field, *ms, least.Milliseconds(), most.Milliseconds())
	}
	return time.Duration(*ms) * time.Millisecond, nil
}

// Clip keeps a message short, whatever was sent.
func Clip(text string) string {
	const shown = 100
	if len(text) <= shown {
		return text
	}
	return strings.ToValidUTF8(text[:shown], "") + "…"
}

const pageDefault = 100

// Page is the part of a list that a request asks for.
type Page struct {
	Parameters

	Limit  int    // the store checks it
	After  string // where the page before ended; clients see it as an opaque cursor
	Prefix string // any text that a name could begin with
}

// ReadPage reads the parameters of a list: limit, cursor, and the others that it has.
func ReadPage(r *http.Request, others ...string) Page {
	p := Page{Parameters: ReadParameters(r, append(others[:len(others):len(others)], "limit", "cursor")...)}
	p.Limit = p.Integer("limit", 1, store.PageMax, pageDefault)
	cursor, err := base64.RawURLEncoding.DecodeString(p.Get("cursor"))
	if err != nil || !utf8.Valid(cursor) || bytes.IndexByte(cursor, 0) >= 0 {
		p.Fail(ErrBadCursor)
	}
	p.After, p.Prefix = string(cursor), p.Get("prefix")
	if len(p.Prefix) > store.NameBytesMax || !utf8.ValidString(p.Prefix) || strings.ContainsRune(p.Prefix, 0) {
		p.Fail(Invalid("prefix must be UTF-8 of at most %d bytes, without NUL.", store.NameBytesMax))
	}
	return p
}

// ErrBadCursor is the answer to a cursor that no list has returned.
var ErrBadCursor = Invalid("cursor must be a next_cursor that the gateway returned.")

// Numbered reads a cursor that is a positive number, a space and a text.
func (p *Page) Numbered() (number int64, text string) {
	if p.After == "" {
		return 0, ""
	}
	first, text, _ := strings.Cut(p.After, " ")
	number, err := strconv.ParseInt(first, 10, 64)
	if err != nil || number < 1 || text == "" {
		p.Fail(ErrBadCursor)
	}
	return number, text
}

// NextCursor returns the cursor after a page of these rows; "" if it is the last one. mark returns the position after a
// row.
func NextCursor[Row any](p Page, rows []Row, mark func(Row) string) string {
	if len(rows) == 0 || len(rows) < p.Limit {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(mark(rows[len(rows)-1])))
}

// Convert returns the items of rows. It is never nil, so that an empty list is [] in JSON.
func Convert[Row, Item any](rows []Row, item func(Row) Item) []Item {
	items := make([]Item, len(rows))
	for i := range rows {
		items[i] = item(rows[i])
	}
	return items
}

// ETag is the entity tag of a version.
func ETag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// MatchesNone reports whether a read's If-None-Match names the tag: the client has that version already. Weak tags
// count (RFC 9110, section 13.1.2).
func MatchesNone(header http.Header, wanted string) bool {
	return anyTag(header["If-None-Match"], wanted, "W/"+wanted)
}

// Matches reports whether a read has no If-Match, or one that names the tag. Weak tags don't count (section 13.1.1).
func Matches(header http.Header, wanted string) bool {
	given := header["If-Match"]
	return len(given) == 0 || anyTag(given, wanted)
}

// anyTag reports whether one of the tags in the lines of a condition is *, or among the wanted ones.
func anyTag(lines []string, wanted ...string) bool {
	for _, line := range lines {
		for tag := range strings.SplitSeq(line, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || slices.Contains(wanted, tag) {
				return true
			}
		}
	}
	return false
}

// ParseETag reads a strong ETag of a record: a quoted positive integer.
func ParseETag(text string) (int64, bool) {
	text = strings.TrimSpace(text)
	version, err := strconv.ParseInt(strings.Trim(text, `"`), 10, 64)
	return version, err == nil && version > 0 && ETag(version) == text
}

// refuseUnsupported refuses, before the body is read, headers of RFC 9110 that change what a request means and that the
// gateway does not implement. Conditions on versions are for records, whose handlers read them.
func refuseUnsupported(w *Answer, r *http.Request, record bool) error {
	reads := isRead(r)
	if len(r.Header["Content-Range"]) > 0 && !reads { // section 14.5
		return Invalid("There are no partial writes: the body replaces the whole value. " +
			"Send all of it, without Content-Range.")
	}
	for _, line := range r.Header["Content-Encoding"] { // section 15.5.16
		if r.Method != http.MethodPut && r.Method != http.MethodPost {
			break // the gateway reads no body
		}
		if coding := strings.TrimSpace(line); coding != "" && !strings.EqualFold(coding, "identity") {
			w.Header().Set("Accept-Encoding", "identity")
			return Problem(http.StatusUnsupportedMediaType, api.CodeInvalidRequest,
				"The body has the Content-Encoding "+Clip(coding)+", which the gateway does not decode. Send it as it is; "+
					"compressed data is a value with a Content-Type of its own, like application/gzip.")
		}
	}
	matches := len(r.Header["If-Match"]) > 0
	switch {
	// Section 13.1.4: beside If-Match it is ignored.
	case len(r.Header["If-Unmodified-Since"]) > 0 && !matches && (record || !reads):
		return Invalid("There is no If-Unmodified-Since: times don't order writes. " +
			"Send If-Match with the ETag of the version that you have read.")
	case !record && !reads && (matches || len(r.Header["If-None-Match"]) > 0):
		return Invalid("This request takes no If-Match and no If-None-Match: only records have versions. " +
			"An operation of a transaction has if_version.")
	}
	return nil
}

// isRead reports whether a request changes nothing.
func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }
