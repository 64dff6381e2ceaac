//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/await"
)

// rows are lines first to last in the short form, all of one record.
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
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// stateOf reads what is kept of an import.
func stateOf(t *testing.T, path string) importProgress {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var state importProgress
	if err := json.Unmarshal(text, &state); err != nil {
		t.Fatal(err)
	}
	return state
}

// wantRecord expects the value of the record "k", and how often it was written.
func (s shell) wantRecord(resource, value string, version int) {
	s.t.Helper()
	var record recordDocument
	parseLine(s.t, s.must("get", resource, "k", "--output", "json"), &record)
	if got := s.must("get", resource, "k"); got != value || record.Version != int64(version) {
		s.t.Errorf("the record is %s in version %d, want %s in version %d", got, record.Version, value, version)
	}
}

func TestImport(t *testing.T) {
	s := newShell(t)
	lease := fields(s.must("lock", "acquire", "a"))
	other := fields(s.must("lock", "acquire", "b"))["fencing_token"]
	text := `{"key":"k","value":1}
{"op":"put","resource":"b","key":"k","fencing_token":` + other + `,"sequence":9,"value":{"n": 2},"if_version":0}

{"key":"k","value":3,"if_version":7}
no JSON
{"op":"delete","key":"none"}
{}
{"key":"photo","value_base64":"AP8=","content_type":"image/png"}
  {"key":"k","value":8}`
	rejected := filepath.Join(t.TempDir(), "rejected")
	args := []string{"--resource", "a", "--token", lease["fencing_token"], "--lease-id", lease["lease_id"], "--rejected", rejected}
	got := s.do(append([]string{"import", fileOf(t, text)}, args...)...)
	report := fields(got.out)
	if got.code != exitFailure || report["lines"] != "9" || report["created"] != "3" || report["changed"] != "1" || report["refused"] != "4" || report["unknown"] != "0" {
		t.Errorf("it exited with %d: %s%s", got.code, got.out, got.errOut)
	}
	for _, words := range []string{"line 4: version_mismatch", "line 5: invalid_request", "line 6: not_found", "line 7: invalid_", "4 lines were refused"} {
		if !strings.Contains(got.errOut, words) {
			t.Errorf("it does not say %q: %s", words, got.errOut)
		}
	}
	lines, err := os.ReadFile(rejected)
	if want := `{"key":"k","value":3,"if_version":7}` + "\nno JSON\n" + `{"op":"delete","key":"none"}` + "\n{}\n"; err != nil || string(lines) != want {
		t.Errorf("the refused lines are %q, %v", lines, err)
	}
	s.wantRecord("a", "8", 3)
	s.wantRecord("b", `{"n": 2}`, 1)

	// From the standard input, with other numbers, as a document.
	piped := s.doWith(rows(1, 5), append([]string{"import", "-", "--sequence-from", "100", "--output", "json"}, args...)...)
	var progress importProgress
	parseLine(t, piped.out, &progress)
	if piped.code != exitOK || progress.Lines != 5 || progress.Counts.Changed != 5 || progress.Counts.Refused != 0 {
		t.Errorf("it exited with %d: %s%s", piped.code, piped.out, piped.errOut)
	}
	s.wantRecord("a", "5", 8)
	for _, wrong := range [][]string{{"--token", "3.4"}, {"--sequence-from", "-1"}, {"--timeout", "0s"}, {"--resource", "."}} {
		if got := s.do(append([]string{"import", "-"}, wrong...)...); got.code != exitUsage {
			t.Errorf("%q exited with %d: %s", wrong, got.code, got.errOut)
		}
	}
	if got := s.do("import", filepath.Join(t.TempDir(), "none")); got.code != exitFailure {
		t.Errorf("a file that is not there: %d %s", got.code, got.errOut)
	}
	if got := s.do("import", "-", "--url", "http://127.0.0.1:1", "--timeout", "200ms"); got.code != exitOK {
		t.Errorf("nothing to send: %d %s", got.code, got.errOut)
	}
	if got := s.doWith(rows(1, 1), "import", "-", "--url", "http://127.0.0.1:1", "--timeout", "200ms"); got.code != exitUnavailable || !strings.Contains(got.errOut, "line 1 and those after it") {
		t.Errorf("no gateway: %d %s", got.code, got.errOut)
	}
}

