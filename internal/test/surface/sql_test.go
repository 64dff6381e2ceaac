package surface_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/surface"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// applications may call these functions and read these views. All else in the schema is the gateways' own.
var applications = []string{
	"accept_database", "acquire", "allow_names", "claim", "close_table", "disallow_names", "guard", "held", "open_table",
	"outcome", "protect", "protected", "release", "renew", "renew_claim", "segment", "set_token", "sweep_all", "try_guard",
	"unprotect",
}

// refused are types of results that some drivers and ORMs can't read.
var refused = regexp.MustCompile(`\b(void|oid|xid8?|reg[a-z]+)\b`)

// TestSQL compares the functions and views for applications, as the golden schema has them, and all SQLSTATEs of the
// class LF with sql.golden. Every driver and ORM can read the result of each function, and the columns of each view. The
// functions that the documents call are among them.
func TestSQL(t *testing.T) {
	t.Parallel()
	var lines []string
	found := map[string]bool{}
	schema := strings.Split(read(t, "migrations/schema.golden"), "\n")
	object := regexp.MustCompile(`^(view |column |function )(fence\.([a-z_]+).*?): (?:logged|arguments)? ?(.*)`)
	called := calledInDocuments(t)
	for i, line := range schema {
		match := object.FindStringSubmatch(line)
		if len(match) == 0 || !slices.Contains(applications, match[3]) {
			if len(match) > 0 && called[match[3]] {
				t.Errorf("the documents call fence.%s, expected it among the functions for applications", match[3])
			}
			continue
		}
		found[match[3]] = true
		var result string
		switch match[1] {
		case "view ":
			line = match[1] + match[2] + " " + match[4]
		case "column ":
			line = match[2] + " " + match[4]
			result = match[4]
		case "function ":
			line = "fence." + match[3] + "(" + match[4] + ")" + strings.Replace(schema[i+1], " ", "", 1)
			_, result, _ = strings.Cut(line, ", OUT ")
			result += schema[i+1]
		}
		if refused.MatchString(result) {
			t.Errorf("%s has a result that some drivers can't read", line)
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

// calledInDocuments returns the names of the functions that the documents for users call.
func calledInDocuments(t *testing.T) map[string]bool {
	t.Helper()
	call, called := regexp.MustCompile(`\bfence\.([a-z_]+)\(`), map[string]bool{}
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/sql/*.md"} {
		pages, err := filepath.Glob(root + pattern)
		check(t, err)
		for _, page := range pages {
			text, err := os.ReadFile(page)
			check(t, err)
			for _, found := range call.FindAllStringSubmatch(string(text), -1) {
				called[found[1]] = true
			}
		}
	}
	return called
}

// TestPython compares the public names of the Python client with python.golden.
func TestPython(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		process.Missing(t, "python3 is not installed")
	}
	output, err := exec.CommandContext(t.Context(), python, "exported.py", root+"clients/python/src/fencegate").Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("exported.py: %v\n%s", err, failed.Stderr)
	}
	check(t, err)
	surface.Compare(t, "testdata/python.golden", strings.Split(strings.TrimSpace(string(output)), "\n"))
}
