package model

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// Model is the protocol, without one of its switches or with all of them.
type Model struct {
	Without  Switch // "" for none
	Requests int    // the most that clients send in a run, up to MaxRequests
	Promise  string // the only one to check, such as P3; "" for all
}

func (m Model) on(s Switch) bool { return s != m.Without }

// Result is what Explore found: the shortest run that breaks a promise, if any does.
type Result struct {
	States      int    // that are different, whichever client or gateway is called what
	Steps       int    // from the start to the state that is the farthest from it
	Broken      string // the promise, such as P3; "" if none is broken
	How         string // it is broken
	Synchronous bool   // how D1 replicates in this run
	Run         []Event
}

// Event is a step of a run.
type Event struct {
	Actor string // a client A, B or C, a gateway G1 or G2, or a database D1 or D2
	Text  string
}

// node is a state that was reached, by a step from another one.
type node struct {
	world  world
	parent int
	depth  int
}

// Explore visits all states breadth first, until a promise is broken.
func (m Model) Explore() Result {
	var nodes []node
	known := map[uint64]struct{}{}
	add := func(n node) {
		key := identity(n.world)
		if _, ok := known[key]; !ok {
			known[key] = struct{}{}
			nodes = append(nodes, n)
		}
	}
	for _, synchronous := range []bool{false, true} {
		seen := [2]uint8{d1.timeline(), d1.timeline()}
		add(node{world: world{synchronous: synchronous, seen: seen}, parent: -1})
	}
	for i := 0; i < len(nodes); i++ {
		var broken *step
		m.steps(nodes[i].world, func(s step) {
			switch {
			case broken != nil:
			case s.broken != "":
				broken = &s
			default:
				s.dropUnknown()
				add(node{world: s.world, parent: i, depth: nodes[i].depth + 1})
			}
		})
		if broken != nil {
			return Result{
				States: len(nodes), Steps: nodes[i].depth + 1, Broken: broken.broken, How: broken.how,
				Synchronous: broken.synchronous, Run: append(m.runTo(nodes, i), broken.event()),
			}
		}
	}
	return Result{States: len(nodes), Steps: nodes[len(nodes)-1].depth}
}

// runTo returns the steps that lead to a node.
func (m Model) runTo(nodes []node, to int) []Event {
	parent := nodes[to].parent
	if parent < 0 {
		return nil
	}
	run := m.runTo(nodes, parent)
	found := false
	m.steps(nodes[parent].world, func(s step) {
		s.dropUnknown()
		if !found && s.world == nodes[to].world {
			found = true
			run = append(run, s.event())
		}
	})
	return run
}

func (s *step) event() Event { return Event{Actor: s.actor, Text: fmt.Sprintf(s.text, s.args...)} }

var seed = maphash.MakeSeed()

// identity returns the same number for worlds that differ only in what clients and gateways are called. Different worlds
// have different numbers, but for a chance of one in 10^8 among a million.
func identity(w world) uint64 {
	return min(identityOfServers(w), identityOfServers(w.withGatewaysSwapped()))
}

func identityOfServers(w world) (sum uint64) {
	for _, c := range w.clients {
		sum += maphash.Comparable(seed, c)
	}
	w.clients = [3]client{}
	return sum + maphash.Comparable(seed, w)
}

func (w world) withGatewaysSwapped() world {
	w.seen[0], w.seen[1] = w.seen[1], w.seen[0]
	for c := range w.clients {
		for slot := range w.clients[c].inFlight {
			if r := &w.clients[c].inFlight[slot]; r.stage > sent && r.gateway != gone {
				r.gateway = 1 - r.gateway
			}
		}
	}
	return w
}

// step is one atomic step: an actor did something, and left this world. broken names the promise that it breaks.
type step struct {
	world
	model  Model
	actor  string
	text   string
	args   []any
	broken string
	how    string
}

func (s *step) says(actor, text string, args ...any) { s.actor, s.text, s.args = actor, text, args }

func (s *step) breaks(promise, text string, args ...any) {
	if s.broken == "" && (s.model.Promise == "" || s.model.Promise == promise) {
		s.broken, s.how = promise, fmt.Sprintf(text, args...)
	}
}

// steps calls visit with every step that is possible in the world.
func (m Model) steps(w world, visit func(step)) {
	if w.phase == frozen {
		m.promote(w, visit) // all else may as well come later
		return
	}
	m.clientSteps(w, visit)
	for c := range w.clients {
		for slot := range w.clients[c].inFlight {
			m.requestSteps(w, c, slot, visit)
		}
	}
	m.databaseSteps(w, visit)
	m.gatewaySteps(w, visit)
}

func (m Model) after(w world) step { return step{world: w, model: m} }

func clientName(c int) string     { return [...]string{"A", "B", "C"}[c] }
func gatewayName(g int) string    { return [...]string{"G1", "G2"}[g] }
func (d database) String() string { return [...]string{"D1", "D2"}[d] }

func (o operation) String() string {
	switch {
	case o.kind == grant && o.token == 0:
		return "acquire"
	case o.kind == grant:
		return fmt.Sprintf("grant %d", o.token)
	case o.kind == release:
		return fmt.Sprintf("release %d", o.token)
	case o.other:
		return fmt.Sprintf("write %d.%d (other content)", o.token, o.sequence)
	}
	return fmt.Sprintf("write %d.%d", o.token, o.sequence)
}

// Timeline draws the run: a column for each actor, a line for each step.
func (r Result) Timeline() string {
	width := map[string]int{}
	for _, e := range r.Run {
		width[e.Actor] = max(width[e.Actor], len(e.Text)+2)
	}
	var drawn strings.Builder
	line := func(text func(actor string) string) {
		var columns strings.Builder
		for _, actor := range []string{"A", "B", "C", "G1", "G2", "D1", "D2"} {
			if width[actor] > 0 {
				fmt.Fprintf(&columns, "%-*s", width[actor], text(actor))
			}
		}
		fmt.Fprintln(&drawn, strings.TrimRight(columns.String(), " "))
	}
	line(func(actor string) string { return actor })
	for _, e := range r.Run {
		line(func(actor string) string {
			if actor == e.Actor {
				return e.Text
			}
			return ""
		})
	}
	return drawn.String()
}
