// Package clients_test runs the contract cases, cases.json, with each client: in Go, Python and TypeScript.
package clients_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/internal/testenv/network"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

const casesFile = "cases.json"

type contractCase struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	// Needs names an ability that a client may lack.
	Needs  string `json:"needs"`
	Client struct {
		AnswerTimeoutMS int64    `json:"answer_timeout_ms"`
		AnswerBytesMax  int64    `json:"answer_bytes_max"`
		Gateways        []string `json:"gateways"`
	} `json:"client"`
	Steps []step `json:"steps"`
}

type step struct {
	Do          string            `json:"do"`
	Lease       string            `json:"lease"`
	Client      string            `json:"client"`
	Lock        string            `json:"lock"`
	Mode        string            `json:"mode"`
	TTLMS       int64             `json:"ttl_ms"`
	WaitMS      int64             `json:"wait_ms"`
	Heartbeat   bool              `json:"heartbeat"`
	Key         string            `json:"key"`
	Value       string            `json:"value"`
	ContentType string            `json:"content_type"`
	IfVersion   *int64            `json:"if_version"`
	IfAbsent    bool              `json:"if_absent"`
	Ops         []json.RawMessage `json:"ops"`
	Path        string            `json:"path"`
	Faults      []network.Fault   `json:"faults"`
	Always      bool              `json:"always"`
	MS          int64             `json:"ms"`
	Steps       []step            `json:"steps"`
	Background  string            `json:"background"`
	Of          string            `json:"of"`
	Until       bool              `json:"until"`
	Expect      map[string]any    `json:"expect"`
}

// verdict is what a runner says of a case. All empty: it passed.
type verdict struct {
	Case  string `json:"case"`
	Error string `json:"error"`
	// Lacks says why the client can't do what the case needs.
	Lacks string `json:"lacks"`
}

// place is where the cases run.
type place struct{ gatewayURL, proxyURL string }

// languages are the clients, in the order of the table.
var languages = []struct {
	name string
	run  func(*testing.T, []contractCase, place) []verdict
}{
	{"Go", runGo},
	{"Python", func(t *testing.T, _ []contractCase, at place) []verdict {
		return runProgram(t, at, "python", postgres.Require(t, "python3"), "-m", "tests.cases", "sync")
	}},
	{"Python asyncio", func(t *testing.T, _ []contractCase, at place) []verdict {
		return runProgram(t, at, "python", postgres.Require(t, "python3"), "-m", "tests.cases", "asyncio")
	}},
	{"TypeScript", func(t *testing.T, _ []contractCase, at place) []verdict {
		return runProgram(t, at, "typescript", postgres.Require(t, "node"), "test/cases.js")
	}},
	{"Deno", func(t *testing.T, _ []contractCase, at place) []verdict {
		return runProgram(t, at, "typescript", fromNPM(t, "deno"), "run", "-A", "--no-config", "test/cases.js")
	}},
}

// Each client passes each case. Not beside the other tests, whose compilers would slow down the heartbeats.
func TestCases(t *testing.T) { //nolint:paralleltest // see above
	text, err := os.ReadFile(casesFile)
	check(t, err)
	var file struct {
		About string
		Cases []contractCase
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // a misspelt step must not pass
	check(t, decoder.Decode(&file))

	gateway := gateway.Serve(t, postgres.Migrated(t))
	at := place{gateway.URL, startProxy(t, gateway.URL)}

	seen := table{cells: map[string]map[string]string{}}
	t.Cleanup(func() { t.Log("\n" + seen.text(file.Cases)) })
	for _, language := range languages {
		t.Run(language.name, func(t *testing.T) {
			t.Parallel()
			verdicts := map[string]verdict{}
			for _, each := range language.run(t, file.Cases, at) {
				verdicts[each.Case] = each
			}
			for _, each := range file.Cases {
				got, ran := verdicts[each.Name]
				switch {
				case !ran:
					t.Errorf("%s: %s: it did not run", each.Group, each.Name)
				case got.Error != "":
					t.Errorf("%s: %s: %s", each.Group, each.Name, got.Error)
				case got.Lacks != "" && each.Needs == "":
					t.Errorf("%s: %s: the client must do it, but %s", each.Group, each.Name, got.Lacks)
				}
				seen.note(each.Name, language.name, got, ran)
			}
		})
	}
}

// runProgram runs a runner of another language in its folder. It prints one verdict a line.
func runProgram(t *testing.T, at place, folder, name string, args ...string) []verdict {
	t.Helper()
	runner := exec.CommandContext(await.Context(t), name, append(args, "../"+casesFile)...)
	runner.Dir = folder
	runner.Env = append(os.Environ(), "FENCEGATE_URL="+at.gatewayURL, "PROXY_URL="+at.proxyURL, "API_KEY="+apiKey,
		"PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1")
	var failure strings.Builder
	runner.Stderr = &failure
	output, err := runner.Output()
	if err != nil || failure.Len() > 0 {
		t.Errorf("%s: %v\n%s", runner, err, failure.String())
	}
	var verdicts []verdict
	lines := bufio.NewScanner(bytes.NewReader(output))
	for lines.Scan() {
		var each verdict
		if err := json.Unmarshal(lines.Bytes(), &each); err != nil {
			t.Fatalf("%s printed %q: %v", runner, lines.Text(), err)
		}
		verdicts = append(verdicts, each)
	}
	return verdicts
}

// table has the verdicts by case and language.
type table struct {
	mu    sync.Mutex
	cells map[string]map[string]string
}

func (t *table) note(name, language string, got verdict, ran bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cells[name] == nil {
		t.cells[name] = map[string]string{}
	}
	cell := "pass"
	switch {
	case !ran:
		cell = "NOT RUN"
	case got.Error != "":
		cell = "FAIL"
	case got.Lacks != "":
		cell = "n/a"
	}
	t.cells[name][language] = cell
}

func (t *table) text(cases []contractCase) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var text strings.Builder
	fmt.Fprintf(&text, "%-10s %-50s", "", "")
	for _, language := range languages {
		fmt.Fprintf(&text, " %-14s", language.name)
	}
	for _, each := range cases {
		fmt.Fprintf(&text, "\n%-10s %-50s", each.Group, each.Name)
		for _, language := range languages {
			fmt.Fprintf(&text, " %-14s", t.cells[each.Name][language.name])
		}
	}
	return text.String()
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
