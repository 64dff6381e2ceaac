// Package surface compares what users rely on with golden files, for tests. docs/stability.md says what is promised of
// each. A line of a golden file is one thing that a user may name: a declaration, a function of SQL, a flag.
package surface

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files in internal/test/surface/testdata")

// Compare compares lines, in any order, with a golden file. The message of a difference says what each kind means.
func Compare(t testing.TB, golden string, lines []string) {
	t.Helper()
	slices.Sort(lines)
	lines = slices.Compact(lines)
	if *update {
		if err := os.WriteFile(golden, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	removed, added := without(want, lines), without(lines, want)
	if len(removed) > 0 {
		t.Errorf("a removed or changed line breaks users (docs/stability.md): from 1.0 on it waits for 2.0, deprecated "+
			"until then. If it is meant, run `make golden` and name it in CHANGELOG.md. %s is without:\n- %s",
			golden, strings.Join(removed, "\n- "))
	}
	if len(added) > 0 {
		t.Errorf("a new line is a promise (docs/stability.md). If it is meant, run `make golden`. Of %s are new:\n+ %s",
			golden, strings.Join(added, "\n+ "))
	}
}

// without returns the lines that others lack.
func without(lines, others []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(others, line) })
}
