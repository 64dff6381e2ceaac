package embeddedpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Lines of postmaster.pid, from 0.
const (
	pidLine    = 0
	statusLine = 7
)

// statusReady is what postmaster.pid says once connections are accepted, on a primary as on a hot standby.
const statusReady = "ready"

// postmasterFile returns the pid and the status that postmaster.pid shows; 0 and "" where it shows none.
func (l layout) postmasterFile() (pid int, status string) {
	text, err := os.ReadFile(l.pidFile())
	if err != nil {
		return 0, ""
	}
	lines := strings.Split(string(text), "\n")
	if pid, err = strconv.Atoi(strings.TrimSpace(lines[pidLine])); err != nil || pid <= 1 {
		return 0, ""
	}
	if len(lines) > statusLine {
		status = strings.TrimSpace(lines[statusLine])
	}
	return pid, status
}

// stalePidEnv lets PostgreSQL start although the pid that a killed postmaster left in postmaster.pid is in use again,
// which in a container, where few pids are in use, is likely to happen: PostgreSQL takes any process of that
// number and of its user for the old postmaster. Called with postgres.lock held, when there can be none of ours.
// The variable is how pg_ctl exempts its own parent; PostgreSQL still looks whether the shared memory of the old one is
// in use, and then refuses.
func stalePidEnv(l layout) []string {
	pid, _ := l.postmasterFile()
	if pid == 0 {
		return nil
	}
	return []string{"PG_GRANDPARENT_PID=" + strconv.Itoa(pid)}
}

// quitLeftover shuts down the PostgreSQL that postmaster.pid names, if that process is one of this data directory:
// the number alone may long be another's.
func quitLeftover(l layout) {
	pid, _ := l.postmasterFile()
	if pid == 0 || !strings.Contains(commandLine(pid), "-D "+l.cluster()+" ") {
		return
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	_ = quit(process) // it may have ended meanwhile; the lock shows whether it did
	_ = process.Release()
}

// commandLine returns the arguments of a process, separated by spaces, or "" if it can't be seen.
func commandLine(pid int) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err == nil {
		return string(bytes.ReplaceAll(text, []byte{0}, []byte{' '}))
	}
	text, err = exec.Command("ps", "-ww", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return string(text)
}

// children returns the pids of the direct children of a process.
func children(parent int) []int {
	self := strconv.Itoa(parent)
	if text, err := os.ReadFile("/proc/" + self + "/task/" + self + "/children"); err == nil {
		return pids(strings.Fields(string(text)))
	}
	listing, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil
	}
	var found []string
	for line := range strings.Lines(string(listing)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[1] == self {
			found = append(found, fields[0])
		}
	}
	return pids(found)
}

func pids(texts []string) []int {
	var numbers []int
	for _, text := range texts {
		if pid, err := strconv.Atoi(text); err == nil {
			numbers = append(numbers, pid)
		}
	}
	return numbers
}

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

const (
	// logSizeMax is the size in bytes at which a start puts the log aside. Two files of about this size are kept.
	logSizeMax = 16 << 20
	// tailSizeMax and tailLinesMax bound what an error quotes.
	tailSizeMax  = 8 << 10
	tailLinesMax = 20
)

// openServerLog opens PostgreSQL's log to append to. start is its size: what this run writes comes after.
func openServerLog(path string) (file *os.File, start int64, err error) {
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	if err == nil && info.Size() > logSizeMax {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, 0, err
		}
	}
	if file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, 0, err
	}
	if start, err = file.Seek(0, io.SeekEnd); err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, start, nil
}

// logTail returns the last lines that were written to the log since start.
func logTail(path string, start int64) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err.Error()
	}
	from := max(start, info.Size()-tailSizeMax)
	text, err := io.ReadAll(io.NewSectionReader(file, from, info.Size()-from))
	if err != nil {
		return err.Error()
	}
	return lastLines(text)
}

func lastLines(text []byte) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-tailLinesMax):], []byte("\n")))
}
