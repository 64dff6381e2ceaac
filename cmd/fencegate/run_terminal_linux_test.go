package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
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
		"untouched": commandsDontTouchTheTerminal,
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

// pty is a pseudoterminal that neither echoes nor translates, so that what arrives at its user is what a program has
// written.
type pty struct {
	user, program *os.File
	written       chan string // what was written, once the program's side is closed
}

// newPTY returns a pseudoterminal. If it answers, it reports its background colour and cursor like xterm does.
func newPTY(t *testing.T, answers bool) *pty {
	t.Helper()
	open := func(path string) *os.File {
		file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
		check(t, err)
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	p := &pty{user: open("/dev/ptmx"), written: make(chan string, 1)}
	number := 0
	control(t, p.user, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	})
	p.program = open(fmt.Sprint("/dev/pts/", number))
	control(t, p.program, func(fd int) error {
		mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		mode.Lflag &^= unix.ECHO
		mode.Oflag &^= unix.OPOST
		return unix.IoctlSetTermios(fd, unix.TCSETS, mode)
	})
	go p.listen(answers)
	return p
}

func (p *pty) listen(answers bool) {
	var written strings.Builder
	chunk := make([]byte, 4096)
	for {
		n, err := p.user.Read(chunk)
		written.Write(chunk[:n])
		if answers && strings.Contains(string(chunk[:n]), "\x1b[6n") {
			_, _ = io.WriteString(p.user, "\x1b]11;rgb:0000/0000/0000\x1b\\\x1b[1;1R")
		}
		if err != nil {
			p.written <- written.String()
			return
		}
	}
}

// mode returns the terminal's settings, and unread how many bytes were typed and not read.
func (p *pty) mode(t *testing.T) (mode unix.Termios, unread int) {
	t.Helper()
	control(t, p.program, func(fd int) error {
		settings, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			mode = *settings
			unread, err = unix.IoctlGetInt(fd, unix.TIOCINQ)
		}
		return err
	})
	return mode, unread
}

// control calls an ioctl, without putting the file into blocking mode as Fd does.
func control(t *testing.T, file *os.File, call func(fd int) error) {
	t.Helper()
	raw, err := file.SyscallConn()
	check(t, err)
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = call(int(fd)) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}

// No command writes anything to the terminal but its output, changes its settings, or reads what was typed ahead:
// whatever TERM says, and whether or not the terminal answers queries.
func commandsDontTouchTheTerminal(t *testing.T, s shell) {
	const typed = "typed ahead\n"
	for _, command := range []struct {
		args []string
		want string
	}{
		{[]string{"version"}, programVersion()},
		{[]string{"run", "--lock", "untouched", "--", "echo", "ran"}, "ran\n"},
	} {
		for _, term := range []string{"", "TERM=dumb", "TERM=xterm", "TERM=xterm-256color"} {
			for _, answers := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/answers=%v", command.args[0], term, answers), func(t *testing.T) {
					p := newPTY(t, answers)
					if _, err := io.WriteString(p.user, typed); err != nil {
						t.Fatal(err)
					}
					before, _ := p.mode(t)
					ran := p.run(t, s, term, command.args...)
					after, unread := p.mode(t)
					_ = p.program.Close()
					written := <-p.written
					if ran != nil || !strings.Contains(written, command.want) || strings.Contains(written, "\x1b") {
						t.Errorf("%v: it wrote %q, want no escape sequence and %q", ran, written, command.want)
					}
					if unread != len(typed) {
						t.Errorf("%d bytes of what was typed ahead are left, want %d", unread, len(typed))
					}
					if before != after {
						t.Errorf("the terminal's settings were %+v and are %+v", before, after)
					}
				})
			}
		}
	}
}

// run runs fencegate at the terminal, with TERM set by an environment variable or, if that is empty, not at all.
func (p *pty) run(t *testing.T, s shell, term string, args ...string) error {
	t.Helper()
	cmd := exec.Command(process.BuildChecked(t), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.program, p.program, p.program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Env = append(withoutTERM(), "NO_COLOR=1", "FENCEGATE_URL="+s.url)
	if term != "" {
		cmd.Env = append(cmd.Env, term)
	}
	return cmd.Run()
}

func withoutTERM() []string {
	var environment []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "TERM=") {
			environment = append(environment, variable)
		}
	}
	return environment
}
