package storetest

import (
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// by is a request of a principal, which is sent more than once.
func (s *suite) by(principal, owner string) store.AcquireRequest {
	request := s.request(owner)
	request.Principal = principal
	return request
}

// requestOfAnotherPrincipal takes over a lease by all that is shown of it: it is not had by its request_id, neither while
// it runs nor after its end (P6).
func (s *suite) requestOfAnotherPrincipal() {
	for _, end := range []struct {
		reason string
		how    func(store.Lease)
	}{
		{"released", s.released},
		{"broken", func(store.Lease) { s.broken() }},
	} {
		asked := s.by("a", "A")
		asked.RequestID = end.reason
		lease := s.granted(asked)
		taken := asked
		taken.Principal = "b"
		waits := taken
		waits.Wait = time.Millisecond
		for _, request := range []store.AcquireRequest{taken, waits} {
			s.fails(request, store.ErrInvalid)
		}
		if again := s.granted(asked); again.Ref() != lease.Ref() || again.Principal != "a" {
			s.Errorf("sent again, the request for %+v was granted %+v", lease, again)
		}
		s.heldBy(lease)
		end.how(lease)
		s.fails(taken, store.ErrInvalid)
		_, err := s.Acquire(s.Context(), asked)
		s.lost(err, end.reason)
		s.free()
	}
}

// ownerPolicy sets the policy that the owner is the principal, after it was granted a lease: every acquire is judged by
// it first, also one that is sent again, would be refused, or would wait.
func (s *suite) ownerPolicy() {
	asked := s.by("bob", "alice")
	lease := s.granted(asked)
	s.policy(store.Policy{RequirePrincipalOwner: true})
	for owner, allowed := range map[string]bool{
		"bob": true, "bob/1": true, "bob/": true, "bobby": false, "Bob": false, "alice": false, "alice/bob": false,
	} {
		request := store.AcquireRequest{Lock: s.lock, OwnerID: owner, Principal: "bob"}
		below := request
		below.Lock += store.Name("/" + uuid.NewString())
		waits := request
		waits.Wait = time.Millisecond
		if allowed {
			s.refused(request, "alice")
			s.granted(below)
			continue
		}
		for _, request := range []store.AcquireRequest{request, below, waits} {
			s.fails(request, store.ErrInvalid)
		}
	}
	s.fails(asked, store.ErrInvalid)
	s.refused(store.AcquireRequest{Lock: s.lock, OwnerID: "anybody"}, "alice") // of a gateway that asks for no credential
	s.heldBy(lease)
	if _, err := s.Renew(s.Context(), lease.Ref(), long); err != nil {
		s.Errorf("a renewal of the lease that was granted before: %v", err)
	}
	s.released(lease)
}

// holderShown looks at another's lease: its owner and principal are shown, and not what renews or releases it.
func (s *suite) holderShown() {
	lease := s.granted(s.by("a", "A"))
	held := s.refused(store.AcquireRequest{Lock: s.lock, OwnerID: "B", Principal: "b"}, "A")
	if held.Principal != "a" || held.By != "" && held.By != s.lock {
		s.Errorf("%+v was refused as %+v, want it held by the principal a", lease, held)
	}
	holder := s.look().Holder()
	if holder == nil || holder.Principal != "a" || holder.ID != uuid.Nil || holder.SessionID != uuid.Nil {
		s.Errorf("%+v is seen as held by %+v, want the principal a and no lease_id", lease, holder)
	}
	if broken := s.broken(); broken.Principal != "a" || broken.Token != lease.Token {
		s.Errorf("broken is %+v, want %+v", broken, lease)
	}
	s.renewalLost(lease, "broken")
}

// sessionOfAnother acquires in a session by the principal that has it. Another can't have the lease by the request_id.
func (s *suite) sessionOfAnother() {
	session, err := s.CreateSession(s.Context(), store.SessionRequest{OwnerID: "A", Principal: "a"})
	if err != nil {
		s.Fatal(err)
	}
	if seen, _, err := s.Session(s.Context(), session.ID); err != nil || seen.Principal != "a" {
		s.Errorf("the session is %+v (%v), want it the principal's a", seen, err)
	}
	asked := s.in(session)
	asked.RequestID, asked.Principal = "r", "a"
	lease := s.granted(asked)
	asked.Principal = "b"
	s.fails(asked, store.ErrInvalid)
	s.heldBy(lease)
	if _, err := s.EndSession(s.Context(), session.ID); err != nil {
		s.Fatal(err)
	}
	s.fails(asked, store.ErrInvalid)
}

// policy sets a policy on the lock and the names below, until the test ends.
func (s *suite) policy(policy store.Policy) {
	s.Helper()
	policy.Prefix, policy.Rule, policy.Authority = string(s.lock), store.RuleStrict, store.AuthorityBuiltin
	if err := s.PutPolicy(s.Context(), policy); err != nil {
		s.Fatal(err)
	}
}
