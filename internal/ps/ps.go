// Package ps shows tests the state of operating-system processes.
package ps

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// State is the state of a process as ps shows it, such as "Ss" or "T"; "" if there is none.
func State(pid int) string {
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(state))
}

// Running reports whether a process runs. A zombie process does not.
func Running(pid int) bool {
	state := State(pid)
	return state != "" && state[0] != 'Z'
}

// Family returns a process and its children, in order.
func Family(parent int) ([]int, error) {
	listing, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, err
	}
	pids := []int{parent}
	for line := range strings.Lines(string(listing)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[1] == strconv.Itoa(parent) {
			pid, err := strconv.Atoi(fields[0])
			if err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}
