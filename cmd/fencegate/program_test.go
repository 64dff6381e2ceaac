package main

import (
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/completion"
)

// A release has the version and commit that the linker set. Other builds have those that the Go toolchain recorded,
// with a mark for changes that are not committed.
func TestBuildOf(t *testing.T) {
	recorded := &debug.BuildInfo{
		Main: debug.Module{Version: "v0.9.1"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0a1b2c3"}, {Key: "vcs.modified", Value: "true"}, {Key: "CGO_ENABLED", Value: "0"},
		},
	}
	for want, got := range map[string]build{
		"fencegate v1.2.3 (commit f00, ":           buildOf("v1.2.3", "f00", recorded),
		"fencegate v1.2.3 (commit 0a1b2c3 (dirty)": buildOf("v1.2.3", "", recorded),
		"fencegate v0.9.1 (commit 0a1b2c3 (dirty)": buildOf("", "", recorded),
		"fencegate unknown (go1.":                  buildOf("", "", nil),
	} {
		if !strings.HasPrefix(got.line(), want) || strings.Contains(got.line(), "f00 (dirty)") {
			t.Errorf("%+v is shown as %q, want %q", got, got.line(), want)
		}
	}
}

// The command and the flag show the same version, and no variable of the environment shows it unasked.
func TestVersion(t *testing.T) {
	t.Setenv("FENCEGATE_VERSION", "v1")
	s := shell{t, ""}
	got := fields(s.must("version"))
	if got["fencegate"] != programVersion() || !strings.HasPrefix(got["go"], "go1.") {
		t.Errorf("version printed %q", got)
	}
	var document build
	parseLine(t, s.must("version", "-o", "json"), &document)
	if document != thisBuild() {
		t.Errorf("version printed %+v, want %+v", document, thisBuild())
	}
	for _, args := range [][]string{{"--version"}, {"lock", "ls", "--version"}} {
		if out := s.must(args...); out != thisBuild().line()+"\n" {
			t.Errorf("%q printed %q, want the version", args, out)
		}
	}
}

// A real bash that has read the script completes commands, flags and values.
func TestBashCompletes(t *testing.T) {
	t.Parallel()
	s := shell{t, ""}
	lines := []struct{ line, want string }{
		{"lock ac", "acquire"},
		{"lock acquire a --sh", "--shared"},
		{"lock ls -o ''", "table json yaml env"},
		{"put a k --file ''", "files"},
		{"run --lock a -- ''", "files"},
		{"__c", ""},
	}
	script := `source <("$FENCEGATE" completion bash)
		compopt() { test "$*" = "-o default" && COMPREPLY=(files); }
		try() { COMP_WORDS=("$FENCEGATE" "$@"); COMP_CWORD=$#; _fencegate; echo "${COMPREPLY[*]}"; }
`
	var want strings.Builder
	for _, line := range lines {
		script += "try " + line.line + "\n"
		want.WriteString(line.want + "\n")
	}
	got := s.startCommand(strings.NewReader(""), exec.Command("bash", "-uc", script)).wants(0, "")
	if got.out != want.String() || got.errOut != "" {
		t.Errorf("got\n%s%s\nwant\n%s", got.out, got.errOut, want.String())
	}
	for shell := range strings.SplitSeq(completion.Shells, ",") {
		if out := s.must("completion", shell); !strings.Contains(out, "completion "+shell) {
			t.Errorf("the script for %s is %s", shell, out)
		}
	}
}

func TestHelp(t *testing.T) {
	s := shell{t, ""}
	out := s.must("--help")
	for _, words := range []string{"Exit codes:", "lock acquire", "\nWork under a lock:\n  run "} {
		if !strings.Contains(out, words) {
			t.Errorf("%q is not in the help: %s", words, out)
		}
	}
	if s.must("help") != out || s.must("help", "locks", "acquire") != s.must("lock", "acquire", "--help") {
		t.Error("the command help prints something else than --help")
	}
	own, shared, _ := strings.Cut(s.must("put", "--help"), "\nGateway, credentials and output:\n")
	if !strings.Contains(own, "FENCEGATE_IF_MATCH") || strings.Contains(own, "--url") || !strings.Contains(shared, "--url") {
		t.Errorf("the flags of put are not before those of all commands:\n%s\n%s", own, shared)
	}
}
