// Package ps shows tests the state of operating-system processes.
package ps

import (
	"os/exec"
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
