package spec

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

func (s State) sessionLost(id uuid.UUID) Answer {
	session, ok := s.session(id)
	switch {
	case !ok:
		return Answer{Code: CodeNotFound}
	case session.End != Running:
		return Answer{Code: CodeSessionLost, Reason: string(session.End)}
	}
	return Answer{}
}

// openSession opens a session for its TTL.
func (s State) openSession(op Op, chosen Choice) (State, Answer) {
	if !chosen.lasts(op.TTL) {
		return s, Answer{Code: "a session for the TTL"}
	}
	s.sessions = append(slices.Clip(s.sessions), Session{ID: chosen.ID, Owner: op.Owner, Principal: op.Principal,
		TTL: cmp.Or(op.TTL, store.TTLDefault), CreatedAt: chosen.GrantedAt, ExpiresAt: chosen.Until})
	return s, Answer{Code: CodeDone}
}

// keepAlive makes a live session last until a time, and its leases with it.
func (s State) keepAlive(id uuid.UUID, until int64) (State, Answer) {
	if lost := s.sessionLost(id); lost != (Answer{}) {
		return s, lost
	}
	session, _ := s.session(id)
	extends := until > session.ExpiresAt || until == session.ExpiresAt && until%1000 == 0 // by HTTP, in milliseconds
	if until != 0 && (!extends || until < session.CreatedAt+session.TTL.Microseconds()) {
		return s, Answer{Code: "a keepalive for the TTL"}
	}
	session.ExpiresAt = until
	move := func(lock store.Name, lease Lease) Lease {
		lease.ExpiresAt = until
		return s.limited(lock, lease)
	}
	return s.changeRunning(id, move).withSession(session),
		Answer{Code: CodeRenewed, Owner: session.Owner, Principal: session.Principal, TTL: session.TTL, ExpiresAt: until}
}

// endSession ends a session, releases its leases and closes their fences. The answer has how many leases ran.
func (s State) endSession(id uuid.UUID) (State, Answer) {
	session, ok := s.session(id)
	switch {
	case !ok:
		return s, Answer{Code: CodeNotFound}
	case session.End == Expired:
		return s.settled(id, Expired), Answer{Code: CodeSessionLost, Reason: string(Expired)}
	case session.End == Released:
		return s.settled(id, Released), Answer{Code: CodeReleased}
	}
	answer := Answer{Code: CodeReleased, Leases: s.leasesIn(id)}
	session.End = Released
	return s.withSession(session).settled(id, Released), answer
}

// sessionOver lets a session run out (Expired), and its leases with it; or be over because it is about to be ended
// (Released). Its waiters leave. Its leases are released only by endSession, or when it is noticed (sweep).
func (s State) sessionOver(id uuid.UUID, end End, at int64) State {
	session, ok := s.session(id)
	if !ok || session.End != Running {
		return s
	}
	session.End, session.ExpiresAt = end, at
	if s.has(WaitersLeaveWithIt) {
		s.queue = slices.DeleteFunc(slices.Clone(s.queue), func(w Op) bool { return w.Session == id })
	}
	if s = s.withSession(session); end == Released {
		return s
	}
	return s.changeRunning(id, func(_ store.Name, lease Lease) Lease {
		lease.End, lease.ExpiresAt = Expired, cmp.Or(at, lease.ExpiresAt)
		return lease
	})
}

// changeRunning changes the leases that run in a session.
func (s State) changeRunning(id uuid.UUID, change func(lock store.Name, lease Lease) Lease) State {
	for _, of := range s.resources {
		r := *of.resource
		for _, lease := range r.Running() {
			if lease.Session == id {
				r = r.with(change(of.name, lease))
			}
		}
		s = s.with(of.name, r)
	}
	return s
}

// sweep closes the fences of all leases of sessions that are over. It changes nothing else that anybody sees.
func (s State) sweep() State {
	for _, session := range s.sessions {
		if session.End != Running {
			s = s.settled(session.ID, session.End)
		}
	}
	return s
}

// settled ends the leases of a session that have not ended otherwise, and closes their fences.
func (s State) settled(id uuid.UUID, end End) State {
	s.queue = slices.DeleteFunc(slices.Clone(s.queue), func(w Op) bool { return w.Session == id })
	for _, of := range s.resources {
		r := s.Resource(of.name)
		for _, lease := range r.leases {
			if lease.Session == id && (lease.End == Running || lease.End == Expired && !lease.replaced && !lease.alone) {
				if lease.settled = true; lease.End == Running {
					lease.End = end
				}
				r = r.with(lease)
				if s.has(SessionClosesFences) {
					r = r.closed(lease.Token)
					s = s.closeAdopted(of.name, lease.Token)
				}
			}
		}
		s = s.with(of.name, r)
	}
	return s
}

