package spec

import (
	"slices"
)

// What concerns the standby, and which gateway uses which database.

// accepts reports whether the gateway uses a connection to the database.
func (m Model) accepts(w world, g uint8, d database) bool {
	if m.on(LineageMemory) && w.seen[g] > d.timeline() {
		return false
	}
	return d != d1 || !w.marked
}

// isDurable reports whether the request may be acknowledged.
func (m Model) isDurable(w world, r request) bool {
	switch {
	case !w.synchronous, r.database == d2, r.position < w.replicated:
		return true
	case r.replay:
		return !m.on(ReplayWaits)
	}
	return !m.on(WaitForStandby)
}

// dropUnknown forgets the commits that nobody acknowledges: the gateway was killed, or D1 committed them and the
// gateway has seen D2, so that it answers with outcome unknown.
func (s *step) dropUnknown() {
	compares := s.model.on(LineageMemory) && s.model.on(LateAnswerUnknown)
	for c := range s.clients {
		for slot := range s.clients[c].inFlight {
			r := &s.clients[c].inFlight[slot]
			if r.stage == committed && (r.gateway == gone || compares && s.seen[r.gateway] > r.database.timeline()) {
				*r = request{}
			}
		}
	}
}

// noteAfter notes in the log what a standby that has received it has. It has the same clock, so leases expire there,
// too.
func (s *step) noteAfter(d database, next *State, op *Op) {
	s.logs[d] = slices.Clone(s.logs[d])
	for i := range s.logs[d] {
		switch e := &s.logs[d][i]; {
		case i == len(s.logs[d])-1:
			e.after = next
		case op.Kind == Expire:
			expired := e.after.expire(op.Name, op.Token, 0)
			e.after = &expired
		}
	}
}

// promote makes D2 the primary. If replication is asynchronous, it has received any part of D1's log.
func (m Model) promote(w world, visit func(*step)) {
	most := uint8(len(w.logs[d1]))
	if w.synchronous {
		most = w.replicated
	}
	for received := w.replicated; received <= most; received++ {
		s := m.after(w)
		s.phase, s.replicated = promoted, received
		s.databases[d2] = m.starts()[0].databases[d1]
		if received > 0 {
			s.databases[d2] = w.logs[d1][received-1].after
		}
		if s.synchronous {
			s.check("P14", durable(s.lost()))
		}
		text := "promoted"
		for _, e := range s.lost() {
			text += ", without " + said{e.Op}.String()
		}
		s.says("D2", "%s", text)
		visit(s)
	}
}

// returnOldPrimary thaws D1 after the promotion of D2. The gateways probe their database once a second. So all that run
// since before the promotion have seen it, and one that remembers it reaches D1 first, and marks it for the others.
func (m Model) returnOldPrimary(w world, visit func(*step)) {
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
func (m Model) gatewaySteps(w world, visit func(*step)) {
	for i, timeline := range w.seen {
		g := uint8(i)
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
func (s *step) restart(g uint8) {
	s.seen[g], s.restarted = 0, true
	for c := range s.clients {
		for slot := range s.clients[c].inFlight {
			r := &s.clients[c].inFlight[slot]
			if r.stage > sent && r.gateway == g {
				r.gateway = gone
			}
		}
	}
	s.says(gatewayName(g), "restart")
}
