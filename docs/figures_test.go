//go:build unix

package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// figure is a measured figure that a document repeats. What was measured stands in a table of performance.md or
// sizing.md; everything else repeats it.
type figure struct {
	// in is the document, and says a pattern of the sentence: its first group is the figure.
	in, says string
	// of is the document of the table, under a heading, and row the beginning of the row's first cell.
	of, heading, row string
	// column counts from 1 after the row's name. ratio takes what stands in brackets there.
	column int
	ratio  bool
}

var figures = []figure{
	{"README.md", `256 clients get ([\d.]+) times as many`, "docs/performance.md", "## Writes", "**HTTP, single", 4, true},
	{"README.md", `one client ([\d.]+) times`, "docs/performance.md", "## Writes", "**HTTP, single", 1, true},
	{"docs/sizing.md", `a protected table costs\s+([\d.]+)\s+times`, "docs/performance.md", "## Protected tables", "**`fence.guard`, protected", 4, false},
	{"docs/sizing.md", `an\s+acquire with its\s+release\s+([\d.]+) times`, "docs/performance.md", "## PostgreSQL's CPU time", "", 1, false},
	{"docs/sizing.md", `\| gateway, CPU \| ([\d]+) µs by HTTP`, "docs/performance.md", "## Writes", "**HTTP, single", 5, false},
	{"docs/sizing.md", `\| gateway, CPU \|.*, ([\d]+) µs in bulk`, "docs/performance.md", "## Writes", "**arrays of 100", 5, false},
	{"docs/sizing.md", `holds at\s+(\d+) KiB each`, "docs/sizing.md", "## Waiters", "an acquire that waits, HTTP/1.1", 1, false},
	{"cmd/fencegate/serve.go", `half of GOMEMLIMIT holds at (\d+) KiB each`, "docs/sizing.md", "## Waiters", "an acquire that waits, HTTP/1.1", 1, false},
	{"gateway/gateway.go", `waiterBytes = (\d+) << 10`, "docs/sizing.md", "## Waiters", "an acquire that waits, HTTP/1.1", 1, false},
}

// TestFiguresAgree checks that each figure which is repeated is the one that was measured.
func TestFiguresAgree(t *testing.T) {
	t.Parallel()
	for _, f := range figures {
		text, err := os.ReadFile(filepath.Join(root, f.in))
		check(t, err)
		said := regexp.MustCompile(f.says).FindSubmatch(text)
		measured := cell(t, f)
		if len(said) == 0 || string(said[1]) != measured {
			t.Errorf("%s says %q; %s has %q under %q, %q", f.in, said, f.of, measured, f.heading, f.row)
		}
	}
}

// cell returns what stands in a table: of several figures after a comma the last one, which is the gateway's.
func cell(t *testing.T, f figure) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, f.of))
	check(t, err)
	_, section, _ := strings.Cut(string(text), "\n"+f.heading)
	section, _, _ = strings.Cut(section, "\n## ")
	_, rows, _ := strings.Cut(section, "|---|")
	for line := range strings.Lines(rows) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		first := strings.TrimSpace(cells[0])
		if first == "---" || !strings.HasPrefix(first, f.row) || len(cells) <= f.column {
			continue
		}
		outside, inside, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(cells[f.column]), ")"), "(")
		if f.ratio {
			return inside
		}
		return strings.TrimSpace(outside[strings.LastIndex(outside, ",")+1:])
	}
	t.Fatalf("%s has no row %q under %q", f.of, f.row, f.heading)
	return ""
}
