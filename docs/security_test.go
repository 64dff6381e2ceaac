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

// TestNamedTestsExist checks that the tests exist that SECURITY.md names, and one for each block that does not run here.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	defined := map[string]string{} // in which folders, by the name of a test
	definition := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	check(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range definition.FindAllSubmatch(text, -1) {
			defined[string(match[1])] += filepath.ToSlash(filepath.Dir(path)) + "\n"
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
		if defined[string(match[1])] == "" {
			t.Errorf("SECURITY.md names %s, which does not exist", match[1])
		}
	}
	ofPackage := regexp.MustCompile(`(Test\w+) of ([\w/]+)`)
	for block, e := range exceptions {
		found := ofPackage.FindStringSubmatch(e.elsewhere)
		if e.elsewhere != "" && (len(found) == 0 || !strings.Contains(defined[found[1]], root+"/"+found[2]+"\n")) {
			t.Errorf("the exception of %q names no test that exists: %s", block, e.elsewhere)
		}
	}
}
