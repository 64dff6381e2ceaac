package embeddedpg

import (
	"bytes"
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
