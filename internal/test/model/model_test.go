package model

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// depth bounds the requests of TestModelKeepsPromises. 5 takes half a minute and 1.5 GB.
var depth = flag.Int("model.depth", 4, "the most requests that clients send in a run of the model")

// TestModelKeepsPromises checks that no run breaks a promise while every safeguard and every assumption is on.
func TestModelKeepsPromises(t *testing.T) {
	t.Parallel()
	result := Model{Requests: *depth}.Explore()
	if result.Broken != "" {
		t.Fatalf("%s is broken: %s\n%s", result.Broken, result.How, result.Timeline())
	}
	t.Logf("%d states, the farthest after %d steps", result.States, result.Steps)
}

// TestModelNeedsEverySwitch checks that without a safeguard or an assumption a promise is broken, and that the shortest
// run which breaks it is the one in testdata/switches.txt. `go test ./internal/test/model -run Switch -rewrite` writes the
// runs down.
//
//	explore without=SWITCH [promise=PROMISE] [requests=N]
func TestModelNeedsEverySwitch(t *testing.T) {
	t.Parallel()
	var explored []string
	datadriven.RunTest(t, "testdata/switches.txt", func(t *testing.T, command *datadriven.TestData) string {
		var without, promise string
		requests := 4
		command.ScanArgs(t, "without", &without)
		command.MaybeScanArgs(t, "promise", &promise)
		command.MaybeScanArgs(t, "requests", &requests)
		explored = append(explored, without)
		return explore(t, without, promise, requests)
	})
	for _, s := range Switches {
		if !slices.Contains(explored, string(s)) {
			t.Errorf("testdata/switches.txt does not explore without=%s", s)
		}
	}
}

func explore(t *testing.T, without, promise string, requests int) string {
	t.Helper()
	result := Model{Without: Switch(without), Promise: promise, Requests: requests}.Explore()
	if result.Broken == "" {
		t.Fatalf("without %s no promise is broken in %d states", without, result.States)
	}
	replication := ""
	if result.Synchronous {
		replication = "replication is synchronous\n"
	}
	return fmt.Sprintf("%s%s%s is broken: %s\n", replication, result.Timeline(), result.Broken, result.How)
}

var (
	drawn    = regexp.MustCompile("<!-- (explore .*) -->\n```text\n((?s:.*?))```\n")
	explored = regexp.MustCompile(`(?m)^explore without=(\S+).*\n----\n(?:.+\n)*(.*) is broken: `)
	listed   = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|.*\\| ([^|]*) \\|$")
)

// TestReadmeShowsTheRuns checks that README.md draws runs as they are in testdata/switches.txt, and says of each
// switch which promise is broken without it.
func TestReadmeShowsTheRuns(t *testing.T) {
	t.Parallel()
	readme, runs := read(t, "README.md"), read(t, "testdata/switches.txt")
	drawings := drawn.FindAllStringSubmatch(readme, -1)
	if len(drawings) < 3 {
		t.Errorf("README.md draws %d runs, want 3", len(drawings))
	}
	for _, d := range drawings {
		if !strings.Contains(runs, d[1]+"\n----\n"+d[2]) {
			t.Errorf("README.md draws another run than testdata/switches.txt has of: %s", d[1])
		}
	}
	broken := map[[2]string]bool{}
	for _, e := range explored.FindAllStringSubmatch(runs, -1) {
		broken[[2]string{e[1], e[2]}] = true
	}
	said := map[Switch]bool{}
	for _, l := range listed.FindAllStringSubmatch(readme, -1) {
		said[Switch(l[1])] = broken[[2]string{l[1], l[2]}]
	}
	for _, s := range Switches {
		if !said[s] {
			t.Errorf("README.md does not say what testdata/switches.txt shows to be broken without %s", s)
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
