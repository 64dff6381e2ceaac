//go:build unix

package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestThreatModelNamesTests checks that the tests that SECURITY.md names exist.
func TestThreatModelNamesTests(t *testing.T) {
	t.Parallel()
	defined := map[string]bool{}
	definition := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	check(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range definition.FindAllSubmatch(text, -1) {
			defined[string(match[1])] = true
		}
		return err
	}))
	text, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	check(t, err)
	named := regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(text, -1)
	if len(named) < 20 {
		t.Errorf("SECURITY.md names %d tests", len(named))
	}
	for _, match := range named {
		if !defined[string(match[1])] {
			t.Errorf("SECURITY.md names %s, which does not exist", match[1])
		}
	}
}
