package surface_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/surface"
)

// applications may call these functions and read these views. All else in the schema is the gateways' own.
var applications = []string{
	"accept_database", "acquire", "allow_names", "claim", "close_table", "disallow_names", "guard", "held", "open_table",
	"protect", "protected", "release", "renew", "renew_claim", "segment", "set_token", "try_guard", "unprotect",
}

// TestSQL compares the functions and views for applications, as the golden schema has them, and all SQLSTATEs of the
// class LF with sql.golden.
func TestSQL(t *testing.T) {
	t.Parallel()
	var lines []string
	found := map[string]bool{}
	schema := strings.Split(read(t, "migrations/testdata/schema.golden"), "\n")
	object := regexp.MustCompile(`^(?:view )?fence\.([a-z_]+)(?:\(| with |\.)`)
	for i, line := range schema {
		match := object.FindStringSubmatch(line)
		if len(match) == 0 || !slices.Contains(applications, match[1]) {
			continue
		}
		found[match[1]] = true
		if returns, ok := strings.CutPrefix(schema[i+1], "  returns "); ok {
			returns, _, _ = strings.Cut(returns, " language ")
			line += " returns " + returns
		}
		lines = append(lines, line)
	}
	for _, name := range applications {
		if !found[name] {
			t.Errorf("the golden schema has no fence.%s", name)
		}
	}
	state := regexp.MustCompile(`\bLF\d{3}\b`)
	check(t, filepath.WalkDir(root+"migrations/guard", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range state.FindAllString(string(text), -1) {
			if found != "LF100" { // which only undoes a savepoint, within a function
				lines = append(lines, "SQLSTATE "+found)
			}
		}
		return err
	}))
	surface.Compare(t, "testdata/sql.golden", lines)
}
