package spec

import (
	"cmp"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Choice is what the provider decides in an operation: the token and the id of a lease, the id of a session, and times,
// in microseconds by the database's clock. 0 is not known.
type Choice struct {
	Token     int64     `op:"token"`
	ID        uuid.UUID `op:"id"`
	GrantedAt int64     `op:"granted_at"` // of a lease
	Until     int64     `op:"until"`      // when a lease or a session ends; of what happens by itself: when it ended
}

// Step is one operation: the next state, and the answer. An answer with a code that no caller can get says which choice
// would have been allowed.
func (s State) Step(op Op, chosen Choice) (State, Answer) {
	switch op.Kind {
	case Acquire:
		return s.acquire(op, chosen)
	case Serve:
		return s.serve(op, chosen)
	case Leave:
		return s.leave(op), Answer{Code: CodeDone}
	case Renew:
		return s.renew(op, chosen.Until)
	case Release:
		return s.release(op)
	case Break:
		return s.breakLock(op.Name)
	case Put, Delete, Guard:
		return s.write(op)
	case Set:
		return s.writeSet(op.Parts)
	case Transact:
		return s.transact(op)
	case OpenSession:
		s.sessions = append(slices.Clip(s.sessions), Session{ID: chosen.ID, Owner: op.Owner, ExpiresAt: chosen.Until})
		return s, Answer{Code: CodeDone}
	case KeepAlive:
		return s.keepAlive(op.Session, chosen.Until)
	case EndSession:
		return s.endSession(op.Session)
	case SetPolicy:
		op.Policy.Prefix = string(op.Name)
		s.policies = cloned(s.policies)
		s.policies[op.Policy.Prefix] = op.Policy
		return s, Answer{Code: CodeDone}
	case DeletePolicy:
		s.policies = maps.Clone(s.policies)
		delete(s.policies, string(op.Name))
		return s, Answer{Code: CodeDone}
	case Expire:
		return s.expire(op.Name, op.Token, chosen.Until), Answer{Code: CodeDone}
	case ExpireSession:
		return s.sessionOver(op.Session, Expired, chosen.Until), Answer{Code: CodeDone}
	case HoldOut:
		return s.holdOut(op.Name, op.Token, chosen.Until), Answer{Code: CodeDone}
	case Sweep:
		return s.sweep(), Answer{Code: CodeDone}
	}
	return s, s.read(op)
}

// acquire tries to take a lock, or joins the queue. A token that the provider chose must be greater than every token on
// the fence and on those above, and for a subtree on those below (P2); and the lease must not begin before those that it
// replaces have run out (P1).
func (s State) acquire(op Op, chosen Choice) (State, Answer) {
	op.Mode, op.Scope = cmp.Or(op.Mode, store.Exclusive), cmp.Or(op.Scope, store.Node)
	earlier, again := s.Resource(op.Name).requested(op.Request)
	if op.Session != uuid.Nil && !again && s.has(SessionRunsAtGrant) {
		if lost := s.sessionLost(op.Session); lost != (Answer{}) {
			return s, lost
		}
	}
	if s.Policy(op.Name).Authority == store.AuthorityExternal {
		return s, Answer{Code: CodeExternal}
	}
	if again {
		return s, s.answerAgain(earlier, op)
	}
	place, waits := s.waiting(op)
	if waits && !sameRequest(s.queue[place], op) {
		return s, Answer{Code: CodeInvalid}
	}
	if !waits {
		place = len(s.queue)
	}
	behind := s.mustQueue(op, place) && s.has(TryWaitsItsTurn)
	held, blocked := s.longest(s.against(op))
	switch {
	case !behind && !blocked:
		return s.leave(op).grant(op, chosen)
	case op.Wait > 0 && waits:
		return s, Answer{Code: CodeQueued}
	case op.Wait > 0:
		return s.join(op)
	case blocked:
		return s, held
	}
	return s, Answer{Code: CodeHeld} // it is not its turn
}

// against are the leases that one of this kind could not run beside, whether they run or not: on the name itself,
// subtree leases above, and for a subtree all below.
func (s State) against(op Op) []Lease {
	var against []Lease
	for _, of := range s.resources {
		for _, lease := range of.resource.leases {
			if conflict(op, Op{Name: of.name, Mode: lease.Mode, Scope: lease.Scope}) {
				against = append(against, lease)
			}
		}
	}
	return against
}

// conflict reports whether leases of two kinds can't run at the same time.
func conflict(a, b Op) bool {
	meet := a.Name == b.Name || b.Scope == store.Subtree && isBelow(a.Name, b.Name) ||
		a.Scope == store.Subtree && isBelow(b.Name, a.Name)
	return meet && (a.Mode == store.Exclusive || b.Mode == store.Exclusive)
}

// longest is the answer to an acquire with the lease in its way that runs longest. If that is not known, the owner is
// Anybody.
func (s State) longest(against []Lease) (held Answer, ok bool) {
	for _, lease := range against {
		until := s.until(lease)
		switch {
		case lease.End != Running && s.has(ExpiryFreesLock), !s.has(LeaseEndsFirst):
		case !ok:
			held, ok = Answer{Code: CodeHeld, Owner: lease.Owner, ExpiresAt: until}, true
		case held.ExpiresAt == 0 || until == 0 || until == held.ExpiresAt && lease.Owner != held.Owner:
			held.Owner, held.ExpiresAt = Anybody, 0
		case until > held.ExpiresAt:
			held.Owner, held.ExpiresAt = lease.Owner, until
		}
	}
	return held, ok
}

// mustQueue reports whether one of those before the place in the queue waits for a lease that conflicts (P8): a try does
// not pass the queue, and readers queue behind a waiting writer.
func (s State) mustQueue(op Op, place int) bool {
	return slices.ContainsFunc(s.queue[:place], func(ahead Op) bool { return conflict(op, ahead) })
}

// waiting is the place of a request in the queue. Without a request_id, none is the same.
func (s State) waiting(op Op) (place int, ok bool) {
	place = slices.IndexFunc(s.queue, func(w Op) bool {
		return w.Name == op.Name && w.Request == op.Request && op.Request != ""
	})
	return place, place >= 0
}

func sameRequest(a, b Op) bool {
	return a.Owner == b.Owner && a.Of == b.Of && a.Session == b.Session && a.TTL == b.TTL && a.Mode == b.Mode &&
		a.Scope == b.Scope
}

// join puts an acquire at the end of the queue, unless its wait would close a cycle of owners that wait for each other.
func (s State) join(op Op) (State, Answer) {
	s.queue = append(slices.Clip(s.queue), op)
	if self := (owner{op.Of, op.Owner}); s.has(DeadlockRefused) && s.waitsFor(self, self, map[owner]bool{}) {
		s.queue = s.queue[:len(s.queue)-1]
		return s, Answer{Code: CodeDeadlock}
	}
	return s, Answer{Code: CodeQueued}
}

// owner is who waits, and who is waited for.
type owner struct{ principal, id string }

// waitsFor reports whether an owner waits for the other, by way of any number of owners between. That an owner waits for
// itself is no cycle: another of its threads may hold the lock.
func (s State) waitsFor(self, other owner, seen map[owner]bool) bool {
	seen[self] = true
	for place, waits := range s.queue {
		if self != (owner{waits.Of, waits.Owner}) {
			continue
		}
		var for_ []owner
		for _, lease := range s.against(waits) {
			if lease.End == Running {
				for_ = append(for_, owner{lease.Of, lease.Owner})
			}
		}
		for _, ahead := range s.queue[:place] {
			if conflict(waits, ahead) {
				for_ = append(for_, owner{ahead.Of, ahead.Owner})
			}
		}
		for _, next := range for_ {
			if next != self && (next == other || !seen[next] && s.waitsFor(next, other, seen)) {
				return true
			}
		}
	}
	return false
}

// Turns returns the waiters that are to be granted their locks now, in their order: nothing that runs is in their way, and
// nobody ahead.
func (s State) Turns() []Op {
	var turns []Op
	for place, waits := range s.queue {
		_, blocked := s.longest(s.against(waits))
		if !blocked && !(s.mustQueue(waits, place) && s.has(ServedInOrder)) {
			turns = append(turns, waits)
		}
	}
	return turns
}

// serve grants a waiter its lock.
func (s State) serve(op Op, chosen Choice) (State, Answer) {
	for _, turn := range s.Turns() {
		if turn.Name == op.Name && turn.Owner == op.Owner && turn.Request == op.Request {
			return s.leave(turn).grant(turn, chosen)
		}
	}
	return s, Answer{Code: "not its turn"}
}

// leave takes a request out of the queue, if it is there.
func (s State) leave(op Op) State {
	i := slices.IndexFunc(s.queue, func(w Op) bool {
		return w.Name == op.Name && w.Request == op.Request && w.Owner == op.Owner && op.Request != ""
	})
	if i >= 0 && s.has(LeavingFreesPlace) {
		s.queue = slices.Delete(slices.Clone(s.queue), i, i+1)
	}
	return s
}

// grant raises the fence. Only an exclusive lease may write. A subtree grant shuts out those that could still write
// below; and any grant on the name, those that could write below under the subtree grant before it.
func (s State) grant(op Op, chosen Choice) (State, Answer) {
	lease := s.limited(op.Name, Lease{
		Lock: op.Name, Token: chosen.Token, ID: chosen.ID, Owner: op.Owner, Of: op.Of, Request: op.Request, Mode: op.Mode,
		Scope: op.Scope, Session: op.Session, TTL: op.TTL, AskedTTL: op.TTL, GrantedAt: chosen.GrantedAt, ExpiresAt: chosen.Until,
	})
	if lease.Token <= s.newestToken(op.Name, op.Scope) && s.has(LockBeforeMint) {
		return s, Answer{Code: "a grant, with a token greater than all before"}
	}
	for _, late := range s.against(op) {
		if late.End == Expired && late.Session == uuid.Nil && lease.GrantedAt < late.ExpiresAt {
			return s, Answer{Code: "a grant, not before the lease that it replaces has expired"}
		}
	}
	r := s.Resource(op.Name)
	for _, late := range r.leases {
		if late.End == Expired && (late.Mode == store.Exclusive || lease.Mode == store.Exclusive) {
			late.replaced = true
			r = r.with(late)
		}
	}
	r.leases = append(slices.Clip(r.leases), lease)
	r.GrantedToken, r.Open = lease.Token, lease.Mode == store.Exclusive
	s = s.closeAdopted(op.Name, r.covering.token)
	r.covering.open = false
	if lease.Scope == store.Subtree {
		r.covering = covering{lease.Token, r.Open}
		for _, of := range s.resources {
			if isBelow(of.name, op.Name) && s.has(GrantClosesBelow) {
				shut := *of.resource
				shut.Open, shut.covering.open = false, false
				s = s.with(of.name, shut)
			}
		}
	}
	s.granted = append(slices.Clip(s.granted), grantOf{op.Name, lease.Token})
	return s.with(op.Name, r), s.leaseAnswer(CodeGranted, lease)
}

// newestToken is the greatest token that a grant must exceed.
func (s State) newestToken(lock store.Name, scope store.Scope) int64 {
	newest := int64(0)
	for _, of := range s.resources {
		switch {
		case of.name == lock, scope == store.Subtree && isBelow(of.name, lock):
			newest = max(newest, of.resource.GrantedToken, of.resource.LastToken)
		case isBelow(lock, of.name):
			newest = max(newest, of.resource.covering.token)
		}
	}
	return newest
}

// limited is a lease that lasts no longer after its grant than the policy says.
func (s State) limited(lock store.Name, lease Lease) Lease {
	lease.HoldUntil = 0
	if limit := s.Policy(lock).MaxHold; limit > 0 {
		lease.HoldUntil = lease.GrantedAt + limit.Microseconds()
		lease.ExpiresAt = min(lease.ExpiresAt, lease.HoldUntil)
	}
	return lease
}

// answerAgain is the answer to an acquire with a request_id that was used before.
func (s State) answerAgain(lease Lease, op Op) Answer {
	switch {
	case lease.Owner != op.Owner, lease.Of != op.Of, lease.Session != op.Session, lease.AskedTTL != op.TTL,
		lease.Mode != op.Mode, lease.Scope != op.Scope:
		return Answer{Code: CodeInvalid}
	case lease.End != Running:
		return Answer{Code: CodeLost, Reason: string(lease.End)}
	}
	return s.leaseAnswer(CodeGranted, lease)
}

func (s State) leaseAnswer(code string, lease Lease) Answer {
	return Answer{Code: code, Token: lease.Token, ID: lease.ID, Owner: lease.Owner, ExpiresAt: s.until(lease),
		Lease: kindOf(lease.Mode, lease.Scope)}
}

func kindOf(mode store.Mode, scope store.Scope) string { return string(mode) + "," + string(scope) }

// until is when a lease runs out: at its own time, or with its session, if that is before its HoldUntil.
func (s State) until(lease Lease) int64 {
	session, ok := s.session(lease.Session)
	switch {
	case !ok:
		return lease.ExpiresAt
	case lease.HoldUntil > 0:
		return min(session.ExpiresAt, lease.HoldUntil)
	}
	return session.ExpiresAt
}

// leaseStatus is the status of the lease that a client names: live, not found, or the reason for which it is lost.
func (s State) leaseStatus(op Op) (Lease, string) {
	r := s.Resource(op.Name)
	if r.GrantedToken == 0 {
		return Lease{}, CodeNotFound
	}
	lease, ok := r.lease(op.Token)
	switch {
	case op.Kind == Release && !s.has(ReleaseByHolder):
		lease, _ = r.Newest()
		return lease, "live"
	case !ok && op.Token < r.GrantedToken:
		return Lease{}, "superseded" // of a lease this old nothing else is remembered
	case !ok, lease.ID != op.LeaseID || lease.Owner != op.Owner:
		return Lease{}, "mismatch"
	case lease.End == Released || lease.End == Broken:
		return lease, string(lease.End)
	case lease.End == Running:
		return lease, "live"
	case lease.Token < r.GrantedToken, lease.Token < s.inForce(op.Name).token:
		return lease, "superseded"
	}
	return lease, "expired"
}

// renew makes a live lease last until the time that the provider gave it.
func (s State) renew(op Op, until int64) (State, Answer) {
	lease, status := s.leaseStatus(op)
	switch {
	case status != "live" && s.has(RenewalOfLiveLease):
		return s, lost(status)
	case lease.Session != uuid.Nil:
		return s, Answer{Code: CodeInvalid}
	}
	lease.ExpiresAt, lease.End = until, Running
	lease.TTL = cmp.Or(op.TTL, lease.TTL)
	lease = s.limited(op.Name, lease)
	return s.withLease(op.Name, lease), s.leaseAnswer(CodeRenewed, lease)
}

// release ends a lease, live or late, and closes the fence behind it.
func (s State) release(op Op) (State, Answer) {
	lease, status := s.leaseStatus(op)
	switch status {
	case "released":
		return s, Answer{Code: CodeReleased}
	case "live", "expired":
		lease.End = Released
		s = s.closeAdopted(op.Name, lease.Token)
		return s.with(op.Name, s.Resource(op.Name).with(lease).closed(lease.Token)), Answer{Code: CodeReleased}
	}
	return s, lost(status)
}

func lost(status string) Answer {
	if status == CodeNotFound {
		return Answer{Code: CodeNotFound}
	}
	return Answer{Code: CodeLost, Reason: status}
}

// breakLock ends all leases that run on the lock, or that of a late holder that may still write, and closes the fence.
// The answer is the newest.
func (s State) breakLock(lock store.Name) (State, Answer) {
	r := s.Resource(lock)
	answer := Answer{Code: CodeNotFound}
	for _, lease := range r.leases {
		if lease.End == Running || r.Open && lease.Token == r.GrantedToken {
			answer = s.leaseAnswer(CodeBroken, lease)
			answer.ID = uuid.Nil
			lease.End = Broken
			r = r.with(lease)
		}
	}
	if answer.Code == CodeNotFound {
		return s, answer
	}
	s = s.closeAdopted(lock, r.covering.token)
	r.Open, r.covering.open = false, false
	return s.with(lock, r), answer
}
