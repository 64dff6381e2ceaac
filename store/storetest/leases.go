package storetest

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Acquire tries to take a lock. made is the lease that the provider gave out, if it gave one: its token must be greater
// than every token on the fence and on those above, and for a subtree on those below (P2); and it must not begin before
// the leases that it replaces have run out (P1).
func (m Model) Acquire(request store.AcquireRequest, made Grant) (Model, Answer) {
	earlier, again := m.Resource(request.Lock).requested(request.RequestID)
	if request.SessionID != uuid.Nil && !again {
		session, ok := m.sessions[request.SessionID]
		switch {
		case !ok:
			return m, Answer{Code: CodeNotFound}
		case session.End != Running:
			return m, Answer{Code: CodeSessionLost, Reason: string(session.End)}
		}
	}
	if m.Policy(request.Lock).Authority == store.AuthorityExternal {
		return m, Answer{Code: CodeExternal}
	}
	if again {
		return m, m.answerAgain(earlier, request)
	}
	requested := Grant{
		OwnerID: request.OwnerID, RequestID: request.RequestID, SessionID: request.SessionID,
		Mode: cmp.Or(request.Mode, store.Exclusive), Scope: cmp.Or(request.Scope, store.Node),
	}
	against := m.against(request.Lock, requested)
	if held, ok := m.longest(against); ok {
		return m, held
	}
	requested.Token, requested.ID, requested.TTL = made.Token, made.ID, made.TTL
	requested.GrantedAt, requested.ExpiresAt = made.GrantedAt, made.ExpiresAt
	requested.AskedTTL = request.TTL
	requested = m.limited(request.Lock, requested)
	if made.Token <= m.newestToken(request.Lock, requested.Scope) {
		return m, Answer{Code: "a grant, with a token greater than all before"}
	}
	for _, late := range against {
		if late.End == Expired && late.SessionID == uuid.Nil && made.GrantedAt < late.ExpiresAt {
			return m, Answer{Code: "a grant, not before the lease that it replaces has expired"}
		}
	}
	return m.granted(request.Lock, requested), m.grantAnswer(CodeGranted, requested)
}

// against are the leases that one could not run beside, whether they run or not: on the name itself, subtree leases
// above, and for a subtree all below.
func (m Model) against(lock store.Name, requested Grant) []Grant {
	var against []Grant
	for _, of := range m.resources {
		for _, grant := range of.resource.grants {
			meets := of.name == lock || grant.Scope == store.Subtree && isBelow(lock, of.name) ||
				requested.Scope == store.Subtree && isBelow(of.name, lock)
			if meets && (grant.Mode == store.Exclusive || requested.Mode == store.Exclusive) {
				against = append(against, grant)
			}
		}
	}
	return against
}

// longest is the answer to an acquire with the lease in its way that runs longest. If that is not known, the owner is
// Anybody.
func (m Model) longest(against []Grant) (held Answer, ok bool) {
	for _, grant := range against {
		until := m.until(grant)
		switch {
		case grant.End != Running:
		case !ok:
			held, ok = Answer{Code: CodeHeld, Owner: grant.OwnerID, ExpiresAt: until}, true
		case held.ExpiresAt == 0 || until == 0 || until == held.ExpiresAt && grant.OwnerID != held.Owner:
			held.Owner, held.ExpiresAt = Anybody, 0
		case until > held.ExpiresAt:
			held.Owner, held.ExpiresAt = grant.OwnerID, until
		}
	}
	return held, ok
}

// newestToken is the greatest token that a grant must exceed.
func (m Model) newestToken(lock store.Name, scope store.Scope) int64 {
	newest := int64(0)
	for _, of := range m.resources {
		switch {
		case of.name == lock, scope == store.Subtree && isBelow(of.name, lock):
			newest = max(newest, of.resource.GrantedToken, of.resource.LastToken)
		case isBelow(lock, of.name):
			newest = max(newest, of.resource.covering.token)
		}
	}
	return newest
}

// granted raises the fence. Only an exclusive lease may write. A subtree grant shuts out those that could still write
// below; and any grant on the name, those that could write below under the subtree grant before it.
func (m Model) granted(lock store.Name, grant Grant) Model {
	r := m.Resource(lock)
	for _, late := range r.grants {
		if late.End == Expired && (late.Mode == store.Exclusive || grant.Mode == store.Exclusive) {
			late.replaced = true
			r = r.with(late)
		}
	}
	r.grants = append(slices.Clip(r.grants), grant)
	r.GrantedToken, r.Open = grant.Token, grant.Mode == store.Exclusive
	r.covering.open = false
	if grant.Scope == store.Subtree {
		r.covering = covering{grant.Token, r.Open}
		for _, of := range m.resources {
			if isBelow(of.name, lock) && of.resource.Open {
				shut := *of.resource
				shut.Open = false
				m = m.With(of.name, shut)
			}
		}
	}
	return m.With(lock, r)
}

func (r Resource) requested(requestID string) (Grant, bool) {
	i := slices.IndexFunc(r.grants, func(g Grant) bool { return g.RequestID == requestID })
	if requestID == "" || i < 0 {
		return Grant{}, false
	}
	return r.grants[i], true
}

