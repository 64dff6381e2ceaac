package gateway

import (
	"bytes"
	"crypto/md5" //nolint:gosec // of Content-MD5
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/metrics"
)

// setBodyDeadline bounds the time in which the body of a request arrives. It holds for the handler, and for the server,
// which drops the rest of a body that the handler refused.
func (g *Gateway) setBodyDeadline(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		// Fails where the connection is gone, which the first read will show, and in tests without a connection. After
		// the body, the server waits for the connection's end without a deadline, so a request may take longer.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.config.BodyTimeout))
	}
}

// readBody reads a whole body, within the limits of size and time (see setBodyDeadline).
func (g *Gateway) readBody(w *answerWriter, r *http.Request) ([]byte, error) {
	body, err := g.readAll(w, r)
	if err == nil {
		w.bodyLeft = false
		return body, nil
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, overLimit("The body", tooLarge.Limit)
	}
	switch {
	case errors.Is(err, errBodiesFull):
		return nil, busy("This gateway holds as many bytes of request bodies as it may (--bodies-bytes-max). " +
			"Nothing was changed: try again a little later, or another gateway.")
	case errors.Is(err, errBodiesOfCallerFull):
		return nil, g.rateLimited(metrics.LimitBodies, "Your request bodies hold as many bytes of this gateway as those of "+
			"one caller may, half of --bodies-bytes-max.", slotRetry)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problem(http.StatusRequestTimeout, api.CodeInvalidRequest,
			"The body did not arrive within "+g.config.BodyTimeout.String()+" (--body-timeout).")
	}
	return nil, invalid("The body broke off: %v.", err)
}

func overLimit(what string, limit int64) *api.Problem {
	return problem(http.StatusRequestEntityTooLarge, api.CodeTooLarge,
		what+" is over the limit of "+strconv.FormatInt(limit, 10)+" bytes (--body-bytes-max).")
}

// readAll reads a short body of known length into a buffer of that size. Longer bodies count against the budget.
func (g *Gateway) readAll(w *answerWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 || r.ContentLength > min(bodyFreeBytes, g.config.BodyBytesMax) {
		return g.readCounted(w, r)
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// checkContentType refuses a body of another media type, before it is read.
func checkContentType(r *http.Request, mediaType, must string) error {
	header := r.Header.Get("Content-Type")
	if header == mediaType {
		return nil
	}
	given, _, err := mime.ParseMediaType(header)
	if err != nil || given != mediaType {
		return problem(http.StatusUnsupportedMediaType, api.CodeInvalidRequest,
			"The body must be "+must+", with Content-Type: "+mediaType+".")
	}
	return nil
}

var strictly = json.RejectUnknownMembers(true)

// readJSON reads a JSON body into document. It refuses unknown, misspelt and repeated fields, and parameters in the
// URL: an option must not be ignored. A body for a document without fields may be absent.
func (g *Gateway) readJSON(w *answerWriter, r *http.Request, document any) error {
	if _, err := query(r); err != nil {
		return err
	}
	if _, none := document.(*struct{}); none && r.ContentLength == 0 {
		return nil
	}
	if err := checkContentType(r, "application/json", "JSON"); err != nil {
		return err
	}
	body, err := g.readBody(w, r)
	if err != nil {
		return err
	}
	switch text := bytes.Trim(body, " \t\r\n"); {
	case len(text) == 0:
		return invalid("The body is empty; it must be a JSON object.")
	case string(text) == "null": // would decode as an object without fields
		return invalid("The body must be a JSON object.")
	}
	if err := json.Unmarshal(body, document, strictly); err != nil {
		return invalidJSON(err)
	}
	return nil
}

// invalidJSON names the field that is wrong, and says why.
func invalidJSON(err error) *api.Problem {
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok && syntactic.JSONPointer != "" {
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
		return invalidToken(field + ": a fencing token is a JSON integer from 1 to 2^53-1, a sequence one from 0.")
	case field == "":
		return invalid("The body must be a JSON object.")
	}
	expected := "another type"
	if semantic.GoType != nil {
		expected = jsonTypes[strings.TrimLeft(semantic.GoType.String(), "*")]
	}
	return invalid("The field %s has the wrong type or is out of range: it must be %s.", field, expected)
}

// jsonTypes are the types of fields as clients know them.
var jsonTypes = map[string]string{
	"string": "a string", "int64": "an integer", "bool": "true or false", "json.RawMessage": "a JSON value",
	"[]api.WriteToken": "an array", "[]api.Op": "an array", "api.WriteToken": "an object", "api.Op": "an object",
	"[]string": "an array of texts",
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

// checkMD5 compares a body with the header Content-MD5 (RFC 1864), if there is one.
func checkMD5(r *http.Request, body []byte) error {
	given := r.Header.Get("Content-Md5")
	if given == "" {
		return nil
	}
	sum := md5.Sum(body) //nolint:gosec // the client chose it, against accidents
	if given != base64.StdEncoding.EncodeToString(sum[:]) {
		return invalid("The body differs from its Content-MD5: it was changed on its way.")
	}
	return nil
}