func (s State) leasesIn(id uuid.UUID) int64 {
	leases := int64(0)
	for _, of := range s.resources {
		for _, lease := range of.resource.Running() {
			if lease.Session == id {
				leases++
			}
		}
	}
	return leases
}

// expire lets a lease run out, if it runs. The fence stays as it is. at is 0 where it runs out at the time that it had.
func (s State) expire(lock store.Name, token, at int64) State {
	lease, ok := s.Resource(lock).lease(token)
	if !ok || lease.End != Running {
		return s
	}
	lease.End, lease.alone = Expired, true
	lease.ExpiresAt = cmp.Or(at, lease.ExpiresAt)
	return s.withLease(lock, lease)
}

// holdOut lets a lease that runs reach its HoldUntil. The end of its session finds it expired.
func (s State) holdOut(lock store.Name, token, at int64) State {
	lease, ok := s.Resource(lock).lease(token)
	if !ok || lease.HoldUntil == 0 || lease.End != Running {
		return s
	}
	lease.ExpiresAt, lease.HoldUntil, lease.End, lease.alone = at, at, Expired, true
	return s.withLease(lock, lease)
}

// read is the answer to what changes nothing.
func (s State) read(op Op) Answer {
	switch op.Kind {
	case ReadLock:
		return s.lock(op.Name)
	case ReadFence:
		r, newest := s.Resource(op.Name), s.inForce(op.Name)
		if max(newest.token, r.LastToken) == 0 {
			return Answer{Code: CodeNotFound}
		}
		return Answer{Code: CodeFence, GrantedToken: newest.token, Open: newest.open, LastToken: r.LastToken,
			LastSequence: r.LastSequence, Policy: policyText(s.Policy(op.Name))}
	case ReadRecord:
		record, exists := s.Resource(op.Name).records[op.Key]
		if !exists {
			return Answer{Code: CodeNotFound}
		}
		return Answer{Code: CodeRecord, Version: record.Version, Record: record}
	case ReadSession:
		session, ok := s.session(op.Session)
		if !ok {
			return Answer{Code: CodeNotFound}
		}
		state := map[End]store.SessionState{
			Running: store.SessionLive, Expired: store.SessionExpired, Released: store.SessionEnded,
		}[session.End]
		return Answer{Code: string(state), Owner: session.Owner, Principal: session.Principal, TTL: session.TTL,
			ExpiresAt: session.ExpiresAt, Leases: s.leasesIn(op.Session)}
	}
	return Answer{Code: fmt.Sprintf("there is no operation %q", op.Kind)}
}

func (s State) lock(name store.Name) Answer {
	r := s.Resource(name)
	newest, ok := r.Newest()
	if !ok {
		return Answer{Code: CodeNotFound}
	}
	state, holders := store.LockFree, r.Running()
	switch {
	case len(holders) > 0:
		state = store.LockHeld
	case r.Open:
		state, holders = store.LockExpired, []Lease{newest}
	}
	answer := Answer{Code: string(state), Token: newest.Token}
	for i, holder := range holders {
		if i == 0 {
			answer.Owner, answer.Principal, answer.ExpiresAt = holder.Owner, holder.Principal, holder.ExpiresAt
		} else {
			answer.Others += beside(holder.Owner, holder.Token)
		}
	}
	return answer
}

// Reads are the operations that read everything that there is on some names, and all sessions.
func (s State) Reads(on []store.Name) []Op {
	var reads []Op
	for _, name := range on {
		reads = append(reads, Op{Kind: ReadLock, Name: name}, Op{Kind: ReadFence, Name: name})
		for _, key := range keys {
			reads = append(reads, Op{Kind: ReadRecord, Name: name, Key: key})
		}
	}
	for _, session := range s.sessions {
		reads = append(reads, Op{Kind: ReadSession, Session: session.ID})
	}
	return reads
}

func beside(owner string, token int64) string { return fmt.Sprintf("%s with %d;", owner, token) }

// moments are the states that time alone may have made: each set of the running leases of the names may have run out. The
// first is the state itself.
func (s State) moments(names []store.Name) []State {
	moments := []State{s}
	for _, name := range names {
		for _, lease := range s.Resource(name).Running() {
			for _, moment := range slices.Clone(moments) {
				moments = append(moments, moment.expire(name, lease.Token, 0))
			}
		}
	}
	return moments
}
