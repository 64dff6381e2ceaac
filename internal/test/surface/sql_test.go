package surface_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/surface"
)

// applications may call these functions and read these views. All else in the schema is the gateways' own.
var applications = []string{
	"accept_database", "acquire", "allow_names", "claim", "close_table", "disallow_names", "guard", "held", "open_table",
	"protect", "protected", "release", "renew", "renew_claim", "segment", "set_token", "try_guard", "unprotect",
}

// refused are types of results that some drivers and ORMs can't read.
var refused = regexp.MustCompile(`\b(void|oid|xid8?|reg[a-z]+)\b`)

// TestSQL compares the functions and views for applications, as the golden schema has them, and all SQLSTATEs of the
// class LF with sql.golden. Every driver and ORM can read the result of each function.
func TestSQL(t *testing.T) {
	t.Parallel()
	var lines []string
	found := map[string]bool{}
	schema := strings.Split(read(t, "migrations/schema.golden"), "\n")
	object := regexp.MustCompile(`^(view |column |function )(fence\.([a-z_]+).*?): (?:logged|arguments)? ?(.*)`)
	for i, line := range schema {
		match := object.FindStringSubmatch(line)
		if len(match) == 0 || !slices.Contains(applications, match[3]) {
			continue
		}
		found[match[3]] = true
		switch match[1] {
		case "view ":
			line = match[1] + match[2] + " " + match[4]
		case "column ":
			line = match[2] + " " + match[4]
		case "function ":
			line = "fence." + match[3] + "(" + match[4] + ")" + strings.Replace(schema[i+1], " ", "", 1)
			_, columns, _ := strings.Cut(line, ", OUT ")
			if refused.MatchString(columns + " " + schema[i+1]) {
				t.Errorf("%s has a result that some drivers can't read", line)
			}
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
