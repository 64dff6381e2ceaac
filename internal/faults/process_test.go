//go:build unix

package faults

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// family returns a process and its children.
func family(t *testing.T, parent int) []int {
	t.Helper()
	listing, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	check(t, err)
	pids := []int{parent}
	for line := range strings.Lines(string(listing)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[1] == strconv.Itoa(parent) {
			pid, err := strconv.Atoi(fields[0])
			check(t, err)
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}
