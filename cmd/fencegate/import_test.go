package main

import (
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
	saw := report["lines"] + " " + report["applied"] + " " + report["decided_before"] + " " + report["refused"]
	want := fmt.Sprint(counts.Lines, counts.Applied, counts.DecidedBefore, counts.Refused)
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
		"a file": importOfAFile, "failures": failingImports, "killed": killedImport,
	})
}

func importOfAFile(t *testing.T, s shell) {
	lease := fields(s.must("lock", "acquire", "import/a"))
	other := fields(s.must("lock", "acquire", "import/b"))["fencing_token"]
	text := `{"key":"k","value":1}
{"op":"put","resource":"import/b","key":"k","fencing_token":` + other + `,"sequence":9,"value":{"n":2},"if_version":0}

{"key":"k","value":3,"if_version":7}
no JSON
{"op":"delete","key":"none"}
{"kye":"k","value":3}
{"key":"photo","value_base64":"AP8=","content_type":"image/png"}
  {"key":"k","value":8}`
	args := []string{"--resource", "import/a", "--token", lease["fencing_token"], "--lease-id", lease["lease_id"]}
	wantImport(t, s.do(append([]string{"import", fileOf(t, text)}, args...)...), exitFailure,
		importCounts{Lines: 9, Applied: 4, Refused: 5}, "line 3: ", "line 4: put import/a k: version_mismatch",
		"line 5: ", "line 6: delete import/a none: not_found", "line 7: ", "5 lines were refused")
	s.wantRecord("import/a", "8", 3)
	s.wantRecord("import/b", `{"n":2}`, 1)

	// From the standard input, with other numbers, as a JSON document.
	args = append([]string{"import", "-", "--sequence-from", "100", "--output", "json"}, args...)
	piped := s.doWith(rows(1, 5), args...)
	var counts importCounts
	parseLine(t, piped.out, &counts)
	if piped.code != exitOK || counts != (importCounts{Lines: 5, Applied: 5}) {
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
		"a dot outside of run":    {"", []string{"-", "--resource", "."}, exitUsage, ""},
		"a line that is too long": {strings.Repeat(" ", 5<<20), []string{"-"}, exitFailure, "too long"},
		"no gateway":              {rows(1, 1), append([]string{"-"}, down...), exitUnavailable, "line 1 and those after it"},
	} {
		got := s.doWith(test.input, append([]string{"import"}, test.args...)...)
		if got.code != test.code || !strings.Contains(got.errOut, test.words) {
			t.Errorf("%s: exit code %d with %q, expected %d with %q", what, got.code, got.errOut, test.code, test.words)
		}
	}
}

// An import that is killed, wherever it is, loses and doubles nothing when it is run again.
func killedImport(t *testing.T, s shell) {
	token := fields(s.must("lock", "acquire", "killed", "--ttl", "1h"))["fencing_token"]
	const lines = 6_000
	args := []string{"import", fileOf(t, rows(1, lines)), "--resource", "killed", "--token", token}
	p := s.start(args...)
	await.True(t, "some lines are written", func() bool { return s.do("get", "killed", "k").code == exitOK })
	_ = p.cmd.Process.Kill()
	p.wait()
	s.start(args...).wants(exitOK, "")
	s.wantRecord("killed", fmt.Sprint(lines), lines)
	wantImport(t, s.do(args...), exitOK, importCounts{Lines: lines, DecidedBefore: lines})
}
