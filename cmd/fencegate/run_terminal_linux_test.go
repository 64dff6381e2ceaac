package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

// terminal runs a command line at a terminal, with fencegate as "$CHECKED", and returns what types at it. What is
// said there is on the process's standard output.
func (s shell) terminal(line string) (*child, func(keys string)) {
	s.t.Helper()
	postgres.Require(s.t, "script")
	reader, writer, err := os.Pipe()
	check(s.t, err)
	s.t.Cleanup(func() { _ = errors.Join(reader.Close(), writer.Close()) })
	p := s.startCommand(reader, exec.Command("script", "-qec", line, "/dev/null"))
	return p, func(keys string) {
		if _, err := io.WriteString(writer, keys); err != nil {
			s.t.Errorf("%q can't be typed: %v", keys, err)
		}
	}
}

const (
	controlC = "\x03"
	controlZ = "\x1a"
)

// The command reads what was typed before it began, and is interrupted by the key for that, whatever TERM says.
func TestRunGivesTheCommandTheTerminal(t *testing.T) {
	s := newShell(t)
	for _, term := range []string{"-u TERM", "TERM=dumb", "TERM=xterm-256color"} {
		p, types := s.terminal("env " + term +
			` "$CHECKED" run --lock a -- sh -c 'trap "echo interrupted; exit 9" INT; read line; echo "read $line"; while :; do sleep 0.02; done'`)
		types("hello\n")
		p.says("read hello")
		types(controlC)
		p.wants(9, "")
		if !strings.Contains(p.out.String(), "interrupted") {
			t.Errorf("with %s it printed %q", term, p.out.String())
		}
	}
}

// The shell gets the terminal when the command is stopped. The command gets it back when the shell continues it.
func TestRunIsAJobOfItsShell(t *testing.T) {
	s := newShell(t)
	postgres.Require(t, "bash")
	p, types := s.terminal("env PS1='ready> ' bash --norc -i")
	p.says("ready> ")
	types(`"$CHECKED" run --lock a -- sh -c 'echo be''gun; read line; echo "read $line"'` + "\n")
	p.says("begun")
	types(controlZ)
	p.says("Stopped")
	types("fg; echo status $?\n")
	types("hello\n")
	p.says("read hello")
	p.says("status 0")

	types(`"$CHECKED" run --lock a --ttl 4s -- sh -c 'echo again be''gun; read line; echo never'` + "\n")
	p.says("again begun")
	types(controlZ)
	s.must("lock", "acquire", "a", "--ttl", "1h", "--wait", "1m")
	types("fg; echo status $?\n")
	p.says("status 121")
	types("exit\n") // an end of file before the shell reads its next line would be lost
	if got := p.wait(); strings.Contains(got.out, "never\r\n") {
		t.Errorf("it printed %q", got.out)
	}
}

// At a terminal the progress is shown on one line.
func TestImportShowsItsProgress(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	token := fields(s.must("lock", "acquire", "a"))["fencing_token"]
	p, _ := s.terminal(`"$CHECKED" import ` + fileOf(t, rows(1, 500)) + ` --resource a --token ` + token)
	got := p.wants(exitOK, "")
	if !strings.Contains(got.out, "100 %, 500 lines") {
		t.Errorf("import printed %q, expected the progress up to 100 %%", got.out)
	}
}
