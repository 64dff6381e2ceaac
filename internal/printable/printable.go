// Package printable makes text that others chose safe to print, and names safe to tell apart.
package printable

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text replaces hidden characters. A tab and other spaces become a space.
func Text(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', unicode.Is(unicode.Zs, r):
			return ' '
		case Hidden(r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Hidden reports whether a character is not seen, or changes what else is seen: it could steer the terminal, break the
// line, reorder the text (bidirectional controls), or make two names look the same (zero width).
func Hidden(r rune) bool {
	return !unicode.IsPrint(r) && !unicode.Is(unicode.Zs, r) ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// IndexUnfit returns the byte at which a name has a hidden character, a space other than " ", or invalid UTF-8; -1: it
// has none. It is for names by which people decide, such as those of principals.
func IndexUnfit(name string) int {
	return strings.IndexFunc(name, func(r rune) bool {
		return r == utf8.RuneError || r != ' ' && unicode.Is(unicode.Zs, r) || Hidden(r)
	})
}
