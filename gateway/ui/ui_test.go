package ui

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"regexp"
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

// TestFilesHaveTypeAndETag checks that every file has a content type, content, and an ETag of its own.
func TestFilesHaveTypeAndETag(t *testing.T) {
	tags := map[string]string{}
	for name, file := range allFiles(t) {
		if file.ContentType == "" || len(file.Content) == 0 {
			t.Errorf("%s: type %q, %d bytes", name, file.ContentType, len(file.Content))
		}
		if other, ok := tags[file.ETag]; ok {
			t.Errorf("%s and %s have the same ETag", name, other)
		}
		tags[file.ETag] = name
	}
}

// TestModulesAreSmall keeps each file readable, and the whole page small enough for slow links.
func TestModulesAreSmall(t *testing.T) {
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

// parsesHTML matches the ways in which a browser makes elements, code or styles from a text.
var parsesHTML = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|` +
	`createContextualFragment|setHTML|srcdoc|\beval\(|new Function|javascript:`)

var otherHost = regexp.MustCompile(`(https?:)?//[a-z0-9-]+\.[a-z]`)

// TestFilesParseNoHTMLAndNameNoOtherHost checks that texts become text nodes, and that no file has an address of
// another host, but for the link to the documents. The content security policy requires the same of the browser.
func TestFilesParseNoHTMLAndNameNoOtherHost(t *testing.T) {
	for name, file := range allFiles(t) {
		text := strings.ReplaceAll(string(file.Content), "http://www.w3.org/2000/svg", "") // a name, not an address
		text = strings.ReplaceAll(text, `<a href="https://github.com/fencegate/fencegate/tree/main/docs"`, "")
		if found := parsesHTML.FindString(text); found != "" {
			t.Errorf("%s uses %s", name, found)
		}
		if found := otherHost.FindString(text); found != "" {
			t.Errorf("%s names %s", name, found)
		}
		if path.Ext(name) == ".html" && regexp.MustCompile(`<style|\sstyle=|\son\w+=|<script>`).MatchString(text) {
			t.Errorf("%s has inline styles or scripts, which the content security policy forbids", name)
		}
	}
}

var imported = regexp.MustCompile(`(?m)^(?:import|export) .*?from '([^']+)';$`)

// TestImportsExist checks that the static imports of every module exist.
func TestImportsExist(t *testing.T) {
	files := allFiles(t)
	for name, file := range files {
		for _, match := range imported.FindAllSubmatch(file.Content, -1) {
			if target := path.Join(path.Dir(name), string(match[1])); files[target].Content == nil {
				t.Errorf("%s imports %s, which does not exist", name, match[1])
			}
		}
	}
}

// node finds Node.js, which runs the tests of the modules.
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

// TestModules runs testdata/*.test.js, which link every module and test the pure ones.
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
