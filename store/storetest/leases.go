package storetest

import (
	"slices"
	"time"

	"github.com/fencegate/fencegate/store"
)

// Acquire takes the lock. made is the lease that the provider gave out, if it gave one: its token must be greater
// than every token on the fence (P2), and it must not begin before the lease that it replaces has run out (P1).
func (r Resource) Acquire(request store.AcquireRequest, policy store.Policy, made Grant) (Resource, Told) {
	if policy.Authority == store.AuthorityExternal {
		return r, Told{Code: CodeExternal}
	}
	if earlier, ok := r.requested(request.RequestID); ok {
		return r, earlier.toldAgain(request.OwnerID)
	}
	newest, ok := r.Newest()
	if ok && newest.End == Running {
		return r, Told{Code: CodeHeld, Owner: newest.OwnerID, ExpiresAt: newest.ExpiresAt}
	}
	if made.Token <= max(r.GrantedToken, r.LastToken) {
		return r, Told{Code: "a grant, with a token greater than all before"}
	}
	if ok && newest.End == Expired && made.GrantedAt < newest.ExpiresAt {
		return r, Told{Code: "a grant, not before the lease that it replaces has expired"}
	}
	made.OwnerID, made.RequestID, made.End = request.OwnerID, request.RequestID, Running
	r.grants = append(slices.Clip(r.grants), made)
	r.GrantedToken, r.Open = made.Token, true
	return r, Told{Code: CodeGranted, Token: made.Token, ID: made.ID, Owner: made.OwnerID, ExpiresAt: made.ExpiresAt}
}

func (r Resource) requested(requestID string) (Grant, bool) {
	i := slices.IndexFunc(r.grants, func(g Grant) bool { return g.RequestID == requestID })
	if requestID == "" || i < 0 {
		return Grant{}, false
	}
	return r.grants[i], true
}

// toldAgain is the answer to an acquire with a request_id that was used before.
func (g Grant) toldAgain(owner string) Told {
	switch {
	case g.OwnerID != owner:
		return Told{Code: CodeInvalid}
	case g.End != Running:
		return Told{Code: CodeLost, Reason: string(g.End)}
	}
	return Told{Code: CodeGranted, Token: g.Token, ID: g.ID, Owner: g.OwnerID, ExpiresAt: g.ExpiresAt}
}

// standing is how the lease that a client names stands: live, not_found, or the reason for which it is lost.
func (r Resource) standing(ref store.LeaseRef) (Grant, string) {
	if r.GrantedToken == 0 {
		return Grant{}, CodeNotFound
	}
	i := slices.IndexFunc(r.grants, func(g Grant) bool { return g.Token == ref.Token })
	if i < 0 {
		if ref.Token < r.GrantedToken {
			return Grant{}, "superseded" // of a lease this old nothing else is remembered
		}
		return Grant{}, "mismatch"
	}
	grant := r.grants[i]
	switch {
	case grant.ID != ref.ID || grant.OwnerID != ref.OwnerID:
		return grant, "mismatch"
	case grant.End == Released || grant.End == Broken:
		return grant, string(grant.End)
	case grant.Token < r.GrantedToken:
		return grant, "superseded"
	case grant.End == Expired:
		return grant, "expired"
	}
	return grant, "live"
}

// Renew makes a live lease last until expiresAt, in microseconds: the time that the provider gave it, 0 if that is not known.
func (r Resource) Renew(ref store.LeaseRef, ttl time.Duration, expiresAt int64) (Resource, Told) {
	grant, standing := r.standing(ref)
	if standing != "live" {
		return r, lost(standing)
	}
	grant.ExpiresAt = expiresAt
	if ttl != 0 {
		grant.TTL = ttl
	}
	return r.with(grant), Told{Code: CodeRenewed, Token: grant.Token, ID: grant.ID, Owner: grant.OwnerID, ExpiresAt: expiresAt}
}

// Release ends a lease, live or late, and closes the fence behind it.
func (r Resource) Release(ref store.LeaseRef) (Resource, Told) {
	grant, standing := r.standing(ref)
	switch standing {
	case "released":
		return r, Told{Code: CodeReleased}
	case "live", "expired":
		grant.End = Released
		r = r.with(grant)
		r.Open = false
		return r, Told{Code: CodeReleased}
	}
	return r, lost(standing)
}

// Break ends the lease of whoever may write, and closes the fence.
func (r Resource) Break() (Resource, Told) {
	newest, ok := r.Newest()
	if !ok || !r.Open {
		return r, Told{Code: CodeNotFound}
	}
	newest.End = Broken
	r = r.with(newest)
	r.Open = false
	return r, Told{Code: CodeBroken, Token: newest.Token, Owner: newest.OwnerID, ExpiresAt: newest.ExpiresAt}
}

// Lock tells how the lock stands.
func (r Resource) Lock() Told {
	newest, ok := r.Newest()
	switch {
	case !ok:
		return Told{Code: CodeNotFound}
	case newest.End == Running:
		return Told{Code: string(store.LockHeld), Token: newest.Token, Owner: newest.OwnerID, ExpiresAt: newest.ExpiresAt}
	case r.Open:
		return Told{Code: string(store.LockExpired), Token: newest.Token, Owner: newest.OwnerID, ExpiresAt: newest.ExpiresAt}
	}
	return Told{Code: string(store.LockFree), Token: newest.Token}
}

func lost(standing string) Told {
	if standing == CodeNotFound {
		return Told{Code: CodeNotFound}
	}
	return Told{Code: CodeLost, Reason: standing}
}
