package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// CheckJSON returns ErrInvalid, naming the field, if text is not JSON that PostgreSQL can read. PostgreSQL stores an
// escaped NUL in a column of type json, and half a surrogate pair, but every statement that looks into such a row
// fails. Strings without them also fit into jsonb.
func CheckJSON(field string, text []byte) error {
	decoder := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true))
	for {
		token, err := decoder.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%w: %s is not JSON: %s", ErrInvalid, field, strings.TrimPrefix(err.Error(), "jsontext: "))
		case token.Kind() == '"' && strings.ContainsRune(token.String(), 0):
			return fmt.Errorf("%w: %s has a NUL (\\u0000) in a text, which PostgreSQL can't read", ErrInvalid, field)
		}
	}
}
