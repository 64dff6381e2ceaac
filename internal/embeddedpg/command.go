package embeddedpg

import (
	"slices"
	"strings"
)

// childEnv is what PostgreSQL's programs see of the gateway's environment: no PG* variable, which would change ports,
// data directories and options behind our back, and one locale, so that messages are the same everywhere.
func childEnv(environ []string) []string {
	kept := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "LC_") || name == "LANG" || name == "LANGUAGE"
	})
	return append(kept, "LC_ALL=C")
}
