package storetest

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Acquire tries to take a lock. made is the lease that the provider gave out, if it gave one: its token must be greater than every token
// on the fence and on those above, and for a subtree on those below (P2); and it must not begin before the leases that it
// replaces have run out (P1).
func (w World) Acquire(request store.AcquireRequest, made Grant) (World, Told) {
	earlier, again := w.Resource(request.Lock).requested(request.RequestID)
	if request.SessionID != uuid.Nil && !again {
		session, ok := w.sessions[request.SessionID]
		switch {
		case !ok:
			return w, Told{Code: CodeNotFound}
		case session.End != Running:
			return w, Told{Code: CodeSessionLost, Reason: string(session.End)}
		}
	}
	if w.Policy(request.Lock).Authority == store.AuthorityExternal {
		return w, Told{Code: CodeExternal}
	}
	if again {
		return w, w.toldAgain(earlier, request)
	}
	asked := Grant{
		OwnerID: request.OwnerID, RequestID: request.RequestID, SessionID: request.SessionID,
		Mode: cmp.Or(request.Mode, store.Exclusive), Scope: cmp.Or(request.Scope, store.Node),
	}
	against := w.against(request.Lock, asked)
	if held, ok := w.longest(against); ok {
		return w, held
	}
	asked.Token, asked.ID, asked.TTL, asked.GrantedAt, asked.ExpiresAt = made.Token, made.ID, made.TTL, made.GrantedAt, made.ExpiresAt
	asked.AskedTTL = request.TTL
	asked = w.limited(request.Lock, asked)
	if made.Token <= w.newestToken(request.Lock, asked.Scope) {
		return w, Told{Code: "a grant, with a token greater than all before"}
	}
	for _, late := range against {
		if (late.End == Expired || late.End == HeldOut) && late.SessionID == uuid.Nil && made.GrantedAt < late.ExpiresAt {
			return w, Told{Code: "a grant, not before the lease that it replaces has expired"}
		}
	}
	return w.granted(request.Lock, asked), w.toldGrant(CodeGranted, asked)
}

// against are the leases that one could not run beside, whether they run or not: on the name itself, subtree leases above, and for a
// subtree all below.
func (w World) against(lock store.Name, asked Grant) []Grant {
	var against []Grant
	for _, of := range w.resources {
		for _, grant := range of.resource.grants {
			meets := of.name == lock || grant.Scope == store.Subtree && isBelow(lock, of.name) ||
				asked.Scope == store.Subtree && isBelow(of.name, lock)
			if meets && (grant.Mode == store.Exclusive || asked.Mode == store.Exclusive) {
				against = append(against, grant)
			}
		}
	}
	return against
}

// longest is what an acquire is told of the lease in the way that runs longest. Where it is not known which that is, the owner is
// Anybody.
func (w World) longest(against []Grant) (held Told, ok bool) {
	for _, grant := range against {
		until := w.until(grant)
		switch {
		case grant.End != Running:
		case !ok:
			held, ok = Told{Code: CodeHeld, Owner: grant.OwnerID, ExpiresAt: until}, true
		case held.ExpiresAt == 0 || until == 0 || until == held.ExpiresAt && grant.OwnerID != held.Owner:
			held.Owner, held.ExpiresAt = Anybody, 0
		case until > held.ExpiresAt:
			held.Owner, held.ExpiresAt = grant.OwnerID, until
		}
	}
	return held, ok
}

// newestToken is the greatest token that a grant must exceed.
func (w World) newestToken(lock store.Name, scope store.Scope) int64 {
	newest := int64(0)
	for _, of := range w.resources {
		switch {
		case of.name == lock, scope == store.Subtree && isBelow(of.name, lock):
			newest = max(newest, of.resource.GrantedToken, of.resource.LastToken)
		case isBelow(lock, of.name):
			newest = max(newest, of.resource.covering.token)
		}
	}
	return newest
}

// granted raises the fence. Only an exclusive lease may write. A subtree grant shuts out those who could still write below; and any grant
// on the name, those who could write below under the subtree grant before it.
func (w World) granted(lock store.Name, grant Grant) World {
	r := w.Resource(lock)
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
		for _, of := range w.resources {
			if isBelow(of.name, lock) && of.resource.Open {
				shut := *of.resource
				shut.Open = false
				w = w.With(of.name, shut)
			}
		}
	}
	return w.With(lock, r)
}

func (r Resource) requested(requestID string) (Grant, bool) {
	i := slices.IndexFunc(r.grants, func(g Grant) bool { return g.RequestID == requestID })
	if requestID == "" || i < 0 {
		return Grant{}, false
	}
	return r.grants[i], true
}

// toldAgain is the answer to an acquire with a request_id that was used before.
func (w World) toldAgain(grant Grant, request store.AcquireRequest) Told {
	switch {
	case grant.OwnerID != request.OwnerID, grant.SessionID != request.SessionID, grant.AskedTTL != request.TTL,
		grant.Mode != cmp.Or(request.Mode, store.Exclusive), grant.Scope != cmp.Or(request.Scope, store.Node):
		return Told{Code: CodeInvalid}
	case grant.End != Running:
		return Told{Code: CodeLost, Reason: string(grant.End)}
	}
	return w.toldGrant(CodeGranted, grant)
}

