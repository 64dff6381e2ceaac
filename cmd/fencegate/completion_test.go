package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/completion"
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
