package storetest

import (
	"errors"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

func (s *suite) renewal() {
	lease := s.acquire("A", long)
	same, err := s.Renew(s.Context(), lease.Ref(), 0)
	if err != nil {
		s.Fatal(err)
	}
	if same.Ref() != lease.Ref() || same.TTL != long || !same.GrantedAt.Equal(lease.GrantedAt) ||
		same.ExpiresAt.Before(lease.ExpiresAt) {
		s.Errorf("%+v was renewed, and is %+v", lease, same)
	}
	other, err := s.Renew(s.Context(), lease.Ref(), 2*long)
	if err != nil {
		s.Fatal(err)
	}
	longer := long
	if !s.promises.ExpiryShown {
		longer -= long / 50 // the margin for clocks that run faster
	}
	if other.TTL != 2*long || other.ExpiresAt.Sub(same.ExpiresAt) < longer {
		s.Errorf("%+v was renewed for %s, and is %+v", same, 2*long, other)
	}
	if holder := s.look().Holder(); holder == nil || !s.sameEnd(holder.ExpiresAt, other.ExpiresAt) {
		s.Errorf("renewed is %+v, and the lock is held by %+v", other, holder)
	}
	shorter, err := s.Renew(s.Context(), lease.Ref(), long/2)
	if err != nil || shorter.TTL != long/2 || !shorter.ExpiresAt.Before(same.ExpiresAt) {
		s.Errorf("%+v was renewed for less, and is %+v (%v)", other, shorter, err)
	}
}

// wrongRefs are references to a lease that are wrong in one thing each.
func (s *suite) wrongRefs(lease store.Lease) map[string]store.LeaseRef {
	owner, id, newer, older := lease.Ref(), lease.Ref(), lease.Ref(), lease.Ref()
	owner.OwnerID = "B"
	id.ID = uuid.New()
	newer.Token++
	older.Token--
	return map[string]store.LeaseRef{"another owner": owner, "another lease_id": id, "a greater token": newer,
		"a lower token": older}
}

func (s *suite) wrongRenewal() {
	lease := s.acquire("A", long)
	s.refusesWrongRefs(lease, func(ref store.LeaseRef) error {
		_, err := s.Renew(s.Context(), ref, 2*long)
		return err
	})
	if holder := s.look().Holder(); !s.sameEnd(holder.ExpiresAt, lease.ExpiresAt) {
		s.Errorf("the lease now expires at %s", holder.ExpiresAt)
	}
}

func (s *suite) wrongRelease() {
	s.refusesWrongRefs(s.acquire("A", long), func(ref store.LeaseRef) error { return s.Release(s.Context(), ref) })
}

// refusesWrongRefs makes a call with wrong references to the lease, which stays, and with one to a lock that was never
// used.
func (s *suite) refusesWrongRefs(lease store.Lease, call func(store.LeaseRef) error) {
	s.Helper()
	for wrong, ref := range s.wrongRefs(lease) {
		if err := call(ref); !errors.Is(err, store.ErrLeaseLost) {
			s.Errorf("%s: the error is %v", wrong, err)
		}
	}
	s.heldBy(lease)
	elsewhere := lease.Ref()
	elsewhere.Lock += "/never-used"
	s.is(call(elsewhere), store.ErrNotFound)
}

// replaced lets the holder before do what only a holder may (P6).
func (s *suite) replaced() {
	late := s.expired("A")
	lease := s.acquire("A", long) // of the same owner, by mistake
	s.renewalLost(late, "superseded")
	s.lost(s.Release(s.Context(), late.Ref()), "superseded")
	mixed := lease.Ref()
	mixed.ID = late.ID
	s.lost(s.Release(s.Context(), mixed), "mismatch")
	s.heldBy(lease)
}

// expiredGrantable finds the moment at which the lock is granted anew: not before the lease has expired, and as soon as
// it has (P1, P7).
func (s *suite) expiredGrantable() {
	late := s.acquire("A", store.TTLMin)
	s.heldBy(s.grantedAnew(late, late.ExpiresAt))
}

func (s *suite) expiredNotRenewed() {
	s.renewalLost(s.expired("A"), "expired")
	if state := s.look().State; state != store.LockExpired {
		s.Errorf("the lock is %s", state)
	}
}

func (s *suite) expiredReleased() {
	s.released(s.expired("A"))
	s.free()
}

func (s *suite) releaseFrees() {
	lease := s.acquire("A", long)
	s.released(lease)
	s.renewalLost(lease, "released")
	s.free()
	if token := s.look().Token; token != lease.Token {
		s.Errorf("the token of the lock is %d, want %d", token, lease.Token)
	}
	s.heldBy(s.acquire("B", long))
}

func (s *suite) releaseTwice() {
	lease := s.acquire("A", long)
	s.released(lease)
	s.released(lease)
	next := s.acquire("B", long)
	s.released(lease) // also when the lock is another's, whose it stays
	s.heldBy(next)
}

func (s *suite) breaking() {
	lease := s.acquire("A", long)
	if ended := s.broken(); ended.Token != lease.Token || ended.OwnerID != "A" || ended.ID != uuid.Nil {
		s.Errorf("broken is %+v", ended)
	}
	s.free()
	s.renewalLost(lease, "broken")
	s.lost(s.Release(s.Context(), lease.Ref()), "broken")
	s.heldBy(s.acquire("B", long))
}

func (s *suite) breakNothing() {
	_, err := s.Break(s.Context(), s.lock, "test")
	s.is(err, store.ErrNotFound)
	s.released(s.acquire("A", long))
	_, err = s.Break(s.Context(), s.lock, "test")
	s.is(err, store.ErrNotFound)
}

// request is one that is sent more than once.
func (s *suite) request(owner string) store.AcquireRequest {
	return store.AcquireRequest{Lock: s.lock, OwnerID: owner, TTL: long, RequestID: "r1"}
}

func (s *suite) requestAgain() {
	lease := s.granted(s.request("A"))
	again := s.granted(s.request("A"))
	if again.Ref() != lease.Ref() || !s.sameEnd(again.ExpiresAt, lease.ExpiresAt) {
		s.Errorf("granted is %+v, and then %+v", lease, again)
	}
	other := s.request("A")
	other.RequestID = "r2"
	s.fails(other, store.ErrLeaseHeld)
	elsewhere := s.request("A")
	elsewhere.Lock += "/elsewhere"
	if s.granted(elsewhere).Token == lease.Token {
		s.Error("the request_id of another lock was taken for this one's")
	}
}

// requestAfterEnd ends the lease before the request comes again: it was granted once, and is not granted a second time.
func (s *suite) requestAfterEnd() {
	s.released(s.granted(s.request("A")))
	_, err := s.Acquire(s.Context(), s.request("A"))
	s.lost(err, "released")
	short := store.AcquireRequest{Lock: s.lock, OwnerID: "A", TTL: store.TTLMin, RequestID: "r2"}
	s.granted(short)
	s.awaitExpiry()
	_, err = s.Acquire(s.Context(), short)
	s.lost(err, "expired")
	other := s.acquire("B", long)
	if !s.promises.RequestsRemembered {
		s.fails(short, store.ErrLeaseHeld)
		s.released(other)
	}
	_, err = s.Acquire(s.Context(), short)
	s.lost(err, "expired")
}

func (s *suite) requestOfAnother() {
	lease := s.granted(s.request("A"))
	s.fails(s.request("B"), store.ErrInvalid)
	s.heldBy(lease)
}

func (s *suite) requestAtOnce() {
	leases := s.atOnce(func(int) store.AcquireRequest { return s.request("A") })
	for _, lease := range leases {
		if lease.Ref() != leases[0].Ref() {
			s.Errorf("granted are both %+v and %+v", leases[0], lease)
		}
	}
	if len(leases) != clientsAtOnce {
		s.Errorf("%d of %d were answered with the lease", len(leases), clientsAtOnce)
	}
}

func (s *suite) seen() {
	_, err := s.Lock(s.Context(), s.lock)
	s.is(err, store.ErrNotFound)
	lease := s.acquire("A", store.TTLMin)
	s.await("the lease to expire", func() bool {
		lock := s.look()
		switch {
		case lock.Lock != s.lock, lock.Token != lease.Token:
			s.Fatalf("%+v is seen as %+v", lease, lock)
		case lock.Holder() == nil, lock.Holder().OwnerID != "A", !s.sameEnd(lock.Holder().ExpiresAt, lease.ExpiresAt),
			lock.Holder().ID != uuid.Nil:
			s.Fatalf("%+v is seen as held by %+v", lease, lock.Holder())
		}
		return lock.State == store.LockExpired
	})
	s.released(lease)
	s.free()
}
