//go:build unix

package chaos

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
