package embeddedpg

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// watchdogScript reads the pid of PostgreSQL, and then waits for a second line, which sends it home. The end of
// the pipe instead means that the gateway is dead, by whatever cause: the kernel closes a dead process's files. Then it
// shuts PostgreSQL down at once; one that was frozen is thawed to see the signal.
const watchdogScript = `trap '' HUP INT TERM
read -r pid || exit 0
read -r line && exit 0
kill -QUIT "$pid"
kill -CONT "$pid"`

// watchdog is a process that outlives this one for as long as it takes to shut PostgreSQL down. It is portable, unlike
// a parent-death signal, which Linux alone has and ties to a thread instead of the process.
type watchdog struct {
	cmd  *exec.Cmd
	pipe *os.File // the only write end: closed on exec, so no other child keeps it open
}

func startWatchdog(account *account) (*watchdog, error) {
	stdin, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	cmd := account.command(context.Background(), "/bin/sh", "-c", watchdogScript)
	cmd.Stdin = stdin
	if err := cmd.Start(); err != nil {
		pipe.Close()
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return &watchdog{cmd: cmd, pipe: pipe}, nil
}

// watch writes to the watchdog what to watch. The line is in the pipe when this returns, and is read even if this
// process dies now.
func (w *watchdog) watch(pid int) error {
	_, err := w.pipe.WriteString(strconv.Itoa(pid) + "\n")
	return err
}

// dismiss ends the watchdog and waits for its end. Called when PostgreSQL has ended.
func (w *watchdog) dismiss() {
	// Two lines, in case it never got a pid. If the write fails it is gone already, and Wait says no more than that.
	_, _ = w.pipe.WriteString("done\ndone\n")
	_ = w.pipe.Close()
	_ = w.cmd.Wait()
}
