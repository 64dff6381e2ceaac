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

var (
	mentioned = regexp.MustCompile("`fencegate\\s([a-z][^`]*)`")
	inBlock   = regexp.MustCompile(`(?m)^(?:\$ )?fencegate ([a-z].*)`)
	isCommand = regexp.MustCompile(`^[a-z][a-z-]*$`)
	flagName  = regexp.MustCompile(`(?:^|\s)(--[a-z][a-z-]*)`)
)

// TestMentionedFlags checks that the commands that documents mention, in their text or in blocks, exist and have the
// flags that are mentioned with them. cli.golden has all of them: TestSurface of cmd/fencegate.
func TestMentionedFlags(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile(root + "/internal/test/surface/testdata/cli.golden")
	check(t, err)
	has := func(command, rest string) bool {
		return regexp.MustCompile(`(?m)^fencegate ` + command + rest).Match(golden)
	}
	names := map[string]bool{"listener": true, "prober": true, "x2": true} // of connections, and in a benchmark's table
	count := 0
	for _, document := range documents(t) {
		text, err := os.ReadFile(filepath.Join(root, document))
		check(t, err)
		all := mentioned.FindAllStringSubmatch(string(text), -1)
		for _, b := range blocksOf(t, document) {
			if b.language == "sh" || b.language == "console" {
				all = append(all, inBlock.FindAllStringSubmatch(b.text, -1)...)
			}
		}
		for _, found := range all {
			line, _, _ := strings.Cut(found[1], " -- ")
			line, _, _ = strings.Cut(line, "#")
			words := strings.Fields(line)
			command := words[0]
			if len(words) > 1 && isCommand.MatchString(words[1]) && has(command+" "+words[1], `( |$)`) {
				command += " " + words[1]
			}
			if names[words[0]] {
				continue
			}
			if !has(command, `( |$)`) {
				t.Errorf("%s mentions `fencegate %s`, and there is no such command", document, line)
			}
			for _, flag := range flagName.FindAllStringSubmatch(line, -1) {
				count++
				if name := strings.TrimPrefix(strings.TrimPrefix(flag[1], "--"), "no-"); !has(command, `( ls)? --(\[no-\]|no-)?`+name+`( |$)`) {
					t.Errorf("%s mentions `fencegate %s`, and %s has no flag %s", document, line, command, flag[1])
				}
			}
		}
	}
	if count < 50 {
		t.Errorf("the documents mention %d flags, expected more", count)
	}
}

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
