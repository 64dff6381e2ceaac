package store

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// NameBytesMax is the length that a name may have, in bytes.
const NameBytesMax = 512

// Name is the name of a lock, a resource or a key: a path of 1 to 512 bytes of UTF-8 whose segments, separated by "/",
// are neither empty nor "." nor "..", without control characters. ParseName makes one; the database checks it again.
type Name string

// ParseName checks that text is a Name. It returns ErrInvalidName, saying what is wrong and where.
func ParseName(text string) (Name, error) {
	switch {
	case text == "":
		return "", fmt.Errorf("%w: it is empty", ErrInvalidName)
	case len(text) > NameBytesMax:
		return "", fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrInvalidName, len(text), NameBytesMax)
	case !utf8.ValidString(text):
		return "", fmt.Errorf("%w: it is not valid UTF-8", ErrInvalidName)
	}
	if at := strings.IndexFunc(text, unicode.IsControl); at >= 0 {
		return "", fmt.Errorf("%w: there is a control character at byte %d", ErrInvalidName, at)
	}
	for segment := range strings.SplitSeq(text, "/") {
		switch segment {
		case "":
			return "", fmt.Errorf("%w: a segment is empty (names neither begin nor end with \"/\", nor have \"//\")",
				ErrInvalidName)
		case ".", "..":
			return "", fmt.Errorf("%w: %q can't be a segment", ErrInvalidName, segment)
		}
	}
	return Name(text), nil
}

// isWithin reports whether a name is one of the prefixes, or below one of them. "" is above every name, and so is nil.
func isWithin(name Name, prefixes []string) bool {
	return prefixes == nil || slices.ContainsFunc(prefixes, func(prefix string) bool {
		rest, ok := strings.CutPrefix(string(name), prefix)
		return ok && (prefix == "" || rest == "" || rest[0] == '/')
	})
}
