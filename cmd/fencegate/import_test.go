package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

// rows returns puts of one record in the short form, with the values first to last.
func rows(first, last int) string {
	var text strings.Builder
	for n := first; n <= last; n++ {
		fmt.Fprintf(&text, `{"key":"k","value":%d}`+"\n", n)
	}
	return text.String()
}

// fileOf writes a file.
func fileOf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.ndjson")
	check(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// stateOf reads the saved state of an import.
func stateOf(t *testing.T, path string) importProgress {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	var state importProgress
	check(t, json.Unmarshal(text, &state))
	return state
}

// wantRecord expects the value of the record "k", and how often it was written.
func (s shell) wantRecord(resource, value string, version int) {
	s.t.Helper()
	var record recordDocument
	parseLine(s.t, s.must("get", resource, "k", "--output", "json"), &record)
	if got := s.must("get", resource, "k"); got != value || record.Version != int64(version) {
		s.t.Errorf("the record is %s in version %d, expected %s in version %d", got, record.Version, value, version)
	}
}

// wantImport expects an exit code and the counts, and every one of words in the messages.
func wantImport(t *testing.T, got result, code int, counts importCounts, words ...string) {
	t.Helper()
	report := fields(got.out)
	saw := fmt.Sprint(report["created"], report["changed"], report["applied_before"], report["refused"], report["unknown"])
	c := counts
	want := fmt.Sprint(fmt.Sprint(c.Created), fmt.Sprint(c.Changed), fmt.Sprint(c.AppliedBefore), fmt.Sprint(c.Refused),
		fmt.Sprint(c.Unknown))
	if got.code != code || saw != want {
		t.Errorf("import exited with %d, expected %d and %+v: %s%s", got.code, code, counts, got.out, got.errOut)
	}
	for _, each := range words {
		if !strings.Contains(got.errOut, each) {
			t.Errorf("the messages lack %q: %s", each, got.errOut)
		}
	}
}

func TestImport(t *testing.T) {
	t.Parallel()
	newShell(t).each(map[string]func(*testing.T, shell){
		"a file": importOfAFile, "failures": failingImports, "resumed": resumedImport, "unknown lines": unknownLines,
		"what was applied": readLines, "killed": killedImport,
	})
}

func importOfAFile(t *testing.T, s shell) {
	lease := fields(s.must("lock", "acquire", "import/a"))
	other := fields(s.must("lock", "acquire", "import/b"))["fencing_token"]
	text := `{"key":"k","value":1}
{"op":"put","resource":"import/b","key":"k","fencing_token":` + other + `,"sequence":9,"value":{"n": 2},"if_version":0}

{"key":"k","value":3,"if_version":7}
no JSON
{"op":"delete","key":"none"}
{}
{"key":"photo","value_base64":"AP8=","content_type":"image/png"}
  {"key":"k","value":8}`
	rejected := filepath.Join(t.TempDir(), "rejected")
	args := []string{
		"--resource", "import/a", "--token", lease["fencing_token"], "--lease-id", lease["lease_id"], "--rejected", rejected,
	}
	got := s.do(append([]string{"import", fileOf(t, text)}, args...)...)
	wantImport(t, got, exitFailure, importCounts{Created: 3, Changed: 1, Refused: 4}, "line 4: version_mismatch",
		"line 5: invalid_request", "line 6: not_found", "line 7: invalid_", "4 lines were refused")
	lines, err := os.ReadFile(rejected)
	want := "{\"key\":\"k\",\"value\":3,\"if_version\":7}\nno JSON\n{\"op\":\"delete\",\"key\":\"none\"}\n{}\n"
	if err != nil || string(lines) != want || fields(got.out)["lines"] != "9" {
		t.Errorf("the refused lines are %q, %v, expected %q", lines, err, want)
	}
	s.wantRecord("import/a", "8", 3)
	s.wantRecord("import/b", `{"n": 2}`, 1)

	// From the standard input, with other numbers, as a JSON document.
	args = append([]string{"import", "-", "--sequence-from", "100", "--output", "json"}, args...)
	piped := s.doWith(rows(1, 5), args...)
	var progress importProgress
	parseLine(t, piped.out, &progress)
	if piped.code != exitOK || progress.Lines != 5 || progress.Counts != (importCounts{Changed: 5}) {
		t.Errorf("import of 5 lines exited with %d: %s%s", piped.code, piped.out, piped.errOut)
	}
	s.wantRecord("import/a", "5", 8)
}

func failingImports(t *testing.T, s shell) {
	down := []string{"--url", "http://127.0.0.1:1", "--timeout", "200ms"}
	for what, test := range map[string]struct {
		input string
		args  []string
		code  int
		words string
	}{
		"a token with a sequence": {"", []string{"-", "--token", "3.4"}, exitUsage, "has a sequence"},
		"a negative number":       {"", []string{"-", "--sequence-from", "-1"}, exitUsage, "--sequence-from"},
		"no time":                 {"", []string{"-", "--timeout", "0s"}, exitUsage, "--timeout"},
		"a dot outside of run":    {"", []string{"-", "--resource", "."}, exitUsage, ""},
		"a missing file":          {"", []string{filepath.Join(t.TempDir(), "none")}, exitFailure, "none"},
		"nothing to send":         {"", append([]string{"-"}, down...), exitOK, ""},
		"no gateway":              {rows(1, 1), append([]string{"-"}, down...), exitUnavailable, "line 1 and those after it"},
	} {
		got := s.doWith(test.input, append([]string{"import"}, test.args...)...)
		if got.code != test.code || !strings.Contains(got.errOut, test.words) {
			t.Errorf("%s: exit code %d with %q, expected %d with %q", what, got.code, got.errOut, test.code, test.words)
		}
	}
}

// A second run continues after the lines with verdicts. Lines that the first run may have sent are applied once.
func resumedImport(t *testing.T, s shell) {
	token := fields(s.must("lock", "acquire", "resumed"))["fencing_token"]
	state := filepath.Join(t.TempDir(), "state")
	with := func(text string, more ...string) result {
		args := []string{"import", fileOf(t, text), "--resource", "resumed", "--token", token, "--resume", state}
		return s.do(append(args, more...)...)
	}
	wantImport(t, with("\n"+rows(1, 9)), exitOK, importCounts{Created: 1, Changed: 8})
	kept, err := os.ReadFile(state)
	check(t, err)
	all := "\n" + rows(1, 49)
	wantImport(t, with(all+"\n \n"), exitOK, importCounts{Created: 1, Changed: 48})
	s.wantRecord("resumed", "49", 49)

	// As if the first run had been killed before it saved the last 40 verdicts.
	kept = []byte(strings.Replace(string(kept), `"sent_up_to": 10`, `"sent_up_to": 50`, 1))
	check(t, os.WriteFile(state, kept, 0o600))
	all += rows(50, 59)
	wantImport(t, with(all), exitOK, importCounts{Created: 1, Changed: 18, AppliedBefore: 40})
	s.wantRecord("resumed", "59", 59)

	wantExit := func(got result, code int, words string) {
		t.Helper()
		if got.code != code || !strings.Contains(got.errOut, words) {
			t.Errorf("import exited with %d and %q, expected %d and %q", got.code, got.errOut, code, words)
		}
	}
	wantExit(with(rows(2, 80)), exitFailure, "first 60 lines are not those")
	wantExit(with(rows(1, 20)), exitFailure, "20 lines, and 60 were imported")
	wantExit(with(all, "--sequence-from", "2"), exitUsage, "lines would get other numbers")
	s.wantRecord("resumed", "59", 59)
}

// A line that may have been rejected for its data counts as unknown, not as applied.
func unknownLines(t *testing.T, s shell) {
	token := fields(s.must("lock", "acquire", "unknown"))["fencing_token"]
	text := strings.Join([]string{
		`{"key":"k","value":1}`, `{"key":"k","value":2,"if_version":9}`, `{"op":"delete","key":"none"}`,
		`{"key":"k","value":4}`,
	}, "\n")
	args := []string{"import", fileOf(t, text), "--resource", "unknown", "--token", token}
	wantImport(t, s.do(args...), exitFailure, importCounts{Created: 1, Changed: 1, Refused: 2})
	state := fileOf(t, `{"lines":0,"sent_up_to":4,"fencing_token":`+token+`,"sequence_from":1}`)
	got := s.do(append(args, "--resume", state)...)
	wantImport(t, got, exitFailure, importCounts{AppliedBefore: 2, Unknown: 2})
	s.wantRecord("unknown", "4", 2)
}

// A line that may have been sent, and was not applied, does not count as applied because a later write of the lease
// was.
func readLines(t *testing.T, s shell) {
	token := fields(s.must("lock", "acquire", "read", "--ttl", "1h"))["fencing_token"]
	s.must("put", "read", "applied", "2", "--token", token+".2", "--content-type", "application/json")
	s.must("put", "read", "last", "3", "--token", token+".3", "--content-type", "application/json")
	state := fileOf(t, `{"lines":0,"sent_up_to":3,"sequence_from":1,"fencing_token":`+token+`}`)
	input := fileOf(t, `{"key":"refused","value":1}
{"key":"applied","value":2}
{"key":"last","value":3}
`)
	got := s.do("import", input, "--resource", "read", "--token", token, "--resume", state)
	wantImport(t, got, exitFailure, importCounts{AppliedBefore: 2, Unknown: 1})
}

// An import that is killed, wherever it is, loses and doubles nothing when it is run again.
func killedImport(t *testing.T, s shell) {
	token := fields(s.must("lock", "acquire", "killed", "--ttl", "1h"))["fencing_token"]
	const lines = 6_000
	path, state := fileOf(t, rows(1, lines)), filepath.Join(t.TempDir(), "state")
	args := []string{"import", path, "--resource", "killed", "--token", token, "--resume", state}
	for round := 1; round <= 3; round++ {
		p := s.start(args...)
		await.True(t, fmt.Sprintf("more than %d lines are written", round*1000), func() bool {
			got := s.do("get", "killed", "k")
			var n int
			_, _ = fmt.Sscan(got.out, &n)
			return n > round*1000
		})
		_ = p.cmd.Process.Kill()
		p.wait()
	}
	got := s.start(args...).wants(exitOK, "")
	t.Log(got.out)
	s.wantRecord("killed", fmt.Sprint(lines), lines)
	if kept := stateOf(t, state); kept.Lines != lines || kept.SentUpTo != lines {
		t.Errorf("the saved state is %+v, expected all %d lines", kept, lines)
	}
}
