package model

import "slices"

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
