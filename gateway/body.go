package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// readBody reads a body whole, within the limits of size and time (see hurry).
func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := g.readAll(w, r)
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		noteBodyRead(w)
		return body, nil
	case errors.As(err, &tooLarge):
		return nil, problem(http.StatusRequestEntityTooLarge, api.CodeTooLarge,
			"The body is over the limit of "+strconv.FormatInt(tooLarge.Limit, 10)+" bytes (--body-bytes-max).")
	case errors.Is(err, errBodiesFull):
		return nil, bodiesFull()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problem(http.StatusRequestTimeout, api.CodeInvalidRequest,
			"The body did not arrive within "+g.config.BodyTimeout.String()+" (--body-timeout).")
	}
	return nil, invalid("The body broke off: %v.", err)
}

// readAll reads a short body of known length into room of just that size.
func (g *Gateway) readAll(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 || r.ContentLength > min(bodyFreeBytes, g.config.BodyBytesMax) {
		return g.readCounted(w, r)
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// readJSON reads a JSON body into document. Unknown, misspelt and repeated fields are refused, and so are parameters in the
// URL: an option must not pass silently.
func (g *Gateway) readJSON(w http.ResponseWriter, r *http.Request, document any) error {
	if _, err := query(r); err != nil {
		return err
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" {
		return problem(http.StatusUnsupportedMediaType, api.CodeInvalidRequest, "The body must be JSON, with Content-Type: application/json.")
	}
	body, err := g.readBody(w, r)
	if err != nil {
		return err
	}
	switch text := bytes.Trim(body, " \t\r\n"); {
	case len(text) == 0:
		return invalid("The body is empty; it must be a JSON object.")
	case string(text) == "null": // would pass for an object whose fields are all absent
		return invalid("The body must be a JSON object.")
	}
	if err := json.Unmarshal(body, document, json.RejectUnknownMembers(true)); err != nil {
		return invalidJSON(err)
	}
	return nil
}

// readNothing reads a body that says nothing: none at all, or an object without fields.
func (g *Gateway) readNothing(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	return g.readJSON(w, r, new(struct{}))
}

// invalidJSON says which field is wrong, and how.
func invalidJSON(err error) *api.Problem {
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		var syntactic *jsontext.SyntacticError
		if errors.As(err, &syntactic) && syntactic.JSONPointer != "" {
			field := fieldName(syntactic.JSONPointer)
			if errors.Is(err, jsontext.ErrDuplicateName) {
				return invalid("The field %s is there twice.", field)
			}
			return invalid("The body is not JSON: at %s, byte %d: %v.", field, syntactic.ByteOffset, syntactic.Err)
		}
		return invalid("The body is not JSON: %s.", strings.TrimPrefix(err.Error(), "jsontext: "))
	}
	field := fieldName(semantic.JSONPointer)
	switch {
	case errors.Is(err, json.ErrUnknownName):
		return invalid("There is no field %s; is it misspelt?", field)
	case strings.HasSuffix(field, "fencing_token"), strings.HasSuffix(field, "sequence"), field == "term":
		return problem(http.StatusBadRequest, api.CodeInvalidToken, field+": a fencing token is a JSON integer from 1 to 2^53-1, a sequence one from 0.")
	case field == "":
		return invalid("The body must be a JSON object.")
	}
	expected := "another type"
	if semantic.GoType != nil {
		expected = jsonTypes[strings.TrimLeft(semantic.GoType.String(), "*")]
	}
	return invalid("The field %s has the wrong type or is out of range: it must be %s.", field, expected)
}

// jsonTypes are the types of fields as a client knows them.
var jsonTypes = map[string]string{
	"string": "a string", "int64": "an integer", "bool": "true or false", "json.RawMessage": "a JSON value",
	"[]api.WriteToken": "an array", "[]api.Op": "an array", "api.WriteToken": "an object", "api.Op": "an object",
}

// fieldName writes a JSON pointer as clients write paths: fences[0].resource.
func fieldName(pointer jsontext.Pointer) string {
	var name strings.Builder
	for token := range pointer.Tokens() {
		if _, err := strconv.Atoi(token); err == nil {
			name.WriteString("[" + token + "]")
			continue
		}
		if name.Len() > 0 {
			name.WriteByte('.')
		}
		name.WriteString(token)
	}
	return clip(name.String())
}

// clip keeps a message short whatever was sent.
func clip(text string) string {
	const shown = 100
	if len(text) <= shown {
		return text
	}
	return strings.ToValidUTF8(text[:shown], "") + "…"
}

// query reads the parameters of a URL; one that is not among known is refused, like one that is there twice.
func query(r *http.Request, known ...string) (url.Values, error) {
	if r.URL.RawQuery == "" {
		return nil, nil //nolint:nilnil // a nil url.Values reads as one without parameters
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid("The query of the URL is malformed.")
	}
	for name, given := range values {
		if !slices.Contains(known, name) {
			return nil, invalid("There is no parameter %q; %s.", clip(name), knownParameters(known))
		}
		if len(given) > 1 {
			return nil, invalid("The parameter %s is there %d times.", name, len(given))
		}
	}
	return values, nil
}

func knownParameters(known []string) string {
	if len(known) == 0 {
		return "this URL takes none"
	}
	return "there are: " + strings.Join(known, ", ")
}

const pageDefault = 100

// page is which part of a list was asked for.
type page struct {
	values url.Values // all parameters
	limit  int
	after  string // where the page before ended; to clients an opaque cursor
	prefix string // any text that a name could begin with
}

// readPage reads the parameters of a list: limit, cursor, and what else is known of it.
func readPage(r *http.Request, known ...string) (page, error) {
	values, err := query(r, append(known, "limit", "cursor")...)
	if err != nil {
		return page{}, err
	}
	limit := pageDefault
	if text := values.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil {
			return page{}, invalid("limit must be an integer from 1 to %d.", store.PageMax)
		}
	}
	cursor, err := base64.RawURLEncoding.DecodeString(values.Get("cursor"))
	if err != nil || !utf8.Valid(cursor) || bytes.IndexByte(cursor, 0) >= 0 {
		return page{}, invalid("cursor must be a next_cursor that the gateway gave.")
	}
	prefix := values.Get("prefix")
	if len(prefix) > store.NameBytesMax || !utf8.ValidString(prefix) || strings.ContainsRune(prefix, 0) {
		return page{}, invalid("prefix must be UTF-8 of at most %d bytes, without NUL.", store.NameBytesMax)
	}
	return page{values, limit, string(cursor), prefix}, nil
}

// nextCursor is where the next page begins; "" if a page of n shows that there is none.
func nextCursor(n, limit int, last func() string) string {
	if n < limit {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(last()))
}

// work is the context of the work on a request. It outlives the client's connection: what was begun is finished, and a statement that is
// cut off would cost its connection to the database. Only the end of the server cuts it off.
func (g *Gateway) work(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), g.config.RequestTimeout)
	stop := context.AfterFunc(g.cut, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
