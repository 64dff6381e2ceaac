package ui

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func allFiles(t *testing.T) map[string]File {
	t.Helper()
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestEveryFileHasItsTypeAndTag(t *testing.T) {
	tags := map[string]string{}
	for name, file := range allFiles(t) {
		if file.ContentType == "" || len(file.Content) == 0 {
			t.Errorf("%s: type %q, %d bytes", name, file.ContentType, len(file.Content))
		}
		if other, ok := tags[file.ETag]; ok {
			t.Errorf("%s and %s have the same tag", name, other)
		}
		tags[file.ETag] = name
	}
}

// TestSmallModules keeps each file readable, and the whole page small: it is loaded over slow links, too.
func TestSmallModules(t *testing.T) {
	total := 0
	for name, file := range allFiles(t) {
		total += len(file.Content)
		if lines := bytes.Count(file.Content, []byte("\n")); path.Ext(name) == ".js" && lines > 250 {
			t.Errorf("%s has %d lines, more than 250: split it", name, lines)
		}
	}
	if total > 400<<10 {
		t.Errorf("the page has %d bytes, more than 400 KiB", total)
	}
}

// parsesHTML are the ways in which a browser makes elements, code or styles of a text.
var parsesHTML = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|setHTML|srcdoc|\beval\(|new Function|javascript:`)

var elsewhere = regexp.MustCompile(`(https?:)?//[a-z0-9-]+\.[a-z]`)

// TestNothingIsParsedAndNothingIsElsewhere shows that texts become text nodes, and that no address of another host is named. (The content security
// policy says the same to the browser.)
func TestNothingIsParsedAndNothingIsElsewhere(t *testing.T) {
	for name, file := range allFiles(t) {
		text := strings.ReplaceAll(string(file.Content), "http://www.w3.org/2000/svg", "") // a name, not an address
		if found := parsesHTML.FindString(text); found != "" {
			t.Errorf("%s uses %s", name, found)
		}
		if found := elsewhere.FindString(text); found != "" {
			t.Errorf("%s names %s", name, found)
		}
		if path.Ext(name) == ".html" && regexp.MustCompile(`<style|\sstyle=|\son\w+=|<script>`).MatchString(text) {
			t.Errorf("%s has inline styles or scripts, which the policy forbids", name)
		}
	}
}

var imported = regexp.MustCompile(`(?m)^(?:import|export) .*?from '([^']+)';$`)

// TestImportsAreThere follows the static imports of every module.
func TestImportsAreThere(t *testing.T) {
	files := allFiles(t)
	for name, file := range files {
		for _, match := range imported.FindAllSubmatch(file.Content, -1) {
			if target := path.Join(path.Dir(name), string(match[1])); files[target].Content == nil {
				t.Errorf("%s imports %s, which is not there", name, match[1])
			}
		}
	}
}

// TestDarkTokensAreTheSame compares the two places where the dark theme stands: chosen, and taken from the system.
func TestDarkTokensAreTheSame(t *testing.T) {
	text := string(allFiles(t)["base.css"].Content)
	block := func(from string) []string {
		_, rest, _ := strings.Cut(text, from)
		body, _, _ := strings.Cut(rest, "}")
		tokens := regexp.MustCompile(`--[\w-]+: [^;]+;`).FindAllString(body, -1)
		slices.Sort(tokens)
		return tokens
	}
	chosen, system := block(":root[data-theme=\"dark\"] {\n"), block(":root[data-theme=\"auto\"] {\n")
	if len(chosen) < 20 || !slices.Equal(chosen, system) {
		t.Errorf("the dark theme is\n%q when chosen, and\n%q by the system", chosen, system)
	}
}

// node finds Node.js, which checks the modules: a browser runs them.
func node(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("node is not installed: scripts/test-deps installs it")
		}
		t.Skip("node is not installed: the dashboard's modules are not checked (scripts/test-deps)")
	}
	return program
}

// TestModules runs testdata/*.test.js: they link every module, and test the pure ones.
func TestModules(t *testing.T) {
	program := node(t)
	tests, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	arguments := []string{"--test"}
	for _, test := range tests {
		if strings.HasSuffix(test.Name(), ".test.js") {
			arguments = append(arguments, path.Join("testdata", test.Name()))
		}
	}
	if output, err := exec.CommandContext(t.Context(), program, arguments...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}
