package spec

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

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
	lease.TTL = cmp.Or(op.TTL, lease.TTL)
	// It counts from a moment between the grant and the end of the lease.
	earliest, latest := lease.GrantedAt+lease.TTL.Microseconds(), lease.ExpiresAt+lease.TTL.Microseconds()
	if until != 0 && s.Policy(op.Name).MaxHold == 0 && op.TTL > 0 &&
		(until < earliest || lease.ExpiresAt != 0 && until >= latest) {
		return s, Answer{Code: "a renewal for the TTL"}
	}
	lease.ExpiresAt, lease.End = until, Running
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
			answer.ID, answer.TTL = uuid.Nil, 0 // which its provider may have renewed for another
			lease.End = Broken
			r = r.with(lease)
		}
	}
	if answer.Code == CodeNotFound {
		return s, answer
	}
	s = s.closeAdopted(lock, r.GrantedToken)
	r.Open = false
	return s.with(lock, r), answer
}

// isOutsideLimits reports whether an argument is refused, whatever the state.
func (o Op) isOutsideLimits() bool {
	switch o.Kind {
	case Acquire, OpenSession:
		return !isText(o.Owner, 1, 256) || !isText(o.Request, 0, 256) || !isTTL(o.TTL) || !isMetadata(o.Metadata) ||
			o.Session != uuid.Nil && o.TTL != 0 || o.Wait < 0 || o.Wait > 10*time.Minute ||
			o.Mode != "" && o.Mode != store.Exclusive && o.Mode != store.Shared ||
			o.Scope != "" && o.Scope != store.Node && o.Scope != store.Subtree
	case Renew:
		return !isTTL(o.TTL)
	case Break:
		return !isText(o.Reason, 0, 1024)
	}
	return false
}

// isText reports whether a text is UTF-8 without control characters, of so many bytes.
func isText(text string, least, most int) bool {
	return len(text) >= least && len(text) <= most && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// isTTL reports whether it is the TTL of a lease or session; 0 is the default.
func isTTL(ttl time.Duration) bool {
	return ttl == 0 || ttl >= 100*time.Millisecond && ttl <= 24*time.Hour && ttl%time.Millisecond == 0
}

// isMetadata reports whether a text is a JSON object; "" is none.
func isMetadata(text string) bool {
	return text == "" || strings.HasPrefix(text, "{") && json.Valid([]byte(text)) && len(text) <= 4096
}

// isByOwner reports whether the principal may use the owner's name, where a policy demands its own.
func (o Op) isByOwner() bool {
	return o.Principal == "" || o.Owner == o.Principal || strings.HasPrefix(o.Owner, o.Principal+"/")
}

// lasts reports whether what was granted lasts for the TTL that was asked for, where both are known.
func (c Choice) lasts(ttl time.Duration) bool {
	return c.Until == 0 || ttl == 0 || c.Until-c.GrantedAt == ttl.Microseconds()
}
