package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/process"
)

// child is fencegate as a process of its own. In scripts that it runs, "$FENCEGATE" is the program, and "$CHECKED" that
// with the race detector, which takes some 200 ms more to start.
type child struct {
	t           *testing.T
	cmd         *exec.Cmd
	out, errOut process.Buffer
	ended       chan struct{}
}

// start runs fencegate with nothing on its standard input. It is killed if it still runs when the test ends.
func (s shell) start(args ...string) *child { return s.startWith(strings.NewReader(""), args...) }

// startWith runs it with a standard input.
func (s shell) startWith(stdin io.Reader, args ...string) *child {
	s.t.Helper()
	return s.startCommand(stdin, exec.Command(process.BuildChecked(s.t), args...))
}

func (s shell) startCommand(stdin io.Reader, cmd *exec.Cmd) *child {
	s.t.Helper()
	p := &child{t: s.t, cmd: cmd, ended: make(chan struct{})}
	cmd.Env = append(cmd.Environ(), "FENCEGATE="+process.Build(s.t), "CHECKED="+process.BuildChecked(s.t),
		"FENCEGATE_URL="+s.url)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &p.out, &p.errOut
	cmd.WaitDelay = 20 * time.Second // a grandchild that is left behind has the pipes, too
	check(s.t, cmd.Start())
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// wait returns what came of it.
func (p *child) wait() result {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(await.Limit):
		p.t.Fatalf("%q does not end: %s%s", p.cmd.Args, p.out.String(), p.errOut.String())
	}
	return result{p.cmd.ProcessState.ExitCode(), p.out.String(), p.errOut.String()}
}

// wants expects how it ends, and words on its standard error.
func (p *child) wants(code int, words string) result {
	p.t.Helper()
	got := p.wait()
	if got.code != code || !strings.Contains(got.errOut, words) {
		p.t.Errorf("%q exited with %d, want %d and %q: %s%s", p.cmd.Args[1:], got.code, code, words, got.out, got.errOut)
	}
	return got
}

// says waits for words on its standard output.
func (p *child) says(words string) {
	p.t.Helper()
	await.True(p.t, fmt.Sprintf("%q writes %q", p.cmd.Args[1:], words), func() bool {
		select {
		case <-p.ended:
			if !strings.Contains(p.out.String(), words) {
				p.t.Fatalf("%q ended without saying %q: %s%s", p.cmd.Args[1:], words, p.out.String(), p.errOut.String())
			}
		default:
		}
		return strings.Contains(p.out.String(), words)
	})
}

func (p *child) signal(number syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(number); err != nil {
		p.t.Fatalf("%q: %v: %s%s", p.cmd.Args[1:], err, p.out.String(), p.errOut.String())
	}
}

// pidIn reads a number that a script has written.
func pidIn(t *testing.T, path string) int {
	t.Helper()
	pid := 0
	await.True(t, "a process number in "+path, func() bool {
		text, err := os.ReadFile(path)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil
	})
	return pid
}
