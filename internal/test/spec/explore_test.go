package spec

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// shallow leaves out much of what takes long: the race detector takes ten times as long, and nothing here is concurrent.
const shallow = process.RaceDetector

var deeper = flag.Int("spec.deeper", 0, "how many more requests clients send in a run of the worlds than usually")

// TestWorldsKeepPromises checks that no run breaks a promise while every safeguard and every assumption is on.
func TestWorldsKeepPromises(t *testing.T) {
	t.Parallel()
	for _, m := range Models() {
		t.Run(m.Name, func(t *testing.T) {
			m.Requests += *deeper
			if shallow {
				m.Requests--
			}
			start := time.Now()
			result := m.Explore()
			if result.Broken != "" {
				t.Fatalf("%s is broken: %s\n%s", result.Broken, result.How, result.Timeline())
			}
			t.Logf("%d requests: %d states, the farthest after %d steps, in %s", m.Requests, result.States, result.Steps,
				time.Since(start).Round(time.Millisecond))
		})
	}
}

// TestSameKeySameFuture checks that states which are taken for the same have the same states after them.
func TestSameKeySameFuture(t *testing.T) {
	t.Parallel()
	for _, m := range Models() {
		m.Requests -= 2
		if shallow {
			m.Requests--
		}
		var v visited
		future := func(w world) string {
			after := map[string]string{}
			m.steps(w, func(s *step) {
				s.dropUnknown()
				after[string(v.of(&s.world))] = s.broken
			})
			return fmt.Sprint(after)
		}
		futures := map[string]string{}
		left := m.starts()
		for len(left) > 0 {
			w := left[len(left)-1]
			left = left[:len(left)-1]
			key := string(v.of(&w))
			then := future(w)
			if known, ok := futures[key]; ok {
				if known != then {
					t.Fatalf("%s: two states have the key %q, and others after them\n%q\n%q", m.Name, key, known, then)
				}
				continue
			}
			futures[key] = then
			m.steps(w, func(s *step) {
				s.dropUnknown()
				left = append(left, s.world)
			})
		}
		t.Logf("%s: %d states", m.Name, len(futures))
	}
}

// TestEverySwitchIsNeeded checks that without a safeguard or an assumption a promise is broken, and that the shortest
// run which breaks it is the one in testdata/switches.txt. `go test ./internal/test/spec -run Switch -rewrite` writes
// the runs down.
//
//	explore without=SWITCH [world=WORLD] [promise=PROMISE] [requests=N]
func TestEverySwitchIsNeeded(t *testing.T) {
	if shallow {
		t.Skip("TestSlow_EverySwitch does it without the race detector")
	}
	TestSlow_EverySwitch(t)
}

// TestSlow_EverySwitch is TestEverySwitchIsNeeded, among the tests that run without the race detector.
func TestSlow_EverySwitch(t *testing.T) {
	t.Parallel()
	var explored []string
	datadriven.RunTest(t, "testdata/switches.txt", func(t *testing.T, command *datadriven.TestData) string {
		world, without := "failover", ""
		var m Model
		command.MaybeScanArgs(t, "world", &world)
		for _, of := range Models() {
			if of.Name == world {
				m = of
			}
		}
		command.ScanArgs(t, "without", &without)
		command.MaybeScanArgs(t, "promise", &m.Promise)
		command.MaybeScanArgs(t, "requests", &m.Requests)
		explored = append(explored, without)
		m.Without = Switch(without)
		return explore(t, m)
	})
	for _, s := range Switches {
		if !slices.Contains(explored, string(s)) {
			t.Errorf("testdata/switches.txt does not explore without=%s", s)
		}
	}
}

func explore(t *testing.T, m Model) string {
	t.Helper()
	result := m.Explore()
	if result.Broken == "" {
		t.Fatalf("without %s no promise is broken in %d states", m.Without, result.States)
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
