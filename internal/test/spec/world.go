package spec

import (
	"slices"

	"github.com/google/uuid"
)

const (
	forgedToken = 99 // presented by a client that was granted none
	jump        = 10 // of tokens, at a promotion
)

// world is a state of everything. What is pointed to is never changed.
type world struct {
	synchronous bool
	phase       phase
	marked      bool // D1 has the mark that it is superseded
	restarted   bool // a gateway was restarted
	forged      bool // a client presented a token that nobody was granted
	requests    uint8
	replicated  uint8    // D2 has this many entries of D1's log
	seen        [2]uint8 // by gateway: the newest timeline that it saw since it started
	clients     [3]client
	databases   [2]*State  // D2's is nil before its promotion
	logs        [2][]Entry // D2's are the entries after its promotion
}

// phase is how far the failover is.
type phase uint8

const (
	normal   phase = iota // D1 serves, D2 replicates
	frozen                // D1 is frozen
	promoted              // D2 serves, D1 is frozen
	returned              // D1 is thawed and serves; D2 serves or is gone
)

type database uint8

const (
	d1 database = iota
	d2
)

func (d database) timeline() uint8 { return uint8(d) + 1 }

// serving returns the databases that accept writes.
func (w *world) serving() []database {
	return [][]database{normal: {d1}, frozen: nil, promoted: {d2}, returned: {d1, d2}}[w.phase]
}

// client is what a client knows, and the requests that it sent.
type client struct {
	awaits   *Op // the request whose answer it waits for
	holds    *Op // the grant that it received
	wrote    *Op // its newest write
	session  uuid.UUID
	acquired uint8 // how often it sent an acquire
	done     bool
	inFlight [2]request
}

type request struct {
	op       *Op
	stage    stage
	replay   bool
	gateway  uint8 // that passed it on, from stage held on; gone if that was killed
	database database
	position uint8  // of its entry in the database's history, once it is committed
	token    int64  // that was minted for it, while it is judged
	rests    uint16 // the rows on which its admission rests, while it is judged
	changed  uint16 // the rows that were changed since
}

// gone is the gateway of a request that nobody answers, since its gateway was killed.
const gone = 2

type stage uint8

const (
	absent    stage = iota
	sent            // between the client and the gateway
	held            // in the frozen D1
	queued          // the acquire waits for its turn
	judged          // admitted, but not committed
	committed       // the client has no answer yet
)

// uses reports whether the client can still receive the answer to the request, and has a use for it.
func (c *client) uses(r request) bool { return r.gateway != gone && r.op == c.awaits }

// history returns all that the database has committed.
func (w *world) history(d database) []Entry {
	if d == d1 || w.replicated == 0 {
		return w.logs[d]
	}
	return slices.Concat(w.logs[d1][:w.replicated], w.logs[d2])
}

// answered notes that a client knows of the entry at a position of a database's history.
func (w *world) answered(d database, position uint8) {
	if d == d2 && position < w.replicated {
		d = d1
	} else if d == d2 {
		position -= w.replicated
	}
	w.logs[d] = slices.Clone(w.logs[d])
	w.logs[d][position].Answered = true
}

// lost returns the entries of D1 that D2 never received.
func (w *world) lost() []Entry { return w.logs[d1][w.replicated:] }

// newPrimaryWasUsed reports whether a client knows of a commit that only D2 has.
func (w *world) newPrimaryWasUsed() bool {
	return slices.ContainsFunc(w.logs[d2], func(e Entry) bool { return e.Answered })
}

// clientSteps visits what clients send.
func (m Model) clientSteps(w world, visit func(*step)) {
	if int(w.requests) >= m.Requests {
		return
	}
	for c := range w.clients {
		if w.clients[c].done {
			continue
		}
		for _, op := range m.menu(&w, &w.clients[c]) {
			m.send(w, c, op, visit)
		}
	}
}

// send visits the step by which a client sends a request. The answers to earlier ones, if there are any, are lost.
func (m Model) send(w world, c int, op *Op, visit func(*step)) {
	client := &w.clients[c]
	client.dropRequests(committed) // nobody waits for their answers
	slot := slices.IndexFunc(client.inFlight[:], func(r request) bool { return r.stage == absent })
	if slot < 0 {
		return
	}
	text := "%v"
	switch {
	case op == client.awaits:
		text = "%v again"
	case op.Kind == Acquire:
		op.Owner = clientName(c)
		op.Request = op.Owner + string('1'+rune(client.acquired))
		client.acquired++
	case op.Kind == OpenSession:
		op.Owner = clientName(c)
	}
	client.inFlight[slot] = request{op: op, stage: sent}
	client.awaits = op
	if op.Kind == Put {
		client.wrote = op
	}
	if op.Token == forgedToken {
		client.finish()
		w.forged = true
	}
	w.requests++
	s := m.after(w)
	s.says(clientName(c), text, said{op})
	visit(s)
}

// finish ends the client's work. It needs nothing that it knows.
func (c *client) finish() {
	c.done, c.awaits, c.holds, c.wrote, c.session = true, nil, nil, nil, uuid.Nil
}

// dropRequests forgets the requests of a stage.
func (c *client) dropRequests(at stage) {
	for i := range c.inFlight {
		if c.inFlight[i].stage == at {
			c.inFlight[i] = request{}
		}
	}
}

// receive lets the client learn that its request was committed, and the token or the session that it was given.
func (c *client) receive(op *Op) {
	c.awaits = nil
	switch op.Kind {
	case Acquire:
		c.holds = op
	case OpenSession:
		c.session = op.Session
	case Release, EndSession, Leave:
		c.finish()
	}
	c.dropRequests(committed)
}

// requestSteps visits what happens next to a request in flight.
func (m Model) requestSteps(w world, c, slot int, visit func(*step)) {
	r := w.clients[c].inFlight[slot]
	switch r.stage {
	case sent:
		m.pass(w, c, slot, visit)
	case held:
		if w.phase == returned {
			m.execute(w, c, slot, visit)
		}
	case judged:
		if slices.Contains(w.serving(), r.database) {
			m.commitJudged(w, c, slot, visit)
		}
	case committed:
		m.answer(w, c, slot, visit)
	}
}

// pass visits the steps by which a gateway passes a request to a database, which executes it. A gateway that does not
// know of the promotion may pass it to the frozen D1, which executes it when it is thawed.
func (m Model) pass(w world, c, slot int, visit func(*step)) {
	gateways := uint8(1)
	if m.failover {
		gateways = 2
	}
	r := &w.clients[c].inFlight[slot]
	for g := range gateways {
		knows := w.seen[g]
		r.gateway, r.stage = g, sent
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
			s.says(gatewayName(g), "pass %v to D1", said{r.op})
			visit(s)
		}
	}
}
