package model

import "fmt"

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
