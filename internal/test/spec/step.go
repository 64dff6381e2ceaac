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
	GrantedAt int64     `op:"granted_at"` // of a lease or a session
	// Judged is how a transaction with an older snapshot was judged; "": as things are now.
	Judged string `op:"judged"`
	Until  int64  `op:"until"` // when a lease or a session ends; of what happens by itself: when it ended
}

// Step is one operation: the next state, and the answer. An answer with a code that no caller can get says which choice
// would have been allowed.
func (s State) Step(op Op, chosen Choice) (State, Answer) {
	if op.isOutsideLimits() {
		return s, Answer{Code: CodeInvalid}
	}
	switch op.Kind {
	case Acquire:
		s.begun = s.begun.asking(op)
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
	case Put, Delete:
		return s.write(op)
	case Begin:
		s.begun = nil
		s.begun = &snapshot{State: s, level: op.Level}
		return s, Answer{Code: CodeDone}
	case Guard:
		return s.guard(op, chosen)
	case Set:
		return s.writeSet(op.Parts)
	case Transact:
		return s.transact(op)
	case OpenSession:
		return s.openSession(op, chosen)
	case KeepAlive:
		return s.keepAlive(op.Session, chosen.Until)
	case EndSession:
		return s.endSession(op.Session)
	case SetPolicy:
		op.Policy.Prefix = string(op.Name)
		s.begun, s.policies = nil, cloned(s.policies)
		s.policies[op.Policy.Prefix] = op.Policy
		return s, Answer{Code: CodeDone}
	case DeletePolicy:
		s.begun, s.policies = nil, maps.Clone(s.policies)
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

// acquire takes a lock. A lease whose token is not above one that the client knows of is given back, unless the client
// may know that token by this very request: it is that of the lease, or of one that is shared beside it.
func (s State) acquire(op Op, chosen Choice) (State, Answer) {
	next, answer := s.tryAcquire(op, chosen)
	if answer.Code != CodeGranted || answer.Token > op.NewestToken {
		return next, answer
	}
	r := next.Resource(op.Name)
	lease, _ := r.lease(answer.Token)
	_, again := s.Resource(op.Name).requested(op.Request)
	_, beside := r.lease(op.NewestToken)
	if again && (answer.Token == op.NewestToken || lease.Mode == store.Shared && beside) {
		return next, answer
	}
	lease.End, lease.Request = Released, ""
	return next.with(op.Name, r.with(lease).closed(lease.Token)), Answer{Code: CodeWentBack}
}

// tryAcquire tries to take a lock, or joins the queue. A token that the provider chose must be greater than every token on
// the fence and on those above, and for a subtree on those below (P2); and the lease must not begin before those that it
// replaces have run out (P1).
func (s State) tryAcquire(op Op, chosen Choice) (State, Answer) {
	op.Mode, op.Scope = cmp.Or(op.Mode, store.Exclusive), cmp.Or(op.Scope, store.Node)
	earlier, again := s.Resource(op.Name).requested(op.Request)
	held, blocked := s.longest(s.against(op))
	policy := s.Policy(op.Name)
	lost := Answer{}
	if op.Session != uuid.Nil && !again && s.has(SessionRunsAtGrant) {
		lost = s.sessionLost(op.Session)
	}
	switch {
	case s.Elsewhere && (op.Mode != store.Exclusive || op.Scope != store.Node || op.Session != uuid.Nil):
		return s, Answer{Code: CodeUnsupported}
	case policy.RequirePrincipalOwner && !op.isByOwner():
		return s, Answer{Code: CodeInvalid}
	case lost != (Answer{}):
		return s, lost
	case s.Elsewhere && blocked && again && earlier.End == Running:
		return s, s.answerAgain(earlier, op)
	case s.Elsewhere && blocked:
		return s, held
	case policy.Authority == store.AuthorityExternal:
		return s, Answer{Code: CodeExternal}
	case s.Elsewhere && policy.RequireLiveLease:
		return s, Answer{Code: CodeUnsupported}
	case again:
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
		until := lease.ExpiresAt
		switch {
		case lease.End != Running && s.has(ExpiryFreesLock), !s.has(LeaseEndsFirst):
		case !ok:
			held, ok = Answer{Code: CodeHeld, Owner: lease.Owner, Principal: lease.Principal, ExpiresAt: until}, true
		case held.ExpiresAt == 0 || until == 0 || until == held.ExpiresAt && lease.Owner != held.Owner:
			held.Owner, held.ExpiresAt = Anybody, 0
		case until > held.ExpiresAt:
			held.Owner, held.Principal, held.ExpiresAt = lease.Owner, lease.Principal, until
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
	return a.Owner == b.Owner && a.Principal == b.Principal && a.Session == b.Session && a.TTL == b.TTL &&
		a.Mode == b.Mode && a.Scope == b.Scope && a.Metadata == b.Metadata
}

// join puts an acquire at the end of the queue, unless its wait would close a cycle of owners that wait for each other.
func (s State) join(op Op) (State, Answer) {
	s.queue = append(slices.Clip(s.queue), op)
	if self := (owner{op.Principal, op.Owner}); s.has(DeadlockRefused) && s.waitsFor(self, self, map[owner]bool{}) {
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
		if self != (owner{waits.Principal, waits.Owner}) {
			continue
		}
		var for_ []owner
		for _, lease := range s.against(waits) {
			if lease.End == Running {
				for_ = append(for_, owner{lease.Principal, lease.Owner})
			}
		}
		for _, ahead := range s.queue[:place] {
			if conflict(waits, ahead) {
				for_ = append(for_, owner{ahead.Principal, ahead.Owner})
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
	session, _ := s.session(op.Session)
	lease := s.limited(op.Name, Lease{
		Lock: op.Name, Token: chosen.Token, ID: chosen.ID, Owner: op.Owner, Principal: op.Principal, Request: op.Request,
		Metadata: op.Metadata, Mode: op.Mode, Scope: op.Scope, Session: op.Session,
		TTL: cmp.Or(op.TTL, session.TTL, store.TTLDefault), AskedTTL: op.TTL, GrantedAt: chosen.GrantedAt, ExpiresAt: chosen.Until,
	})
	if lease.Session == uuid.Nil && lease.HoldUntil == 0 && !chosen.lasts(op.TTL) {
		return s, Answer{Code: "a grant for the TTL"}
	}
	if lease.Session != uuid.Nil && session.ExpiresAt != 0 && lease.ExpiresAt > session.ExpiresAt {
		return s, Answer{Code: "a grant for no longer than the session"}
	}
	if lease.Token <= s.newestToken(op.Name, op.Scope) && s.has(LockBeforeMint) {
		return s, Answer{Code: "a grant, with a token greater than all before"}
	}
	for _, late := range s.against(op) {
		if late.End == Expired && lease.GrantedAt < late.ExpiresAt {
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
	s = s.closeAdopted(op.Name, r.GrantedToken)
	r.GrantedToken, r.Open, r.adopted = lease.Token, lease.Mode == store.Exclusive, 0
	if lease.Scope == store.Subtree {
		r.subtree = lease.Token
		for _, of := range s.resources {
			if isBelow(of.name, op.Name) && s.has(GrantClosesBelow) {
				shut := *of.resource
				shut.Open, shut.adopted = false, 0
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
			newest = max(newest, of.resource.subtree)
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
	case !sameRequest(op, Op{Owner: lease.Owner, Principal: lease.Principal, Session: lease.Session, TTL: lease.AskedTTL,
		Mode: lease.Mode, Scope: lease.Scope, Metadata: lease.Metadata}):
		return Answer{Code: CodeInvalid}
	case lease.End != Running:
		return Answer{Code: CodeLost, Reason: string(lease.End)}
	}
	return s.leaseAnswer(CodeGranted, lease)
}

func (s State) leaseAnswer(code string, lease Lease) Answer {
	return Answer{Code: code, Token: lease.Token, ID: lease.ID, Owner: lease.Owner, Principal: lease.Principal,
		Metadata: lease.Metadata, TTL: lease.TTL, ExpiresAt: lease.ExpiresAt, Lease: kindOf(lease.Mode, lease.Scope)}
}

func kindOf(mode store.Mode, scope store.Scope) string {
	if mode == "" {
		return ""
	}
	return string(mode) + "," + string(scope)
}
