//go:build unix

package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	anchor  = regexp.MustCompile(`<a id="([^"]+)">`)
	code    = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	// mentionedDocument is a document of this folder, and perhaps one of its headings.
	mentionedDocument = regexp.MustCompile(`\b(docs/[\w/-]+\.md)(?:#([\w-]+))?`)
	notInSlug         = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinks checks that the links between documents lead to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	t.Parallel()
	count := 0
	for _, document := range documents(t) {
		for _, found := range link.FindAllStringSubmatch(withoutCode(t, document), -1) {
			target := found[1]
			if strings.Contains(target, ":") { // of the web
				continue
			}
			count++
			path, fragment, _ := strings.Cut(target, "#")
			file := document
			if path != "" {
				file = filepath.Join(filepath.Dir(document), path)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s links to %s, which does not exist", document, target)
			} else if fragment != "" && !anchors(t, file)[fragment] {
				t.Errorf("%s links to %s, and %s has no such heading", document, target, file)
			}
		}
	}
	if count < 100 {
		t.Errorf("the documents have %d links, expected more", count)
	}
}

// TestMentionedDocuments checks that the documents and headings that other files name, by their paths or URLs, exist.
func TestMentionedDocuments(t *testing.T) {
	t.Parallel()
	count := 0
	check(t, filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && isOutside(path, entry) {
			return filepath.SkipDir
		}
		if !entry.Type().IsRegular() || entry.Name() == "CHANGELOG.md" || strings.HasSuffix(path, "docs/links_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, found := range mentionedDocument.FindAllStringSubmatch(string(text), -1) {
			count++
			if _, err := os.Stat(filepath.Join(root, found[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", path, found[1])
			} else if found[2] != "" && !anchors(t, found[1])[found[2]] {
				t.Errorf("%s names %s, and %s has no such heading", path, found[0], found[1])
			}
		}
		return err
	}))
	if count < 150 {
		t.Errorf("files name %d documents, expected more", count)
	}
}

// withoutCode returns a document without its code, which has brackets of its own.
func withoutCode(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	check(t, err)
	return code.ReplaceAllString(string(text), "")
}

// anchors returns the fragments to which links into a document may lead, as GitHub makes them of headings.
func anchors(t *testing.T, file string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	check(t, err)
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(string(text), -1) {
		words := strings.ToLower(linked.ReplaceAllString(h[1], "$1"))
		found[strings.ReplaceAll(notInSlug.ReplaceAllString(words, ""), " ", "-")] = true
	}
	for _, a := range anchor.FindAllStringSubmatch(string(text), -1) {
		found[a[1]] = true
	}
	return found
}

// TestTutorialShowsItsProgram checks that the fragments of code in docs/quickstart.md are of the tutorial's program.
func TestTutorialShowsItsProgram(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(root + "/examples/tutorial/main.go")
	check(t, err)
	count := 0
	for _, b := range blocksOf(t, "docs/quickstart.md") {
		for line := range strings.Lines(b.text) {
			if line = strings.TrimSpace(line); b.language != "go" || line == "…" || isProgram(b.text) {
				continue
			}
			count++
			if !strings.Contains(string(program), line) {
				t.Errorf("docs/quickstart.md shows a line that the program does not have: %s", line)
			}
		}
	}
	if count < 10 {
		t.Errorf("docs/quickstart.md shows %d lines of its program, expected more", count)
	}
}
