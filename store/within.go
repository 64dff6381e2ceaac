package store

import (
	"fmt"
	"slices"
	"strings"
)

// withinSQL is the condition that a name is one of the names in an argument, or below one of them. "" is above every
// name, and so is null.
func withinSQL(column, argument string) string {
	return fmt.Sprintf(`(%[2]s::text[] is null or exists (select from unnest(%[2]s::text[]) v (name)
		where v.name = '' or %[1]s = v.name or starts_with(%[1]s, v.name || '/')))`, column, argument)
}

// isWithin reports whether a name is one of the prefixes, or below one of them. "" is above every name, and so is nil.
func isWithin(name Name, prefixes []string) bool {
	return prefixes == nil || slices.ContainsFunc(prefixes, func(prefix string) bool {
		rest, ok := strings.CutPrefix(string(name), prefix)
		return ok && (prefix == "" || rest == "" || rest[0] == '/')
	})
}

// narrowed returns the prefix that all names have which have this prefix and are within the names: a list then reads no
// others.
func narrowed(prefix string, within []string) string {
	if len(within) == 1 && strings.HasPrefix(within[0], prefix) {
		return within[0]
	}
	return prefix
}
