package model

import "fmt"

// databaseSteps visits what happens to the databases: expiry, replication, and one failover with the old primary's
// return.
func (m Model) databaseSteps(w world, visit func(step)) {
	if w.acquireIsSent() {
		for _, d := range w.serving() {
			m.expire(w, d, visit)
		}
	}
	switch w.phase {
	case normal:
		if w.synchronous && w.replicated < w.logs[d1].length {
			s := m.after(w)
			s.says("D2", "receive %v", s.entry(d1, s.replicated).operation)
			s.replicated++
			visit(s)
		}
		s := m.after(w)
		s.phase = frozen
		s.says("D1", "freeze")
		visit(s)
	case promoted:
		m.returnOldPrimary(w, visit)
	}
}

// promote makes D2 the primary. If replication is asynchronous, it has received any part of D1's log.
func (m Model) promote(w world, visit func(step)) {
	most := w.logs[d1].length
	if w.synchronous {
		most = w.replicated
	}
	for received := w.replicated; received <= most; received++ {
		s := m.after(w)
		s.phase, s.replicated = promoted, received
		s.promoting()
		s.says("D2", "promoted")
		for _, e := range s.lost() {
			s.text += fmt.Sprintf(", without %v", e.operation)
		}
		visit(s)
	}
}

// acquireIsSent reports whether the end of a lease matters to a request.
func (w *world) acquireIsSent() bool {
	for _, c := range w.clients {
		for _, r := range c.inFlight {
			if r.kind == grant && (r.stage == sent || r.stage == held) {
				return true
			}
		}
	}
	return false
}

// expire ends the newest lease of a database.
func (m Model) expire(w world, d database, visit func(step)) {
	history := w.history(d)
	f := fenceOf(history)
	if !f.live {
		return
	}
	s := m.after(w)
	for position, e := range history {
		if e.kind == grant && e.token == f.granted {
			s.entry(d, uint8(position)).expired = true
		}
	}
	s.says(d.String(), "lease %d expires", f.granted)
	visit(s)
}

// returnOldPrimary thaws D1 after the promotion of D2. The gateways probe their database once a second. So all that run
// since before the promotion have seen it, and one that remembers it reaches D1 first, and marks it for the others.
func (m Model) returnOldPrimary(w world, visit func(step)) {
	remembered := false
	for _, timeline := range w.seen {
		if timeline == d1.timeline() && m.on(PromotionSeen) {
			return
		}
		remembered = remembered || timeline == d2.timeline()
	}
	s := m.after(w)
	s.phase = returned
	s.marked = remembered && m.on(LineageMark) && m.on(LineageMemory)
	s.says("D1", "thaw")
	visit(s)
}

// gatewaySteps visits what gateways do beside passing requests: see the promotion, and start anew.
func (m Model) gatewaySteps(w world, visit func(step)) {
	for g, timeline := range w.seen {
		switch {
		case w.phase == promoted && timeline == d1.timeline():
			s := m.after(w)
			s.seen[g] = d2.timeline()
			s.says(gatewayName(g), "see D2")
			visit(s)
		case w.phase == returned && timeline == d2.timeline() && !w.restarted:
			s := m.after(w)
			s.restart(g)
			visit(s)
		}
	}
}

// restart makes a gateway forget what it saw, and the answers that it owes.
func (s *step) restart(g int) {
	s.seen[g], s.restarted = 0, true
	for c := range s.clients {
		for slot := range s.clients[c].inFlight {
			r := &s.clients[c].inFlight[slot]
			if r.stage > sent && int(r.gateway) == g {
				r.gateway = gone
			}
		}
	}
	s.says(gatewayName(g), "restart")
}
