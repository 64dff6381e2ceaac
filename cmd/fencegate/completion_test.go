package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/completion"
	"github.com/fencegate/fencegate/internal/pgtest"
)

// A real bash that has read the script completes commands, flags and values.
func TestBashCompletes(t *testing.T) {
	t.Parallel()
	s := shell{t, ""}
	lines := []struct{ line, want string }{
		{"lock ac", "acquire"},
		{"locks re", "renew release"},
		{"lock acquire a --sh", "--shared"},
		{"lock acquire a --output = y", "yaml"},
		{"lock ls -o ''", "table json yaml env text"},
		{"rejections --code token_s", "token_stale"},
		{"completion ''", "bash zsh fish"},
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

// The manual page has every command with its flags, and groff has no warning about it.
func TestManualPage(t *testing.T) {
	t.Parallel()
	page := shell{t, ""}.must("man")
	for _, words := range []string{
		".TH \"FENCEGATE\" \"1\"", "\n.SS \"lock acquire <lock> [flags]\"\n", `\-\-kill\-after=DURATION`, "(FENCEGATE_KILL_AFTER)",
		"\n  3  the lock is held by another lease\n",
	} {
		if !strings.Contains(page, words) {
			t.Errorf("%q is not in the page", words)
		}
	}
	if strings.Contains(page, `__complete`) {
		t.Error("the page has a hidden command")
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "'") || line == "\n" {
			t.Errorf("the line %q is a request, or empty", line)
		}
	}
	formatted := exec.CommandContext(t.Context(), pgtest.Require(t, "groff"), "-man", "-Tutf8", "-ww", "-rLL=100n", "-P-c", "-P-b", "-P-u")
	formatted.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	formatted.Stdin = strings.NewReader(page)
	var out, warnings bytes.Buffer
	formatted.Stdout, formatted.Stderr = &out, &warnings
	if err := formatted.Run(); err != nil || warnings.Len() > 0 || !strings.Contains(out.String(), "COMMANDS") {
		t.Errorf("groff: %v: %s", err, warnings.String())
	}
}
