package embeddedpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// launchScript becomes PostgreSQL, under the same pid, when it reads a line. If the pipe ends first it ends too.
const launchScript = `read -r line && exec "$@" </dev/null`

// process says what is launched and how.
type process struct {
	path    string
	args    []string
	env     []string // on top of childEnv
	account *account
	output  *os.File
	lock    *os.File // inherited by it and all its children
}

// launch starts a process such that at no instant it can outlive this one unwatched: it does not become what it is to
// be before the watchdog knows its pid.
func launch(p process) (*exec.Cmd, *watchdog, error) {
	dog, err := startWatchdog(p.account)
	if err != nil {
		return nil, nil, err
	}
	stdin, pipe, err := os.Pipe()
	if err != nil {
		dog.dismiss()
		return nil, nil, err
	}
	defer pipe.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", launchScript, "sh", p.path}, p.args...)...)
	cmd.Dir = "/"
	cmd.Env = append(childEnv(os.Environ()), p.env...)
	cmd.Stdin = stdin
	cmd.Stdout, cmd.Stderr = p.output, p.output
	cmd.ExtraFiles = []*os.File{p.lock}
	detach(cmd, p.account)
	err = cmd.Start()
	stdin.Close()
	if err != nil {
		dog.dismiss()
		return nil, nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	err = dog.watch(cmd.Process.Pid)
	if err == nil {
		_, err = pipe.WriteString("go\n")
	}
	if err != nil {
		pipe.Close() // without a line to read, the process ends
		err = errors.Join(err, cmd.Wait())
		dog.dismiss()
		return nil, nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return cmd, dog, nil
}
