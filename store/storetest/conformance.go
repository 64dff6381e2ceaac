package storetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Provider keeps leases. Its methods return what those of store.Store of the same name return, errors included; their
// documentation there is the contract.
type Provider interface {
	Acquire(ctx context.Context, request store.AcquireRequest) (store.Lease, error)
	Renew(ctx context.Context, ref store.LeaseRef, ttl time.Duration) (store.Lease, error)
	Release(ctx context.Context, ref store.LeaseRef) error
	Break(ctx context.Context, lock store.Name, reason string) (store.Lease, error)
	Lock(ctx context.Context, name store.Name) (store.Lock, error)

	CreateSession(ctx context.Context, request store.SessionRequest) (store.Session, error)
	KeepAlive(ctx context.Context, id uuid.UUID) (store.Session, error)
	EndSession(ctx context.Context, id uuid.UUID) (released int64, err error)
	Session(ctx context.Context, id uuid.UUID) (session store.Session, leases int64, err error)
}

// Run checks that a provider keeps leases as the contract says. open is called once and returns one that has given no
// lease yet; it is for open to have it closed when the test ends.
func Run(t *testing.T, open func(t *testing.T) Provider) {
	provider := open(t)
	for _, c := range []struct {
		name string
		test func(*suite)
	}{
		{"a lease has the fields of its request", (*suite).leaseAsAsked},
		{"a lease has defaults", (*suite).leaseByDefault},
		{"one holder at a time", (*suite).oneHolder},
		{"one holder of many acquires at once", (*suite).oneOfMany},
		{"not re-entrant", (*suite).notReentrant},
		{"locks are independent", (*suite).independent},
		{"tokens rise", (*suite).tokensRise},
		{"tokens rise in the order of grants", (*suite).tokensInOrder},
		{"a renewal lasts", (*suite).renewal},
		{"a renewal with a wrong lease", (*suite).wrongRenewal},
		{"a release with a wrong lease", (*suite).wrongRelease},
		{"a replaced holder", (*suite).replaced},
		{"an expired lease is grantable", (*suite).expiredGrantable},
		{"an expired lease is not renewed", (*suite).expiredNotRenewed},
		{"an expired lease may be released", (*suite).expiredReleased},
		{"a release frees the lock", (*suite).releaseFrees},
		{"a release sent twice", (*suite).releaseTwice},
		{"a broken lease", (*suite).breaking},
		{"breaking what nobody holds", (*suite).breakNothing},
		{"a request sent again", (*suite).requestAgain},
		{"a request sent again after the end", (*suite).requestAfterEnd},
		{"a request of another owner", (*suite).requestOfAnother},
		{"many with the same request_id at once", (*suite).requestAtOnce},
		{"a lock is shown in each state", (*suite).seen},
		{"arguments within their limits", (*suite).withinLimits},
		{"arguments outside their limits", (*suite).outsideLimits},
		{"a reason for breaking within its limits", (*suite).reasonLimits},

		{"readers beside each other", (*suite).readers},
		{"many readers at once", (*suite).readersAtOnce},
		{"a reader leaves the others", (*suite).readerLeaves},
		{"the readers' lock is broken", (*suite).readersBroken},
		{"a writer or readers of many acquires at once", (*suite).writerOrReaders},
		{"a subtree covers what is below", (*suite).subtreeCovers},
		{"what is below holds a subtree up", (*suite).subtreeHeldUp},
		{"a subtree or names in it of many acquires at once", (*suite).subtreeOrNames},
		{"an expired subtree is replaced below", (*suite).subtreeReplaced},
		{"tokens rise above and below", (*suite).tokensRiseInTree},

		{"a session has the fields of its request", (*suite).sessionAsAsked},
		{"a session is kept alive with its leases", (*suite).sessionKept},
		{"the end of a session releases its leases", (*suite).sessionEnds},
		{"a session that was not kept alive", (*suite).sessionExpires},
		{"a session that never existed", (*suite).sessionUnknown},
		{"a lease in a session is not renewed by itself", (*suite).sessionLeaseRenewed},
		{"a session that ends during acquires", (*suite).sessionEndsAtOnce},
		{"sessions outside their limits", (*suite).sessionLimits},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(&suite{T: t, Provider: provider, lock: store.Name(strings.NewReplacer(" ", "-", "'", "").Replace(c.name))})
		})
	}
}

// suite is one case: a provider, and a lock of its own.
type suite struct {
	*testing.T
	Provider
	lock store.Name
}

