package model

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	drawn    = regexp.MustCompile("<!-- (explore .*) -->\n```text\n((?s:.*?))```\n")
	explored = regexp.MustCompile(`(?m)^explore without=(\S+).*\n----\n(?:.+\n)*(.*) is broken: `)
	listed   = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|.*\\| ([^|]*) \\|$")
)

// TestConceptsShowTheRuns checks that docs/concepts.md draws runs as they are in testdata/switches.txt, and says of each
// switch which promise is broken without it.
func TestConceptsShowTheRuns(t *testing.T) {
	t.Parallel()
	concepts, runs := read(t, "../../docs/concepts.md"), read(t, "testdata/switches.txt")
	drawings := drawn.FindAllStringSubmatch(concepts, -1)
	if len(drawings) < 3 {
		t.Errorf("docs/concepts.md draws %d runs, want 3", len(drawings))
	}
	for _, d := range drawings {
		if !strings.Contains(runs, d[1]+"\n----\n"+d[2]) {
			t.Errorf("docs/concepts.md draws another run than testdata/switches.txt has of: %s", d[1])
		}
	}
	broken := map[[2]string]bool{}
	for _, e := range explored.FindAllStringSubmatch(runs, -1) {
		broken[[2]string{e[1], e[2]}] = true
	}
	said := map[Switch]bool{}
	for _, l := range listed.FindAllStringSubmatch(concepts, -1) {
		said[Switch(l[1])] = broken[[2]string{l[1], l[2]}]
	}
	for _, s := range Switches {
		if !said[s] {
			t.Errorf("docs/concepts.md does not say what testdata/switches.txt shows to be broken without %s", s)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
