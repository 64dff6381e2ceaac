// Package printable makes text that others chose safe to print.
package printable

import (
	"strings"
	"unicode"
)

// Text replaces control characters, which could steer the terminal or break the line. A tab becomes a space.
func Text(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
