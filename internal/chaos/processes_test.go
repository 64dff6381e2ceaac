//go:build unix

package chaos

import (
	"cmp"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/process"
)

// gatewayKilled kills a gateway as kill -9 does.
func gatewayKilled(w *world, s step) func() {
	m := w.member(s.target)
	m.gateway.Kill()
	return func() { w.restart(m, w.program) }
}

func gatewayFrozen(w *world, s step) func() {
	m := w.member(s.target)
	m.gateway.Freeze(w.t)
	return func() { m.gateway.Thaw(w.t) }
}

// gatewayEnded sends SIGTERM. A gateway ends well if its database answers.
func gatewayEnded(w *world, s step) func() {
	m := w.member(s.target)
	if err := m.gateway.Stop(); err != nil && s.beside == "" {
		w.t.Errorf("a gateway that was to end did not end well: %v\n%s", err, m.gateway.Log())
	}
	return func() { w.restart(m, w.program) }
}

// clockMoved restarts a gateway with a wall clock that jumps by ten minutes, back and forth, every two seconds. A Go
// program asks no library for the time, so the one thing that can be replaced is its time package.
func clockMoved(w *world, s step) func() {
	m := w.member(s.target)
	m.gateway.Kill()
	w.restart(m, cmp.Or(w.withMovingClock, w.program))
	return func() {
		m.gateway.Kill()
		w.restart(m, w.program)
	}
}

func withMovingClock(t testing.TB) (path string) {
	t.Helper()
	const now = "sec, nsec, mono := runtimeNow()\n"
	const moved = now + "\tsec += [3]int64{0, 600, -600}[mono/2_000_000_000%3]\n"
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	check(t, err)
	return process.BuildChanged(t, filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go"), map[string]string{now: moved})
}

func primaryKilled(w *world, _ step) func() {
	w.primary.Kill()
	return w.primary.Restart
}

func primaryRestarted(w *world, _ step) func() {
	w.primary.Stop()
	return w.primary.Restart
}

func primaryFrozen(w *world, _ step) func() { return w.primary.Freeze() }

func standbyKilled(w *world, _ step) func() {
	w.standby.Kill()
	return w.standby.Restart
}

func standbyFrozen(w *world, _ step) func() { return w.standby.Freeze() }
