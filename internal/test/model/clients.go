package model

import (
	"slices"
)

// clientSteps visits what clients send.
func (m Model) clientSteps(w world, visit func(step)) {
	if int(w.requests) >= m.Requests {
		return
	}
	for c, client := range w.clients {
		next := operation{kind: write, token: client.token, sequence: client.last.sequence + 1}
		reused := client.last
		reused.other = true
		end := operation{kind: release, token: client.token}
		switch client.state {
		case idle:
			m.send(w, c, operation{kind: grant}, acquiring, visit)
			if !w.forged {
				m.send(w, c, operation{kind: write, token: forgedToken, sequence: 1}, done, visit)
			}
		case holding:
			if client.last.sequence < 2 {
				m.send(w, c, next, writing, visit)
			}
			if client.last.sequence > 0 && !client.last.other {
				m.send(w, c, reused, writing, visit)
			}
			m.send(w, c, end, releasing, visit)
		case writing:
			m.send(w, c, client.last, writing, visit)
			m.send(w, c, end, releasing, visit)
		}
	}
}

// send visits the step by which a client sends a request. The answers to earlier ones, if there are any, are lost.
func (m Model) send(w world, c int, o operation, then state, visit func(step)) {
	client := &w.clients[c]
	client.dropAnswers()
	slot := slices.Index(client.inFlight[:], request{})
	if slot < 0 {
		return
	}
	client.inFlight[slot] = request{operation: o, stage: sent}
	text := "%v"
	if client.state == writing && then == writing {
		text = "%v again"
	}
	client.become(then)
	if then == writing {
		client.last = o
	}
	w.forged = w.forged || o.token == forgedToken
	w.requests++
	s := m.after(w)
	s.says(clientName(c), text, o)
	visit(s)
}

// become sets the state of the client. One that is done needs nothing that it knows.
func (c *client) become(next state) {
	c.state = next
	if next == done {
		c.token, c.last = 0, operation{}
	}
}

// dropAnswers forgets the requests that are committed: nobody waits for their answers.
func (c *client) dropAnswers() {
	for i := range c.inFlight {
		if c.inFlight[i].stage == committed {
			c.inFlight[i] = request{}
		}
	}
}

// receive lets the client learn that its request was committed, and the token that it was granted.
func (c *client) receive(o operation) {
	switch o.kind {
	case grant:
		c.state, c.token = holding, o.token
	case write:
		c.state = holding
	case release:
		c.become(done)
	}
	c.dropAnswers()
}

// requestSteps visits what happens next to a request in flight.
func (m Model) requestSteps(w world, c, slot int, visit func(step)) {
	r := w.clients[c].inFlight[slot]
	switch r.stage {
	case sent:
		for g := range w.seen {
			m.pass(w, c, slot, g, visit)
		}
	case held:
		if w.phase == returned {
			m.execute(w, c, slot, visit)
		}
	case judged:
		if slices.Contains(w.serving(), r.database) {
			s := m.after(w)
			s.commit(c, slot)
			visit(s)
		}
	case committed:
		m.answer(w, c, slot, visit)
	}
}

// accepts reports whether the gateway uses a connection to the database.
func (m Model) accepts(w world, g int, d database) bool {
	if m.on(LineageMemory) && w.seen[g] > d.timeline() {
		return false
	}
	return d != d1 || !w.marked
}

// pass visits the steps by which a gateway passes a request to a database, which executes it. A gateway that does not
// know of the promotion may pass it to the frozen D1, which executes it when it is thawed.
func (m Model) pass(w world, c, slot, g int, visit func(step)) {
	knows := w.seen[g]
	r := &w.clients[c].inFlight[slot]
	r.gateway = uint8(g)
	for _, d := range w.serving() {
		if m.accepts(w, g, d) {
			r.database = d
			w.seen[g] = max(knows, d.timeline())
			m.execute(w, c, slot, visit)
			w.seen[g] = knows
		}
	}
	if w.phase == promoted && knows == d1.timeline() {
		r.stage, r.database = held, d1
		s := m.after(w)
		s.says(gatewayName(g), "pass %v to D1", r.operation)
		visit(s)
	}
}