// A second run goes on after the lines that have their verdicts. Those that the first has sent and heard nothing of
// are applied once.
func TestImportResumes(t *testing.T) {
	s := newShell(t)
	token := fields(s.must("lock", "acquire", "a"))["fencing_token"]
	state := filepath.Join(t.TempDir(), "state")
	with := func(text string, more ...string) result {
		return s.do(append([]string{"import", fileOf(t, text), "--resource", "a", "--token", token, "--resume", state}, more...)...)
	}
	if got := with(rows(1, 10)); got.code != exitOK {
		t.Fatalf("%d %s", got.code, got.errOut)
	}
	kept, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	if got := with(rows(1, 50)); got.code != exitOK || stateOf(t, state).Lines != 50 || stateOf(t, state).Counts.Changed != 49 {
		t.Errorf("it exited with %d: %s%s", got.code, got.out, got.errOut)
	}
	s.wantRecord("a", "50", 50)

	// As if it had been killed before it could keep any of the last 40 verdicts.
	kept = []byte(strings.Replace(string(kept), `"sent_up_to": 10`, `"sent_up_to": 50`, 1))
	if err := os.WriteFile(state, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	got := with(rows(1, 60))
	if counts := stateOf(t, state).Counts; got.code != exitOK || counts.AppliedBefore != 40 || counts.Changed != 19 {
		t.Errorf("it exited with %d: %s%s", got.code, got.out, got.errOut)
	}
	s.wantRecord("a", "60", 60)

	if got := with(rows(2, 80)); got.code != exitFailure || !strings.Contains(got.errOut, "first 60 lines are not those") {
		t.Errorf("another file: %d %s", got.code, got.errOut)
	}
	if got := with(rows(1, 20)); got.code != exitFailure || !strings.Contains(got.errOut, "20 lines, and 60 were imported") {
		t.Errorf("a shorter file: %d %s", got.code, got.errOut)
	}
	if got := with(rows(1, 80), "--sequence-from", "2"); got.code != exitUsage {
		t.Errorf("other numbers: %d %s", got.code, got.errOut)
	}
	s.wantRecord("a", "60", 60)
}

// A line that was refused for its data is not taken for one that was applied, where nobody knows.
func TestImportDoesNotGuess(t *testing.T) {
	s := newShell(t)
	token := fields(s.must("lock", "acquire", "a"))["fencing_token"]
	text := `{"key":"k","value":1}` + "\n" + `{"key":"k","value":2,"if_version":9}` + "\n" + `{"op":"delete","key":"none"}` + "\n" + `{"key":"k","value":4}` + "\n"
	path, state := fileOf(t, text), filepath.Join(t.TempDir(), "state")
	if got := s.do("import", path, "--resource", "a", "--token", token); got.code != exitFailure {
		t.Fatalf("%d %s", got.code, got.errOut)
	}
	if err := os.WriteFile(state, []byte(`{"lines":0,"sent_up_to":4,"fencing_token":`+token+`,"sequence_from":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	got := s.do("import", path, "--resource", "a", "--token", token, "--resume", state)
	if counts := stateOf(t, state).Counts; got.code != exitFailure || counts != (importCounts{AppliedBefore: 2, Unknown: 2}) {
		t.Errorf("it exited with %d: %+v %s", got.code, counts, got.errOut)
	}
	s.wantRecord("a", "4", 2)
}

// An import that is killed, wherever it is, loses nothing and doubles nothing when it is run again. A line that may
// have been sent, and was not applied, is not counted as applied because a later write of the lease was.
func TestImportReadsWhatWasApplied(t *testing.T) {
	s := newShell(t)
	token := fields(s.must("lock", "acquire", "a", "--ttl", "1h"))["fencing_token"]
	s.must("put", "a", "applied", "2", "--token", token+".2", "--content-type", "application/json")
	s.must("put", "a", "last", "3", "--token", token+".3", "--content-type", "application/json")
	state := fileOf(t, `{"lines":0,"sent_up_to":3,"sequence_from":1,"fencing_token":`+token+`}`)
	input := fileOf(t, `{"key":"refused","value":1}`+"\n"+`{"key":"applied","value":2}`+"\n"+`{"key":"last","value":3}`+"\n")
	got := s.do("import", input, "--resource", "a", "--token", token, "--resume", state)
	if counts := fields(got.out); counts["applied_before"] != "2" || counts["unknown"] != "1" || got.code != exitFailure {
		t.Errorf("exit code %d: %s%s\nwant 2 lines that were applied before and 1 that is unknown", got.code, got.out, got.errOut)
	}
}

func TestImportIsKilled(t *testing.T) {
	s := newShell(t)
	token := fields(s.must("lock", "acquire", "a", "--ttl", "1h"))["fencing_token"]
	const lines = 30_000
	path, state := fileOf(t, rows(1, lines)), filepath.Join(t.TempDir(), "state")
	args := []string{"import", path, "--resource", "a", "--token", token, "--resume", state}
	for round := 1; round <= 3; round++ {
		p := s.start(args...)
		await.True(t, fmt.Sprintf("more than %d lines are written", round*2000), func() bool {
			got := s.do("get", "a", "k")
			var n int
			_, _ = fmt.Sscan(got.out, &n)
			return n > round*2000
		})
		p.signal(syscall.SIGKILL)
		p.wait()
	}
	got := s.start(args...).wants(exitOK, "")
	t.Log(got.out)
	s.wantRecord("a", fmt.Sprint(lines), lines)
	if kept := stateOf(t, state); kept.Lines != lines || kept.SentUpTo != lines {
		t.Errorf("kept is %+v", kept)
	}
}

// At a terminal the progress is shown, on one line.
func TestImportShowsItsProgress(t *testing.T) {
	s := newShell(t)
	token := fields(s.must("lock", "acquire", "a"))["fencing_token"]
	p, _ := s.terminal(`"$FENCEGATE" import ` + fileOf(t, rows(1, 500)) + ` --resource a --token ` + token)
	got := p.wants(exitOK, "")
	if !strings.Contains(got.out, "100 %, 500 lines") {
		t.Errorf("it printed %q", got.out)
	}
}
