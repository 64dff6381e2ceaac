package spec

import "github.com/fencegate/fencegate/store"

// What transactions with a snapshot meet: PostgreSQL lets one change or lock a row only if nobody changed it since the
// snapshot was taken, and one that is held open keeps others waiting. Each name has two rows: its fence, and that of the
// subtree grants on it. Each has a bit.

// rests are the rows on which the admission of a write rests: the fence, and the row of the subtree that it has its
// token from. The fence is one also before it is made, since two can't make it. A write that lets a fence adopt a token
// rests on the rows of all subtree grants above, and another one on the fence alone.
func (s State) rests(op Op) (rows uint16) {
	newest := s.inForce(op.Name)
	local := s.adopts && op.Token <= s.Resource(op.Name).GrantedToken
	for i, of := range s.resources {
		above := of.resource.covering.token
		switch {
		case of.name == op.Name:
			rows |= 1 << (2 * i)
		case isBelow(op.Name, of.name) && !local && above > 0 && (s.adopts || above == newest.token):
			rows |= 2 << (2 * i)
		}
	}
	return rows
}

// changedRows are the rows that an operation changed. A grant of a subtree also changes, without a difference, those of
// the subtrees above whose tokens could write there.
func changedRows(before, after *State, op *Op) (rows uint16) {
	for i, of := range after.resources {
		was, is := before.resources[i].resource, of.resource
		if was.GrantedToken != is.GrantedToken || was.Open != is.Open || was.LastToken != is.LastToken ||
			was.LastSequence != is.LastSequence {
			rows |= 1 << (2 * i)
		}
		above := op.Kind == Acquire && op.Scope == store.Subtree && isBelow(op.Name, of.name) && is.covering.open
		if was.covering != is.covering || above && after.has(GrantChangesAbove) {
			rows |= 2 << (2 * i)
		}
	}
	return rows
}

// openBelow are the fences below a name that a grant of its subtree would close now.
func (s State) openBelow(op Op) (rows uint16) {
	for i, of := range s.resources {
		if op.Scope == store.Subtree && isBelow(of.name, op.Name) && of.resource.Open {
			rows |= 1 << (2 * i)
		}
	}
	return rows
}

// reopened is the state in which a grant has closed no fence below its name but those that it knew to be open.
func (s State) reopened(before *State, known uint16) State {
	for i, of := range before.resources {
		if now := s.Resource(of.name); of.resource.Open && !now.Open && known&(1<<(2*i)) == 0 {
			now.Open = true
			s = s.with(of.name, now)
		}
	}
	return s
}
