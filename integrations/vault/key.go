package vault

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/vault/sdk/physical"
)

// keyBytesMax is the gateway's limit of a record's key.
const keyBytesMax = 512

// emptySegment stands for an empty segment, which no key of a record may have.
const emptySegment = "%-"

// reserved are the segments that no key of a record may have.
var reserved = []string{".", "..", "acquire", "renew", "release", "break", "watch", "records", "fence"}

// recordKey returns the key of the record of an entry.
func recordKey(key string) (string, error) {
	encoded := encodeKey(key)
	if len(encoded) > keyBytesMax {
		return "", fmt.Errorf("%s: %d bytes, the limit is %d", physical.ErrKeyTooLarge, len(encoded), keyBytesMax)
	}
	return encoded, nil
}

// encodeKey makes any key one that a record may have, each segment for itself: % and two hexadecimal digits stand for
// a byte of what records refuse, which are control characters, bytes that are not UTF-8, and the first letter of a
// reserved segment; and for % itself.
func encodeKey(key string) string {
	segments := strings.Split(key, "/")
	for i, segment := range segments {
		segments[i] = encodeSegment(segment)
	}
	return strings.Join(segments, "/")
}

func encodeSegment(segment string) string {
	if segment == "" {
		return emptySegment
	}
	var encoded strings.Builder
	escape := func(text string) {
		for _, b := range []byte(text) {
			fmt.Fprintf(&encoded, "%%%02X", b)
		}
	}
	for rest := segment; rest != ""; {
		char, size := utf8.DecodeRuneInString(rest)
		first := len(rest) == len(segment)
		if char == '%' || char == utf8.RuneError && size == 1 || unicode.IsControl(char) ||
			first && slices.Contains(reserved, segment) {
			escape(rest[:size])
		} else {
			encoded.WriteString(rest[:size])
		}
		rest = rest[size:]
	}
	return encoded.String()
}

// decodeKey is the inverse of encodeKey.
func decodeKey(encoded string) (string, error) {
	segments := strings.Split(encoded, "/")
	for i, segment := range segments {
		if segment == emptySegment {
			segments[i] = ""
			continue
		}
		var err error
		if segments[i], err = url.PathUnescape(segment); err != nil {
			return "", fmt.Errorf("the record %s was not stored by this backend: %w", encoded, err)
		}
	}
	return strings.Join(segments, "/"), nil
}
