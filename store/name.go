package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencegate/fencegate/internal/printable"
)

// NameBytesMax is the length that a name may have, in bytes.
const NameBytesMax = 512

// Name is the name of a lock, a resource or a key: a path of 1 to 512 bytes of UTF-8 whose segments, separated by "/",
// are neither empty nor "." nor "..", without control characters. ParseName makes one; the database checks it again.
type Name string

// ParseName checks that text is a Name. It returns ErrInvalidName, saying what is wrong and where; of says whose name it
// is, such as lock.
func ParseName(of, text string) (Name, error) {
	switch {
	case text == "":
		return "", InvalidName(of, "is empty")
	case len(text) > NameBytesMax:
		return "", InvalidName(of, "has %d bytes; at most %d are allowed", len(text), NameBytesMax)
	case !utf8.ValidString(text):
		return "", InvalidName(of, "is not valid UTF-8")
	}
	if at := strings.IndexFunc(text, unicode.IsControl); at >= 0 {
		return "", InvalidName(of, "has a control character at byte %d", at)
	}
	for segment := range strings.SplitSeq(text, "/") {
		switch segment {
		case "":
			return "", InvalidName(of, `has an empty segment (names neither begin nor end with "/", nor have "//")`)
		case ".", "..":
			return "", InvalidName(of, "has the segment %q, which no name may have", segment)
		}
	}
	return Name(text), nil
}

// InvalidName makes an ErrInvalidName.
func InvalidName(of, why string, args ...any) error {
	return fmt.Errorf("%w: the name of the %s %s", ErrInvalidName, of, fmt.Sprintf(why, args...))
}

// isWithin reports whether a name is one of the prefixes, or below one of them. "" is above every name, and so is nil.
func isWithin(name Name, prefixes []string) bool {
	return prefixes == nil || slices.ContainsFunc(prefixes, func(prefix string) bool {
		rest, ok := strings.CutPrefix(string(name), prefix)
		return ok && (prefix == "" || rest == "" || rest[0] == '/')
	})
}

// PageMax is the most that a list returns at once.
const PageMax = 1000

func checkLimit(limit int) error {
	if limit < 1 || limit > PageMax {
		return fmt.Errorf("%w: limit is %d, it must be 1 to %d", ErrInvalid, limit, PageMax)
	}
	return nil
}

// CheckReason returns ErrInvalid if the reason that an administrator gives is outside its limits.
func CheckReason(reason string) error { return checkText("reason", reason, 1, ReasonBytesMax) }

func checkText(field, text string, bytesMin, bytesMax int) error {
	switch {
	case len(text) < bytesMin:
		return fmt.Errorf("%w: %s is required", ErrInvalid, field)
	case len(text) > bytesMax:
		return fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrInvalid, field, len(text), bytesMax)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: %s is not valid UTF-8", ErrInvalid, field)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("%w: %s has a control character", ErrInvalid, field)
	}
	return nil
}

// checkSeen refuses text that could mislead an administrator who reads it.
func checkSeen(field, text string) error {
	if at := printable.IndexUnfit(text); at >= 0 {
		r, _ := utf8.DecodeRuneInString(text[at:])
		return fmt.Errorf("%w: %s has the character %U at byte %d, which is not seen or changes what is seen",
			ErrInvalid, field, r, at)
	}
	return nil
}

func checkMetadata(metadata json.RawMessage) error {
	switch {
	case metadata == nil:
		return nil
	case len(metadata) > MetadataBytesMax:
		return fmt.Errorf("%w: metadata has %d bytes, the limit is %d", ErrInvalid, len(metadata), MetadataBytesMax)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(metadata, &object); err != nil || object == nil {
		return fmt.Errorf("%w: metadata must be a JSON object", ErrInvalid)
	}
	return CheckJSON("metadata", metadata)
}

// CheckJSON returns ErrInvalid, naming the field, if text is not JSON that PostgreSQL can read. A column of type json
// accepts an escaped NUL, and half a surrogate pair, but every statement that reads a field of such a row fails.
// Strings without them also fit into jsonb.
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
