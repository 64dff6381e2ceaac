//go:build unix

package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const architecture = "ARCHITECTURE.md"

var (
	inlineCode = regexp.MustCompile("`([^`\n]+)`")
	// reference is a path from the root, with one list of alternatives at most, perhaps with a declaration of the file.
	reference    = regexp.MustCompile(`^([\w.][\w./-]*(?:\{[\w,]+\}[\w./-]*)?)(?::(\w+(?:\.\w+)?))?$`)
	isFile       = regexp.MustCompile(`\.(go|sql|md|ya?ml|js|json|lua)$`)
	isFunction   = regexp.MustCompile(`(?m)^create (?:or replace function|or replace view|(?:unlogged )?table) fence\.(\w+)`)
	alternatives = regexp.MustCompile(`\{([\w,]+)\}`)
)

// rooms are the folders each of whose folders the map must name.
var rooms = []string{"gateway", "store", "internal", "internal/test", "migrations/guard"}

// TestArchitectureIsTheTree checks that the files, folders and declarations that ARCHITECTURE.md names exist, and that it
// names every room.
func TestArchitectureIsTheTree(t *testing.T) {
	t.Parallel()
	named, declarations, functions := map[string]bool{}, 0, inSchema(t)
	for _, mention := range mentions(t) {
		if function, ok := strings.CutPrefix(mention, "fence."); ok && !strings.Contains(function, "(") {
			declarations++
			if !functions[function] {
				t.Errorf("%s names %s, which migrations does not make", architecture, mention)
			}
		}
		path, declaration, ok := referenceIn(mention)
		if !ok {
			continue
		}
		for _, path := range expanded(path) {
			named[path] = true
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s names %s, which does not exist", architecture, path)
			} else if declaration != "" {
				declarations++
				if !slices.Contains(declared(t, path), declaration) {
					t.Errorf("%s names %s:%s, which the file does not declare", architecture, path, declaration)
				}
			}
		}
	}
	if declarations < 100 {
		t.Errorf("%s names %d declarations, expected more", architecture, declarations)
	}
	for _, parent := range rooms {
		entries, err := os.ReadDir(filepath.Join(root, parent))
		check(t, err)
		for _, entry := range entries {
			if room := parent + "/" + entry.Name(); entry.IsDir() && entry.Name() != "testdata" && !named[room] {
				t.Errorf("%s does not name the room %s", architecture, room)
			}
		}
	}
}

// inSchema has the functions, views and tables of the schema fence.
func inSchema(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{"name": true} // stands for any
	for _, pattern := range []string{"*.sql", "guard/*/*.sql"} {
		files, err := filepath.Glob(filepath.Join(root, "migrations", pattern))
		check(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			check(t, err)
			for _, found := range isFunction.FindAllStringSubmatch(string(text), -1) {
				all[found[1]] = true
			}
		}
	}
	return all
}

// referenceIn returns the path that a mention is, and the declaration of the file; ok is false for other code.
func referenceIn(mention string) (path, declaration string, ok bool) {
	found := reference.FindStringSubmatch(mention)
	if len(found) == 0 {
		return "", "", false
	}
	return found[1], found[2], strings.Contains(found[1], "/") || isFile.MatchString(found[1])
}

// mentions returns the code in ARCHITECTURE.md, and the words of its blocks.
func mentions(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, architecture))
	check(t, err)
	for _, b := range blocksOf(t, architecture) {
		all = append(all, strings.Fields(b.text)...)
	}
	for line := range strings.Lines(regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(text), "")) {
		if strings.Count(line, "`")%2 != 0 {
			t.Errorf("%s breaks the code of a line: %s", architecture, line)
		}
		for _, found := range inlineCode.FindAllStringSubmatch(line, -1) {
			all = append(all, found[1])
		}
	}
	return all
}

// expanded returns the paths that a path with a list of alternatives stands for.
func expanded(path string) (all []string) {
	list := alternatives.FindStringSubmatch(path)
	if list == nil {
		return []string{path}
	}
	for each := range strings.SplitSeq(list[1], ",") {
		all = append(all, strings.Replace(path, list[0], each, 1))
	}
	return all
}

var (
	isMethod = regexp.MustCompile(`(?m)^func \(\w+ \*?(\w+)[^)]*\) (\w+)`)
	isName   = regexp.MustCompile(`(?m)^(?:func|type|var|const) (\w+)`)
	inGroup  = regexp.MustCompile(`(?ms)^(?:type|var|const) \($.*?\n\)`)
	isMember = regexp.MustCompile(`(?m)^\t(\w+)`)
)

// declared returns what a file declares: in Go Name, or Type.Method; in SQL the functions and views.
func declared(t *testing.T, file string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	check(t, err)
	add := func(pattern *regexp.Regexp, text string) {
		for _, found := range pattern.FindAllStringSubmatch(text, -1) {
			names = append(names, strings.Join(found[1:], "."))
		}
	}
	if filepath.Ext(file) == ".sql" {
		add(isFunction, string(text))
		return names
	}
	add(isMethod, string(text))
	add(isName, string(text))
	for _, group := range inGroup.FindAllString(string(text), -1) {
		add(isMember, group)
	}
	return names
}