// long is a TTL that no test outlives.
const long = time.Hour

// patience bounds the wait for what must come by itself.
const patience = time.Minute

// acquire takes the lock, which must be free.
func (s *suite) acquire(owner string, ttl time.Duration) store.Lease {
	s.Helper()
	return s.granted(store.AcquireRequest{Lock: s.lock, OwnerID: owner, TTL: ttl})
}

func (s *suite) granted(request store.AcquireRequest) store.Lease {
	s.Helper()
	lease, err := s.Acquire(s.Context(), request)
	if err != nil {
		s.Fatalf("acquire by %s: %v", request.OwnerID, err)
	}
	return lease
}

func (s *suite) released(lease store.Lease) {
	s.Helper()
	if err := s.Release(s.Context(), lease.Ref()); err != nil {
		s.Fatalf("release by %s: %v", lease.OwnerID, err)
	}
}

// heldBy expects that the lock is the owner's, with the token that it was granted.
func (s *suite) heldBy(lease store.Lease) {
	s.Helper()
	lock := s.look()
	if lock.State != store.LockHeld || lock.Token != lease.Token || lock.Holder().OwnerID != lease.OwnerID {
		s.Errorf("the lock is %+v, want it held by %s with token %d", lock, lease.OwnerID, lease.Token)
	}
}

func (s *suite) look() store.Lock {
	s.Helper()
	lock, err := s.Lock(s.Context(), s.lock)
	if err != nil {
		s.Fatal(err)
	}
	return lock
}

// lost expects that a lease was lost for a reason.
func (s *suite) lost(err error, reason string) {
	s.Helper()
	var lost *store.LostError
	if !errors.As(err, &lost) || !errors.Is(err, store.ErrLeaseLost) || lost.Reason != reason {
		s.Errorf("the error is %v, want that the lease is lost: %s", err, reason)
	}
}

// renewalLost expects that a lease can't be renewed, for a reason.
func (s *suite) renewalLost(lease store.Lease, reason string) {
	s.Helper()
	_, err := s.Renew(s.Context(), lease.Ref(), long)
	s.lost(err, reason)
}

// broken breaks the lock and returns the lease that was ended.
func (s *suite) broken() store.Lease {
	s.Helper()
	ended, err := s.Break(s.Context(), s.lock, "it hangs")
	if err != nil {
		s.Fatal(err)
	}
	return ended
}

// fails expects an acquire to return an error.
func (s *suite) fails(request store.AcquireRequest, target error) {
	s.Helper()
	_, err := s.Acquire(s.Context(), request)
	s.is(err, target)
}

// is expects an error.
func (s *suite) is(err, target error) {
	s.Helper()
	if !errors.Is(err, target) {
		s.Errorf("the error is %v, want %v", err, target)
	}
}

// await waits for something that comes by itself.
func (s *suite) await(what string, happened func() bool) {
	s.Helper()
	deadline := time.Now().Add(patience)
	for !happened() {
		if time.Now().After(deadline) {
			s.Fatalf("waited %s for %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// expired returns a lease that has expired and was not replaced.
func (s *suite) expired(owner string) store.Lease {
	s.Helper()
	lease := s.acquire(owner, store.TTLMin)
	s.awaitExpiry()
	return lease
}

func (s *suite) awaitExpiry() {
	s.Helper()
	s.await("the lease to expire", func() bool { return s.look().State == store.LockExpired })
}

// grantedAnew acquires the lock for B as soon as it is granted, which must be after a time.
func (s *suite) grantedAnew(late store.Lease, notBefore time.Time) store.Lease {
	s.Helper()
	var next store.Lease
	s.await("the lock to be granted anew", func() bool {
		lease, err := s.Acquire(s.Context(), store.AcquireRequest{Lock: s.lock, OwnerID: "B", TTL: long})
		if err != nil && !errors.Is(err, store.ErrLeaseHeld) {
			s.Fatal(err)
		}
		next = lease
		return err == nil
	})
	if next.GrantedAt.Before(notBefore) || next.Token <= late.Token {
		s.Errorf("%+v was granted while %+v was live, until %s", next, late, notBefore)
	}
	return next
}

// free expects that nobody holds the lock.
func (s *suite) free() {
	s.Helper()
	if lock := s.look(); lock.State != store.LockFree || lock.Holder() != nil {
		s.Errorf("the lock is %+v, want it free", lock)
	}
}
