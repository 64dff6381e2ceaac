package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
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

// Commands at a terminal, before one gateway.
func TestTerminal(t *testing.T) {
	t.Parallel()
	newShell(t).each(map[string]func(*testing.T, shell){
		"the command has it": runGivesTheTerminal, "job control": runIsAJob,
	})
}

// The command reads what was typed before it began, and is interrupted by the key for that.
func runGivesTheTerminal(t *testing.T, s shell) {
	p, types := s.terminal(`"$CHECKED" run --lock terminal -- sh -c 'trap "echo interrupted; exit 9" INT; read line; ` +
		`echo "read $line"; while :; do sleep 0.02; done'`)
	types("hello\n")
	p.says("read hello")
	types(controlC)
	p.wants(9, "")
	if !strings.Contains(p.out.String(), "interrupted") {
		t.Errorf("it printed %q", p.out.String())
	}
}

// The shell gets the terminal when the command is stopped. The command gets it back when the shell continues it.
func runIsAJob(t *testing.T, s shell) {
	postgres.Require(t, "bash")
	p, types := s.terminal("env PS1='ready> ' bash --norc -i")
	p.says("ready> ")
	types(`"$CHECKED" run --lock job -- sh -c 'echo be''gun; read line; echo "read $line"'` + "\n")
	p.says("begun")
	types(controlZ)
	p.says("Stopped")
	types("fg; echo status $?\n")
	types("hello\n")
	p.says("read hello")
	p.says("status 0")

	types(`"$CHECKED" run --lock job --ttl 4s -- sh -c 'echo again be''gun; read line; echo never'` + "\n")
	p.says("again begun")
	types(controlZ)
	s.must("lock", "acquire", "job", "--ttl", "1h", "--wait", "1m")
	types("fg; echo status $?\n")
	p.says("status 121")
	types("exit\n") // an end of file before the shell reads its next line would be lost
	if got := p.wait(); strings.Contains(got.out, "never\r\n") {
		t.Errorf("it printed %q", got.out)
	}
}