func (w World) toldGrant(code string, grant Grant) Told {
	return Told{Code: code, Token: grant.Token, ID: grant.ID, Owner: grant.OwnerID, ExpiresAt: w.until(grant)}
}

// standing is how the lease that a client names stands: live, not_found, or the reason for which it is lost.
func (w World) standing(ref store.LeaseRef) (Grant, string) {
	r := w.Resource(ref.Lock)
	if r.GrantedToken == 0 {
		return Grant{}, CodeNotFound
	}
	grant, ok := r.grant(ref.Token)
	switch {
	case !ok && ref.Token < r.GrantedToken:
		return Grant{}, "superseded" // of a lease this old nothing else is remembered
	case !ok, grant.ID != ref.ID || grant.OwnerID != ref.OwnerID:
		return Grant{}, "mismatch"
	case grant.End == Released || grant.End == Broken || grant.End == HeldOut:
		return grant, string(grant.End)
	case grant.End == Running:
		return grant, "live"
	case grant.Token < r.GrantedToken, grant.Token < w.inForce(ref.Lock).token:
		return grant, "superseded"
	}
	return grant, "expired"
}

// Renew makes a live lease last until expiresAt, in microseconds: the time that the provider gave it, 0 if that is not known.
func (w World) Renew(ref store.LeaseRef, ttl time.Duration, expiresAt int64) (World, Told) {
	grant, standing := w.standing(ref)
	switch {
	case standing != "live":
		return w, lost(standing)
	case grant.SessionID != uuid.Nil:
		return w, Told{Code: CodeInvalid}
	}
	grant.ExpiresAt = expiresAt
	if ttl != 0 {
		grant.TTL = ttl
	}
	grant = w.limited(ref.Lock, grant)
	return w.With(ref.Lock, w.Resource(ref.Lock).with(grant)), w.toldGrant(CodeRenewed, grant)
}

// limited is a lease that lasts no longer after its grant than the policy says.
func (w World) limited(lock store.Name, grant Grant) Grant {
	grant.HoldUntil = 0
	if limit := w.Policy(lock).MaxHold; limit > 0 {
		grant.HoldUntil = grant.GrantedAt + limit.Microseconds()
		grant.ExpiresAt = min(grant.ExpiresAt, grant.HoldUntil)
	}
	return grant
}

// HoldOut lets a lease that has a HoldUntil reach it, at a time in microseconds, and closes its fence. One that has expired and that somebody
// has replaced is left as it is.
func (w World) HoldOut(lock store.Name, token, at int64) World {
	r := w.Resource(lock)
	grant, ok := r.grant(token)
	late := grant.End == Expired && r.Open && r.GrantedToken == token
	if !ok || grant.HoldUntil == 0 || grant.End != Running && !late {
		return w
	}
	if grant.End == Running {
		grant.ExpiresAt = at
	}
	grant.End = HeldOut
	return w.With(lock, r.with(grant).closed(token))
}

// Release ends a lease, live or late, and closes the fence behind it.
func (w World) Release(ref store.LeaseRef) (World, Told) {
	grant, standing := w.standing(ref)
	switch standing {
	case "released":
		return w, Told{Code: CodeReleased}
	case "live", "expired":
		grant.End = Released
		return w.With(ref.Lock, w.Resource(ref.Lock).with(grant).closed(grant.Token)), Told{Code: CodeReleased}
	}
	return w, lost(standing)
}

// Break ends all leases that run on the lock, or that of a late holder who may still write, and closes the fence. Told is the newest.
func (w World) Break(lock store.Name) (World, Told) {
	r := w.Resource(lock)
	told := Told{Code: CodeNotFound}
	for _, grant := range r.grants {
		if grant.End == Running || r.Open && grant.Token == r.GrantedToken {
			told = w.toldGrant(CodeBroken, grant)
			told.ID = uuid.Nil
			grant.End = Broken
			r = r.with(grant)
		}
	}
	if told.Code == CodeNotFound {
		return w, told
	}
	r.Open, r.covering.open = false, false
	return w.With(lock, r), told
}

// Lock tells how the lock stands.
func (w World) Lock(lock store.Name) Told {
	r := w.Resource(lock)
	newest, ok := r.Newest()
	if !ok {
		return Told{Code: CodeNotFound}
	}
	state, holders := store.LockFree, r.Running()
	switch {
	case len(holders) > 0:
		state = store.LockHeld
	case r.Open:
		state, holders = store.LockExpired, []Grant{newest}
	}
	told := Told{Code: string(state), Token: newest.Token}
	for i, holder := range holders {
		if i == 0 {
			told.Owner, told.ExpiresAt = holder.OwnerID, w.until(holder)
		} else {
			told.Others += beside(holder.OwnerID, holder.Token)
		}
	}
	return told
}

func lost(standing string) Told {
	if standing == CodeNotFound {
		return Told{Code: CodeNotFound}
	}
	return Told{Code: CodeLost, Reason: standing}
}

// isBelow reports whether a name is below another one.
func isBelow(name, above store.Name) bool { return strings.HasPrefix(string(name), string(above)+"/") }
