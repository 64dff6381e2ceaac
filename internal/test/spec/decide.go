package spec

import (
	"slices"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// What databases do: they decide requests, and leases and sessions run out in them.

// choice is what the database gives a grant or a session.
func (s *step) choice(d database, op *Op) Choice {
	state := s.databases[d]
	if op.Kind == OpenSession {
		return Choice{ID: uuid.UUID{byte(len(state.sessions) + 1), 's'}}
	}
	newest := int64(0) // of all names: tokens are of one sequence
	for _, of := range state.resources {
		newest = max(newest, of.resource.GrantedToken, of.resource.LastToken)
	}
	if d == d2 && s.model.on(TokenJump) {
		newest = max(newest, jump)
	}
	return granting(d, newest+1)
}

func granting(d database, token int64) Choice {
	return Choice{Token: token, ID: uuid.UUID{byte(token)<<1 | byte(d), 'l'}}
}

// execute is a database's: it decides a request, and commits it or not.
func (m Model) execute(w world, c, slot int, visit func(*step)) {
	s := m.after(w)
	r := &s.clients[c].inFlight[slot]
	d, op := r.database, *r.op
	chosen := s.choice(d, r.op)
	next, answer := s.databases[d].Step(op, chosen)
	begins := op.Kind == Acquire && op.Scope == store.Subtree && !m.on(BelowAfterLocks)
	if m.held && (!begins && s.isLocked(changedRows(s.databases[d], &next, &op)) || op.Kind == Acquire && s.grantBegan()) {
		return // it waits for a lock
	}
	switch {
	case answer.Code == CodeQueued:
		r.stage = queued
		s.log(d, &op)
		s.become(d, &next, &op)
		s.says(d.String(), "queue %s", clientName(c))
	case answer.Code == CodeHeld && !m.refuses:
		return // it is delayed
	case answer.Code == CodeHeld:
		s.check("P7", grantable(r.op, s.databases[d]))
		s.reject(c, slot)
	case answer.Replayed:
		s.says(d.String(), "%v is a replay", said{r.op})
		r.stage, r.position, r.replay = committed, s.lastWrite(d, op.Name), true
		s.settle(c, slot)
	case answer.Code == CodeGranted && !m.on(LockBeforeMint):
		r.stage, r.token = judged, chosen.Token
		s.says(d.String(), "mint token %d for %s", r.token, clientName(c))
	case answer.Code == CodeGranted && begins:
		r.stage, r.token, r.rests = judged, chosen.Token, s.databases[d].openBelow(op)
		s.says(d.String(), "look up what is open below %s", op.Name)
	case op.Kind == Put && answer.Code == CodeAdmitted && (m.snapshots || m.held || !m.on(LockUntilCommit)):
		r.stage, r.rests = judged, s.databases[d].rests(op)
		s.says(d.String(), "admit %v", said{r.op})
	case slices.Contains([]string{CodeGranted, CodeRenewed, CodeReleased, CodeAdmitted, CodeDone}, answer.Code):
		op.Token, op.LeaseID = max(op.Token, answer.Token), answer.ID
		if op.Kind == OpenSession {
			op.Session = chosen.ID
		}
		s.commit(c, slot, &op, &next)
	default:
		if op.Kind == Put && s.clients[c].uses(*r) {
			history := s.history(d)
			s.check("P10", retryAccepted(r.op, history, m.on(RetryInTime)))
			s.check("the rule", holderWrites(r.op, s.databases[d], history))
		}
		if op.Kind == Put {
			s.check("P12", noTrace(r.op, s.databases[d], &next))
		}
		s.reject(c, slot)
	}
	visit(s)
}

func (w *world) lastWrite(d database, name store.Name) (position uint8) {
	for i, e := range w.history(d) {
		if e.Kind == Put && e.Name == name {
			position = uint8(i)
		}
	}
	return position
}

// isLocked reports whether a transaction that is open has one of the rows.
func (w *world) isLocked(rows uint16) bool {
	for c := range w.clients {
		for _, r := range w.clients[c].inFlight {
			if r.stage == judged && r.op.Kind == Put && r.rests&rows != 0 {
				return true
			}
		}
	}
	return false
}

// grantBegan reports whether a subtree is about to be granted: until then there are no other grants.
func (w *world) grantBegan() bool {
	return slices.ContainsFunc(w.clients[:], func(c client) bool {
		return slices.ContainsFunc(c.inFlight[:], func(r request) bool { return r.stage == judged && r.op.Kind == Acquire })
	})
}

// commitJudged commits what was decided before. A transaction with a snapshot fails if a row on which its admission
// rests was changed since: then nothing is answered, as by a connection that is lost.
func (m Model) commitJudged(w world, c, slot int, visit func(*step)) {
	s := m.after(w)
	r := &s.clients[c].inFlight[slot]
	op := *r.op
	if m.snapshots && r.rests&r.changed != 0 {
		s.says(r.database.String(), "serialization failure of %v", said{r.op})
		s.clients[c].inFlight[slot] = request{}
		visit(s)
		return
	}
	var next State
	if op.Kind == Acquire {
		op.Token = r.token
		op.LeaseID = granting(r.database, r.token).ID
		before := s.databases[r.database]
		next, _ = before.grant(op, granting(r.database, r.token))
		if m.held && s.isLocked(changedRows(before, &next, &op)) {
			return
		}
		if !m.on(BelowAfterLocks) {
			next = next.reopened(op, before, r.rests)
		}
	} else {
		next, _ = s.databases[r.database].admit(op, contentOf(op))
	}
	s.commit(c, slot, &op, &next)
	visit(s)
}

// commit adds an operation to the log of its database, and checks it before.
func (s *step) commit(c, slot int, op *Op, next *State) {
	r := &s.clients[c].inFlight[slot]
	d := r.database
	history := s.history(d)
	late := d == d1 && s.newPrimaryWasUsed()
	switch {
	case op.Kind == Acquire:
		s.check("P8", inOrder(op, s.databases[d], history))
	case op.Kind == Put:
		if d == d2 && !s.model.on(SynchronousReplication) {
			s.check("P3", fenced(op, s.lost()))
		}
		s.check("P3", fenced(op, history))
		s.check("P10", appliedOnce(op, history))
		s.check("the rule, step 3", notAfterItsEnd(op, history))
		s.check("P5", wasGranted(op, history))
	}
	r.stage, r.position = committed, uint8(len(history))
	r.rests, r.changed, r.token = 0, 0, 0
	s.log(d, op)
	s.become(d, next, op)
	last := &s.logs[d][len(s.logs[d])-1]
	last.Late = late
	text := "commit %v"
	if op.Kind == Acquire {
		text = "%v to " + clientName(c)
	}
	if s.phase != normal && r.gateway != gone {
		text += ", by " + gatewayName(r.gateway)
	}
	s.says(d.String(), text, said{op})
	if op.Kind == Leave {
		s.clients[c].dropRequests(queued)
	}
	s.settle(c, slot)
}

func (s *step) log(d database, op *Op) { s.logs[d] = append(slices.Clip(s.logs[d]), Entry{Op: op}) }

// become makes a state that of a database, and checks what holds in every state.
func (s *step) become(d database, next *State, op *Op) {
	before := s.databases[d]
	s.databases[d] = next
	if s.model.failover {
		s.noteAfter(d, next, op)
	}
	s.check("P1", oneHolder(next))
	s.check("P6", ownLease(op, before, next))
	s.check("P7", runsOut(next))
	s.check("P8", servedInTurn(next, s.history(d)))
	s.check("P8", noCycle(next))
	for c := range s.clients {
		for slot := range s.clients[c].inFlight {
			if r := &s.clients[c].inFlight[slot]; r.stage == judged && s.model.snapshots {
				r.changed |= changedRows(before, next, op) & r.rests
			}
		}
	}
}

// settle ends a request whose answer nobody awaits.
func (s *step) settle(c, slot int) {
	client := &s.clients[c]
	if !client.uses(client.inFlight[slot]) {
		client.inFlight[slot] = request{}
	}
}

// reject ends a request, and the client's work if it awaits the answer.
func (s *step) reject(c, slot int) {
	client := &s.clients[c]
	r := client.inFlight[slot]
	s.says(r.database.String(), "reject %v", said{r.op})
	client.inFlight[slot] = request{}
	if client.uses(r) {
		client.finish()
		client.dropRequests(committed)
	}
}

// answer is a client's: it receives the acknowledgement of a commit.
//
// An answer with outcome unknown is no step: the client knows no more than without it, and sends the request again or
// gives up.
func (m Model) answer(w world, c, slot int, visit func(*step)) {
	r := w.clients[c].inFlight[slot]
	s := m.after(w)
	suffix := ""
	switch {
	case m.isDurable(w, r):
	case !m.on(CancelledWaitUnknown) && slices.Contains(w.serving(), r.database):
		suffix = " (wait cancelled)"
	default:
		return
	}
	history := s.history(r.database)
	e := history[r.position]
	s.check("P4", acknowledgedAsSent(r.op, e.Op))
	s.checkGrant(r, e, history[:r.position])
	if e.Late && s.newPrimaryWasUsed() {
		if e.Kind == Put {
			s.check("P3", fenced(e.Op, s.logs[d2]))
		}
		s.check("P9", "the old primary acknowledges what the new one does not have")
	}
	s.answered(r.database, r.position)
	s.clients[c].receive(e.Op)
	s.says(clientName(c), "ok: %v"+suffix, said{e.Op})
	visit(s)
}

// checkGrant compares a grant with those that were made before it, also elsewhere.
func (s *step) checkGrant(r request, e Entry, before []Entry) {
	if !e.grants() {
		return
	}
	s.check("P2", tokensRise(e, before))
	switch {
	case e.Late:
		s.check("P2", tokensRise(e, s.logs[d2]))
	case r.database == d2:
		s.check("P2", tokensRise(e, s.lost()))
	}
}

// databaseSteps visits what happens by itself: leases and sessions run out, waiters are served, and one failover with
// the old primary's return.
func (m Model) databaseSteps(w world, visit func(*step)) {
	for _, d := range w.serving() {
		m.serve(w, d, visit)
		m.expire(w, d, visit)
	}
	switch {
	case !m.failover:
	case w.phase == normal:
		if w.synchronous && int(w.replicated) < len(w.logs[d1]) {
			s := m.after(w)
			s.says("D2", "receive %v", said{w.logs[d1][w.replicated].Op})
			s.replicated++
			visit(s)
		}
		s := m.after(w)
		s.phase = frozen
		s.says("D1", "freeze")
		visit(s)
	case w.phase == promoted:
		m.returnOldPrimary(w, visit)
	}
}

// serve visits the grants to waiters whose turn it is.
func (m Model) serve(w world, d database, visit func(*step)) {
	for _, turn := range w.databases[d].Turns() {
		c := ownerIndex(turn.Owner)
		slot := slices.IndexFunc(w.clients[c].inFlight[:], func(r request) bool {
			return r.stage == queued && r.op.Request == turn.Request
		})
		if slot < 0 {
			continue // it left
		}
		s := m.after(w)
		turn.Kind = Serve
		next, answer := s.databases[d].Step(turn, s.choice(d, &turn))
		turn.Kind, turn.Token, turn.LeaseID = Acquire, answer.Token, answer.ID
		s.commit(c, slot, &turn, &next)
		visit(s)
	}
}

// expire visits the ends of leases and sessions, while a request waits that they matter to.
func (m Model) expire(w world, d database, visit func(*step)) {
	state := w.databases[d]
	happens := func(op Op, text string, args ...any) {
		s := m.after(w)
		next, _ := state.Step(op, Choice{})
		s.become(d, &next, &op)
		s.says(d.String(), text, args...)
		visit(s)
	}
	if w.isAwaited(Acquire, Renew) {
		for _, of := range state.resources {
			for _, lease := range of.resource.leases {
				if lease.End == Running && lease.Session == uuid.Nil {
					happens(Op{Kind: Expire, Name: of.name, Token: lease.Token}, "lease %d expires", lease.Token)
				}
			}
		}
	}
	for _, session := range state.sessions {
		if session.End == Running && w.isAwaited(Acquire, Put, KeepAlive, EndSession) {
			happens(Op{Kind: ExpireSession, Session: session.ID}, "the session of %s expires", session.Owner)
		}
	}
	if slices.ContainsFunc(state.sessions, func(session Session) bool { return session.End != Running }) {
		happens(Op{Kind: Sweep}, "sweep")
	}
}

// isAwaited reports whether there is a request of these kinds that no database has decided.
func (w *world) isAwaited(kinds ...Kind) bool {
	for i := range w.clients {
		for _, r := range w.clients[i].inFlight {
			if (r.stage == sent || r.stage == held || r.stage == queued) && slices.Contains(kinds, r.op.Kind) {
				return true
			}
		}
	}
	return false
}

// What transactions with a snapshot meet: PostgreSQL lets one change or lock a fence only if nobody changed it since the
// snapshot was taken, and one that is held open keeps others waiting. Each fence has a bit.

// rests are the fences on which the admission of a write rests: its own, and that of the subtree grant whose token it lets
// that adopt. Its own is one also before it is made, since two can't make it.
func (s State) rests(op Op) (rows uint16) {
	newest, local := s.inForce(op.Name), s.Resource(op.Name).isLocal(op.Token)
	for i, of := range s.resources {
		above := of.resource.subtree
		if of.name == op.Name || isBelow(op.Name, of.name) && !local && above > 0 && above == newest.token {
			rows |= 1 << i
		}
	}
	return rows
}

// changedRows are the fences that an operation changed. A grant of a subtree also changes, without a difference, those of
// the subtrees above whose tokens could be adopted there.
func changedRows(before, after *State, op *Op) (rows uint16) {
	for i, of := range after.resources {
		was, is := before.resources[i].resource, of.resource
		above := op.Kind == Acquire && op.Scope == store.Subtree && isBelow(op.Name, of.name) && is.opensBelow()
		if was.GrantedToken != is.GrantedToken || was.Open != is.Open || was.LastToken != is.LastToken ||
			was.LastSequence != is.LastSequence || was.adopted != is.adopted || above && after.has(GrantChangesAbove) {
			rows |= 1 << i
		}
	}
	return rows
}

// openBelow are the fences below a name that a grant of its subtree would close now.
func (s State) openBelow(op Op) (rows uint16) {
	for i, of := range s.resources {
		if op.Scope == store.Subtree && isBelow(of.name, op.Name) && (of.resource.Open || of.resource.adopted > 0) {
			rows |= 1 << i
		}
	}
	return rows
}

// reopened is the state in which a grant has closed no fence below its name but those that it knew to be open.
func (s State) reopened(op Op, before *State, known uint16) State {
	for i, of := range before.resources {
		if now := s.Resource(of.name); of.resource.Open != now.Open || of.resource.adopted != now.adopted {
			if isBelow(of.name, op.Name) && known&(1<<i) == 0 {
				now.Open, now.adopted = of.resource.Open, of.resource.adopted
				s = s.with(of.name, now)
			}
		}
	}
	return s
}
