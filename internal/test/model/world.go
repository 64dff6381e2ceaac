package model

import (
	"fmt"
	"slices"
)

// MaxRequests is the greatest value of Model.Requests: a log holds one commit for each.
const MaxRequests = 6

const (
	forgedToken = 99 // presented by a client that was granted none
	jump        = 10 // of tokens, at a promotion
)

// world is a state of everything. It consists of bytes and is comparable, so that it can be hashed.
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
	logs        [2]log // by database; D2's are the entries after its promotion
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

// operation is what a client asks for, and what a log has an entry of.
type operation struct {
	kind     kind
	token    uint8
	sequence uint8
	other    bool // of a write: the content is not that of the first write with this number
}

type kind uint8

const (
	grant kind = iota + 1
	write
	release
)

type client struct {
	state    state
	token    uint8
	last     operation // the newest write
	inFlight [2]request
}

// state is what a client waits for or may do.
type state uint8

const (
	idle state = iota
	acquiring
	holding
	writing
	releasing
	done
)

type request struct {
	operation
	stage    stage
	replay   bool
	gateway  uint8 // that passed it on, from stage held on; gone if that was killed
	database database
	position uint8 // of its entry in the database's history, once it is committed
}

// gone is the gateway of a request that nobody answers, since its gateway was killed.
const gone = 2

type stage uint8

const (
	absent    stage = iota
	sent            // between the client and the gateway
	held            // in the frozen D1
	judged          // admitted, but not committed: only without a lock
	committed       // the client has no answer yet
)

// awaits reports whether the client can still receive the answer to the request, and has a use for it.
func (c *client) awaits(r request) bool {
	switch {
	case r.gateway == gone:
		return false
	case r.kind == grant:
		return c.state == acquiring
	case r.kind == write:
		return c.state == writing && c.last == r.operation
	}
	return c.state == releasing
}

type log struct {
	length  uint8
	entries [MaxRequests]entry
}

// entry is a commit. answered means that a client received the answer; expired, that a grant's lease has expired; late,
// that D1 committed it after D2 had acknowledged something.
type entry struct {
	operation
	answered bool
	expired  bool
	late     bool
}

// entry returns the entry at a position of a database's history.
func (w *world) entry(d database, position uint8) *entry {
	if d == d2 && position >= w.replicated {
		return &w.logs[d2].entries[position-w.replicated]
	}
	return &w.logs[d1].entries[position]
}

// history returns all that the database has committed.
func (w *world) history(d database) []entry {
	if d == d1 {
		return w.logs[d1].entries[:w.logs[d1].length]
	}
	own := w.logs[d2].entries[:w.logs[d2].length]
	if w.replicated == 0 {
		return own
	}
	shared := w.logs[d1].entries[:w.replicated:w.replicated]
	return append(shared, own...)
}

// lost returns the entries of D1 that D2 never received.
func (w *world) lost() []entry { return w.logs[d1].entries[w.replicated:w.logs[d1].length] }

// newPrimaryWasUsed reports whether a client knows of a commit that only D2 has.
func (w *world) newPrimaryWasUsed() bool {
	return slices.ContainsFunc(w.logs[d2].entries[:], func(e entry) bool { return e.answered })
}

// fence is what a history says about the name.
type fence struct {
	granted uint8
	open    bool
	live    bool      // the lease is neither released nor expired
	last    operation // the last write, and its position
	at      uint8
}

func fenceOf(history []entry) (f fence) {
	for position, e := range history {
		switch e.kind {
		case grant:
			f.granted, f.open, f.live = e.token, true, !e.expired
		case write:
			f.last, f.at = e.operation, uint8(position)
		case release:
			f.open, f.live = false, false
		}
	}
	return f
}

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
