package storetest

import (
	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Session is one heartbeat for many leases, and what became of it.
type Session struct {
	OwnerID   string
	ExpiresAt int64 // microseconds by the database's clock; 0: unknown, since the answer to a heartbeat was lost
	End       End
}

// WithSession returns the model in which a provider has made a session.
func (m Model) WithSession(session store.Session) Model {
	return m.withSession(session.ID, Session{OwnerID: session.OwnerID, ExpiresAt: session.ExpiresAt.UnixMicro()})
}

func (m Model) withSession(id uuid.UUID, session Session) Model {
	m.sessions = cloned(m.sessions)
	m.sessions[id] = session
	return m
}

// Live reports whether there is a session, and it is not over.
func (m Model) Live(id uuid.UUID) bool {
	session, ok := m.sessions[id]
	return ok && session.End == Running
}

// until is when a lease runs out, in microseconds: at its own time, or with its session, if that is before its
// HoldUntil.
func (m Model) until(grant Grant) int64 {
	if session, ok := m.sessions[grant.SessionID]; ok {
		if grant.HoldUntil > 0 {
			return min(session.ExpiresAt, grant.HoldUntil)
		}
		return session.ExpiresAt
	}
	return grant.ExpiresAt
}

// Expire lets a lease run out now, if it runs and is in no session. The fence stays as it is.
func (m Model) Expire(lock store.Name, token int64) Model {
	r := m.Resource(lock)
	grant, ok := r.grant(token)
	if !ok || grant.End != Running || grant.SessionID != uuid.Nil {
		return m
	}
	grant.End = Expired
	return m.With(lock, r.with(grant))
}

// ExpireAt is Expire where the end of the lease was moved to a known time, in microseconds.
func (m Model) ExpireAt(lock store.Name, token, at int64) Model {
	m = m.Expire(lock, token)
	r := m.Resource(lock)
	grant, ok := r.grant(token)
	if !ok || grant.End != Expired {
		return m
	}
	grant.ExpiresAt = at
	return m.With(lock, r.with(grant))
}

// SessionOver lets a session run out (Expired), or be over because it is about to be ended (Released), at a time in
// microseconds; and all its leases run out with it. Their fences are closed only by EndSession, or when it is noticed
// ([Model.Settle]).
func (m Model) SessionOver(id uuid.UUID, end End, at int64) Model {
	session := m.sessions[id]
	if session.End != Running {
		return m
	}
	session.End, session.ExpiresAt = end, at
	return m.withSession(id, session).changeRunning(id, func(_ store.Name, grant Grant) Grant {
		grant.End = Expired
		return grant
	})
}

// changeRunning changes the leases that run in a session.
func (m Model) changeRunning(id uuid.UUID, change func(lock store.Name, grant Grant) Grant) Model {
	for _, of := range m.resources {
		r := *of.resource
		for _, grant := range r.Running() {
			if grant.SessionID == id {
				r = r.with(change(of.name, grant))
			}
		}
		m = m.With(of.name, r)
	}
	return m
}

// Settle does what a sweep does: it closes the fences of all leases of sessions that are over.
func (m Model) Settle() Model {
	for id, session := range m.sessions {
		if session.End != Running {
			m = m.settled(id, session.End)
		}
	}
	return m
}

// settled ends the leases of a session that have not ended otherwise, and closes their fences.
func (m Model) settled(id uuid.UUID, end End) Model {
	for _, of := range m.resources {
		r := *of.resource
		for _, grant := range r.grants {
			if grant.SessionID == id && (grant.End == Running || grant.End == Expired && !grant.replaced && !grant.heldOut) {
				grant.End, grant.settled = end, true
				r = r.with(grant).closed(grant.Token)
			}
		}
		m = m.With(of.name, r)
	}
	return m
}

// KeepAlive makes a live session last until expiresAt, in microseconds, and its leases with it.
func (m Model) KeepAlive(id uuid.UUID, expiresAt int64) (Model, Answer) {
	session, ok := m.sessions[id]
	switch {
	case !ok:
		return m, Answer{Code: CodeNotFound}
	case session.End != Running:
		return m, Answer{Code: CodeSessionLost, Reason: string(session.End)}
	}
	session.ExpiresAt = expiresAt
	return m.changeRunning(id, m.limited).withSession(id, session), Answer{Code: CodeRenewed, Owner: session.OwnerID, ExpiresAt: expiresAt}
}

// EndSession ends a session, releases its leases and closes their fences. The answer has how many leases ran.
func (m Model) EndSession(id uuid.UUID) (Model, Answer) {
	session, ok := m.sessions[id]
	switch {
	case !ok:
		return m, Answer{Code: CodeNotFound}
	case session.End == Expired:
		return m.settled(id, Expired), Answer{Code: CodeSessionLost, Reason: string(Expired)}
	case session.End == Released:
		return m.settled(id, Released), Answer{Code: CodeReleased}
	}
	answer := Answer{Code: CodeReleased, Leases: m.leasesIn(id)}
	session.End = Released
	return m.withSession(id, session).settled(id, Released), answer
}

// Session is the answer to Session.
func (m Model) Session(id uuid.UUID) Answer {
	session, ok := m.sessions[id]
	if !ok {
		return Answer{Code: CodeNotFound}
	}
	state := map[End]store.SessionState{
		Running: store.SessionLive, Expired: store.SessionExpired, Released: store.SessionEnded,
	}[session.End]
	return Answer{Code: string(state), Owner: session.OwnerID, ExpiresAt: session.ExpiresAt, Leases: m.leasesIn(id)}
}

func (m Model) leasesIn(id uuid.UUID) int64 {
	leases := int64(0)
	for _, of := range m.resources {
		for _, grant := range of.resource.Running() {
			if grant.SessionID == id {
				leases++
			}
		}
	}
	return leases
}
