package storetest

import (
	"maps"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Session is one heartbeat for many leases, and what became of it.
type Session struct {
	OwnerID   string
	ExpiresAt int64 // microseconds by the database's clock; 0: unknown, since the answer to a heartbeat was lost
	End       End
}

// WithSession returns the world in which a provider has made a session.
func (w World) WithSession(session store.Session) World {
	return w.withSession(session.ID, Session{OwnerID: session.OwnerID, ExpiresAt: session.ExpiresAt.UnixMicro()})
}

func (w World) withSession(id uuid.UUID, session Session) World {
	w.sessions = maps.Clone(w.sessions)
	if w.sessions == nil {
		w.sessions = map[uuid.UUID]Session{}
	}
	w.sessions[id] = session
	return w
}

// LiveSessions returns the sessions that are not over, in no order.
func (w World) LiveSessions() []uuid.UUID {
	var live []uuid.UUID
	for id, session := range w.sessions {
		if session.End == Running {
			live = append(live, id)
		}
	}
	return live
}

// until is when a lease runs out, in microseconds: at its own time, or with its session, if that is before its HoldUntil.
func (w World) until(grant Grant) int64 {
	if session, ok := w.sessions[grant.SessionID]; ok {
		if grant.HoldUntil > 0 {
			return min(session.ExpiresAt, grant.HoldUntil)
		}
		return session.ExpiresAt
	}
	return grant.ExpiresAt
}

// Expire lets a lease run out now, if it runs and is in no session. The fence stays as it is.
func (w World) Expire(lock store.Name, token int64) World {
	r := w.Resource(lock)
	grant, ok := r.grant(token)
	if !ok || grant.End != Running || grant.SessionID != uuid.Nil {
		return w
	}
	grant.End = Expired
	return w.With(lock, r.with(grant))
}

// ExpireAt is Expire where the end of the lease was moved to a known time, in microseconds.
func (w World) ExpireAt(lock store.Name, token, at int64) World {
	w = w.Expire(lock, token)
	r := w.Resource(lock)
	grant, ok := r.grant(token)
	if !ok || grant.End != Expired {
		return w
	}
	grant.ExpiresAt = at
	return w.With(lock, r.with(grant))
}

// SessionOver lets a session run out (Expired), or be over because somebody is about to end it (Released), at a time in microseconds;
// and all its leases run out with it. Their fences are closed only by EndSession, or when it is noticed ([World.Settle]).
func (w World) SessionOver(id uuid.UUID, end End, at int64) World {
	session := w.sessions[id]
	if session.End != Running {
		return w
	}
	session.End, session.ExpiresAt = end, at
	w = w.withSession(id, session)
	for _, of := range w.resources {
		r := *of.resource
		for _, grant := range r.Running() {
			if grant.SessionID == id {
				grant.End = Expired
				r = r.with(grant)
			}
		}
		w = w.With(of.name, r)
	}
	return w
}

// Settle closes the fences of all leases of sessions that are over.
func (w World) Settle() World {
	for id, session := range w.sessions {
		if session.End != Running {
			w = w.settled(id, session.End)
		}
	}
	return w
}

// settled ends the leases of a session that have not ended otherwise, and closes their fences.
func (w World) settled(id uuid.UUID, end End) World {
	for _, of := range w.resources {
		r := *of.resource
		for _, grant := range r.grants {
			if grant.SessionID == id && (grant.End == Running || grant.End == Expired && !grant.replaced) {
				grant.End = end
				r = r.with(grant).closed(grant.Token)
			}
		}
		w = w.With(of.name, r)
	}
	return w
}

// KeepAlive makes a live session last until expiresAt, in microseconds, and its leases with it.
func (w World) KeepAlive(id uuid.UUID, expiresAt int64) (World, Told) {
	session, ok := w.sessions[id]
	switch {
	case !ok:
		return w, Told{Code: CodeNotFound}
	case session.End != Running:
		return w, Told{Code: CodeSessionLost, Reason: string(session.End)}
	}
	session.ExpiresAt = expiresAt
	for _, of := range w.resources {
		r := *of.resource
		for _, grant := range r.Running() {
			if grant.SessionID == id {
				r = r.with(w.limited(of.name, grant))
			}
		}
		w = w.With(of.name, r)
	}
	return w.withSession(id, session), Told{Code: CodeRenewed, Owner: session.OwnerID, ExpiresAt: expiresAt}
}

// EndSession ends a session, releases its leases and closes their fences. It tells how many leases ran.
func (w World) EndSession(id uuid.UUID) (World, Told) {
	session, ok := w.sessions[id]
	switch {
	case !ok:
		return w, Told{Code: CodeNotFound}
	case session.End == Expired:
		return w.settled(id, Expired), Told{Code: CodeSessionLost, Reason: string(Expired)}
	case session.End == Released:
		return w.settled(id, Released), Told{Code: CodeReleased}
	}
	told := Told{Code: CodeReleased, Leases: w.leasesIn(id)}
	session.End = Released
	return w.withSession(id, session).settled(id, Released), told
}

// Session tells how a session stands and how many leases run in it.
func (w World) Session(id uuid.UUID) Told {
	session, ok := w.sessions[id]
	if !ok {
		return Told{Code: CodeNotFound}
	}
	state := map[End]store.SessionState{
		Running: store.SessionLive, Expired: store.SessionExpired, Released: store.SessionEnded,
	}[session.End]
	return Told{Code: string(state), Owner: session.OwnerID, ExpiresAt: session.ExpiresAt, Leases: w.leasesIn(id)}
}

func (w World) leasesIn(id uuid.UUID) int64 {
	leases := int64(0)
	for _, of := range w.resources {
		for _, grant := range of.resource.Running() {
			if grant.SessionID == id {
				leases++
			}
		}
	}
	return leases
}