// answerAgain is the answer to an acquire with a request_id that was used before.
func (m Model) answerAgain(grant Grant, request store.AcquireRequest) Answer {
	switch {
	case grant.OwnerID != request.OwnerID, grant.SessionID != request.SessionID, grant.AskedTTL != request.TTL,
		grant.Mode != cmp.Or(request.Mode, store.Exclusive), grant.Scope != cmp.Or(request.Scope, store.Node):
		return Answer{Code: CodeInvalid}
	case grant.End != Running:
		return Answer{Code: CodeLost, Reason: string(grant.End)}
	}
	return m.grantAnswer(CodeGranted, grant)
}

func (m Model) grantAnswer(code string, grant Grant) Answer {
	return Answer{Code: code, Token: grant.Token, ID: grant.ID, Owner: grant.OwnerID, ExpiresAt: m.until(grant)}
}

// leaseStatus is the status of the lease that a client names: live, not_found, or the reason for which it is lost.
func (m Model) leaseStatus(ref store.LeaseRef) (Grant, string) {
	r := m.Resource(ref.Lock)
	if r.GrantedToken == 0 {
		return Grant{}, CodeNotFound
	}
	grant, ok := r.grant(ref.Token)
	switch {
	case !ok && ref.Token < r.GrantedToken:
		return Grant{}, "superseded" // of a lease this old nothing else is remembered
	case !ok, grant.ID != ref.ID || grant.OwnerID != ref.OwnerID:
		return Grant{}, "mismatch"
	case grant.End == Released || grant.End == Broken:
		return grant, string(grant.End)
	case grant.End == Running:
		return grant, "live"
	case grant.Token < r.GrantedToken, grant.Token < m.inForce(ref.Lock).token:
		return grant, "superseded"
	}
	return grant, "expired"
}

// Renew makes a live lease last until expiresAt, in microseconds: the time that the provider gave it, 0 if that is not
// known.
func (m Model) Renew(ref store.LeaseRef, ttl time.Duration, expiresAt int64) (Model, Answer) {
	grant, status := m.leaseStatus(ref)
	switch {
	case status != "live":
		return m, lost(status)
	case grant.SessionID != uuid.Nil:
		return m, Answer{Code: CodeInvalid}
	}
	grant.ExpiresAt = expiresAt
	if ttl != 0 {
		grant.TTL = ttl
	}
	grant = m.limited(ref.Lock, grant)
	return m.With(ref.Lock, m.Resource(ref.Lock).with(grant)), m.grantAnswer(CodeRenewed, grant)
}

// limited is a lease that lasts no longer after its grant than the policy says.
func (m Model) limited(lock store.Name, grant Grant) Grant {
	grant.HoldUntil = 0
	if limit := m.Policy(lock).MaxHold; limit > 0 {
		grant.HoldUntil = grant.GrantedAt + limit.Microseconds()
		grant.ExpiresAt = min(grant.ExpiresAt, grant.HoldUntil)
	}
	return grant
}

// HoldOut lets a lease that runs reach its HoldUntil, at a time in microseconds. The end of its session finds it expired.
func (m Model) HoldOut(lock store.Name, token, at int64) Model {
	r := m.Resource(lock)
	grant, ok := r.grant(token)
	if !ok || grant.HoldUntil == 0 || grant.End != Running {
		return m
	}
	grant.ExpiresAt, grant.End, grant.heldOut = at, Expired, true
	return m.With(lock, r.with(grant))
}

// Release ends a lease, live or late, and closes the fence behind it.
func (m Model) Release(ref store.LeaseRef) (Model, Answer) {
	grant, status := m.leaseStatus(ref)
	switch status {
	case "released":
		return m, Answer{Code: CodeReleased}
	case "live", "expired":
		grant.End = Released
		return m.With(ref.Lock, m.Resource(ref.Lock).with(grant).closed(grant.Token)), Answer{Code: CodeReleased}
	}
	return m, lost(status)
}

// Break ends all leases that run on the lock, or that of a late holder that may still write, and closes the fence.
// The answer is the newest.
func (m Model) Break(lock store.Name) (Model, Answer) {
	r := m.Resource(lock)
	answer := Answer{Code: CodeNotFound}
	for _, grant := range r.grants {
		if grant.End == Running || r.Open && grant.Token == r.GrantedToken {
			answer = m.grantAnswer(CodeBroken, grant)
			answer.ID = uuid.Nil
			grant.End = Broken
			r = r.with(grant)
		}
	}
	if answer.Code == CodeNotFound {
		return m, answer
	}
	r.Open, r.covering.open = false, false
	return m.With(lock, r), answer
}

// Lock is the answer to Lock.
func (m Model) Lock(lock store.Name) Answer {
	r := m.Resource(lock)
	newest, ok := r.Newest()
	if !ok {
		return Answer{Code: CodeNotFound}
	}
	state, holders := store.LockFree, r.Running()
	switch {
	case len(holders) > 0:
		state = store.LockHeld
	case r.Open:
		state, holders = store.LockExpired, []Grant{newest}
	}
	answer := Answer{Code: string(state), Token: newest.Token}
	for i, holder := range holders {
		if i == 0 {
			answer.Owner, answer.ExpiresAt = holder.OwnerID, m.until(holder)
		} else {
			answer.Others += beside(holder.OwnerID, holder.Token)
		}
	}
	return answer
}

func lost(status string) Answer {
	if status == CodeNotFound {
		return Answer{Code: CodeNotFound}
	}
	return Answer{Code: CodeLost, Reason: status}
}

// isBelow reports whether a name is below another one.
func isBelow(name, above store.Name) bool { return strings.HasPrefix(string(name), string(above)+"/") }