// execute is a database's: it decides a request, and commits it or not.
func (m Model) execute(w world, c, slot int, visit func(step)) {
	s := m.after(w)
	r := &s.clients[c].inFlight[slot]
	f := fenceOf(s.history(r.database))
	switch r.kind {
	case grant:
		if f.live && m.on(LeaseEndsFirst) {
			return // it waits in the queue
		}
		r.token = m.mint(f, r.database)
		if !m.on(LockBeforeMint) {
			s.leaveJudged(r, "mint token %d for %s", r.token, clientName(c))
			break
		}
		s.commit(c, slot)
	case write:
		s.executeWrite(c, slot, f)
	case release:
		if !f.open || r.token != f.granted && m.on(ReleaseByHolder) {
			s.reject(c, slot)
			break
		}
		s.commit(c, slot)
	}
	visit(s)
}

func (s *step) executeWrite(c, slot int, f fence) {
	r := &s.clients[c].inFlight[slot]
	switch s.model.judge(f, r.operation) {
	case rejected:
		if s.clients[c].awaits(*r) {
			s.rejecting(*r)
		}
		s.reject(c, slot)
	case replayed:
		s.says(r.database.String(), "%v is a replay", r.operation)
		r.stage, r.position, r.replay = committed, f.at, true
		s.settle(c, slot)
	case admitted:
		if !s.model.on(LockUntilCommit) {
			s.leaveJudged(r, "admit %v", r.operation)
			return
		}
		s.commit(c, slot)
	}
}

func (s *step) leaveJudged(r *request, text string, args ...any) {
	r.stage = judged
	s.says(r.database.String(), text, args...)
}

// commit adds the request to the log of its database.
func (s *step) commit(c, slot int) {
	r := &s.clients[c].inFlight[slot]
	e := entry{operation: r.operation, late: r.database == d1 && s.newPrimaryWasUsed()}
	s.committing(r.database, e)
	r.stage, r.position = committed, uint8(len(s.history(r.database)))
	own := &s.logs[r.database]
	own.entries[own.length] = e
	own.length++
	text := "commit %v"
	if r.kind == grant {
		text = "%v to " + clientName(c)
	}
	if s.phase != normal && r.gateway != gone {
		text += ", by " + gatewayName(int(r.gateway))
	}
	s.says(r.database.String(), text, e.operation)
	s.settle(c, slot)
}

// settle ends a request whose answer nobody awaits.
func (s *step) settle(c, slot int) {
	client := &s.clients[c]
	if !client.awaits(client.inFlight[slot]) {
		client.inFlight[slot] = request{}
	}
}

// reject ends a request, and the client's work if it awaits the answer.
func (s *step) reject(c, slot int) {
	client := &s.clients[c]
	r := client.inFlight[slot]
	s.says(r.database.String(), "reject %v", r.operation)
	client.inFlight[slot] = request{}
	if client.awaits(r) {
		client.become(done)
		client.dropAnswers()
	}
}

// answer is a client's: it receives the acknowledgement of a commit.
//
// An answer with outcome unknown is no step: the client knows no more than without it, and sends the request again or
// gives up.
func (m Model) answer(w world, c, slot int, visit func(step)) {
	r := w.clients[c].inFlight[slot]
	s := m.after(w)
	switch {
	case m.isDurable(w, r):
	case !m.on(CancelledWaitUnknown) && slices.Contains(w.serving(), r.database):
		s.text = " (wait cancelled)"
	default:
		return
	}
	s.telling(r)
	e := s.entry(r.database, r.position)
	e.answered = true
	s.clients[c].receive(e.operation)
	s.says(clientName(c), "ok: %v"+s.text, e.operation)
	visit(s)
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
