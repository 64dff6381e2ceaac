// Package storetest is the conformance suite of lease providers.
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

// Provider keeps leases. Its methods return what those of postgres.Store of the same name return, errors included; their
// documentation there is the contract. Acquire waits and judges newest_token, as engine.Engine.Acquire does.
type Provider interface {
	Acquire(ctx context.Context, request store.AcquireRequest) (store.Lease, error)
	Renew(ctx context.Context, ref store.LeaseRef, ttl time.Duration) (store.Lease, error)
	Release(ctx context.Context, ref store.LeaseRef) error
	Break(ctx context.Context, lock store.Name, reason string) (store.Lease, error)
	Lock(ctx context.Context, name store.Name) (store.Lock, error)
	PutPolicy(ctx context.Context, policy store.Policy) error

	CreateSession(ctx context.Context, request store.SessionRequest) (store.Session, error)
	KeepAlive(ctx context.Context, id uuid.UUID) (store.Session, error)
	EndSession(ctx context.Context, id uuid.UUID) (released int64, err error)
	Session(ctx context.Context, id uuid.UUID) (session store.Session, leases int64, err error)
}

// Promises are what a provider can keep. What it can't, it must refuse as unsupported.
type Promises struct {
	Shared, Subtree, Sessions bool
	// RequestsRemembered says that a request which is sent again after the end of its lease is told so at once, also while
	// another holds the lock. Otherwise it is told when the lock is free.
	RequestsRemembered bool
	// ExpiryShown says that everybody sees when a lease expires, and not its holder alone.
	ExpiryShown bool
}

// All are the promises of a provider that keeps leases in the database.
var All = Promises{Shared: true, Subtree: true, Sessions: true, RequestsRemembered: true, ExpiryShown: true}

// Run checks that a provider keeps leases as the contract says, as far as it promises. open is called once and returns
// one that has given no lease yet; it is for open to have it closed when the test ends.
func Run(t *testing.T, promises Promises, open func(t *testing.T) Provider) {
	provider := open(t)
	run := func(name string, test func(*suite)) {
		t.Run(name, func(t *testing.T) {
			lock := store.Name(strings.NewReplacer(" ", "-", "'", "").Replace(name))
			test(&suite{T: t, Provider: provider, promises: promises, lock: lock})
		})
	}
	run("what is not promised is refused", (*suite).unsupported)
	for _, c := range cases {
		if c.needs == nil || c.needs(promises) {
			run(c.name, c.test)
		}
	}
}

func shared(p Promises) bool   { return p.Shared }
func subtree(p Promises) bool  { return p.Subtree }
func sessions(p Promises) bool { return p.Sessions }

// cases need no promise where needs is nil.
var cases = []struct {
	name  string
	needs func(Promises) bool
	test  func(*suite)
}{
	{"a lease has the fields of its request", nil, (*suite).leaseAsAsked},
	{"a lease has defaults", nil, (*suite).leaseByDefault},
	{"one holder at a time", nil, (*suite).oneHolder},
	{"one holder of many acquires at once", nil, (*suite).oneOfMany},
	{"not re-entrant", nil, (*suite).notReentrant},
	{"locks are independent", nil, (*suite).independent},
	{"tokens rise", nil, (*suite).tokensRise},
	{"tokens rise in the order of grants", nil, (*suite).tokensInOrder},
	{"a renewal lasts", nil, (*suite).renewal},
	{"a renewal with a wrong lease", nil, (*suite).wrongRenewal},
	{"a release with a wrong lease", nil, (*suite).wrongRelease},
	{"a replaced holder", nil, (*suite).replaced},
	{"an expired lease is grantable", nil, (*suite).expiredGrantable},
	{"an expired lease is not renewed", nil, (*suite).expiredNotRenewed},
	{"an expired lease may be released", nil, (*suite).expiredReleased},
	{"a release frees the lock", nil, (*suite).releaseFrees},
	{"a release sent twice", nil, (*suite).releaseTwice},
	{"a broken lease", nil, (*suite).breaking},
	{"breaking what nobody holds", nil, (*suite).breakNothing},
	{"a request sent again", nil, (*suite).requestAgain},
	{"a request sent again after the end", nil, (*suite).requestAfterEnd},
	{"a request of another owner", nil, (*suite).requestOfAnother},
	{"many with the same request_id at once", nil, (*suite).requestAtOnce},
	{"a request of another principal", nil, (*suite).requestOfAnotherPrincipal},
	{"a policy on owners", nil, (*suite).ownerPolicy},
	{"a client that knows a newer token", nil, (*suite).newestToken},
	{"a holder is shown to others", nil, (*suite).holderShown},
	{"a lock is shown in each state", nil, (*suite).seen},
	{"arguments within their limits", nil, (*suite).withinLimits},
	{"arguments outside their limits", nil, (*suite).outsideLimits},
	{"a reason for breaking within its limits", nil, (*suite).reasonLimits},

	{"readers beside each other", shared, (*suite).readers},
	{"many readers at once", shared, (*suite).readersAtOnce},
	{"a reader leaves the others", shared, (*suite).readerLeaves},
	{"the readers' lock is broken", shared, (*suite).readersBroken},
	{"a writer or readers of many acquires at once", shared, (*suite).writerOrReaders},
	{"a reader that knows a newer token", shared, (*suite).newestTokenOfReaders},
	{"a subtree covers what is below", subtree, (*suite).subtreeCovers},
	{"what is below holds a subtree up", subtree, (*suite).subtreeHeldUp},
	{"a subtree or names in it of many acquires at once", subtree, (*suite).subtreeOrNames},
	{"an expired subtree is replaced below", subtree, (*suite).subtreeReplaced},
	{"tokens rise above and below", subtree, (*suite).tokensRiseInTree},

	{"a session has the fields of its request", sessions, (*suite).sessionAsAsked},
	{"a session is kept alive with its leases", sessions, (*suite).sessionKept},
	{"the end of a session releases its leases", sessions, (*suite).sessionEnds},
	{"a session that was not kept alive", sessions, (*suite).sessionExpires},
	{"a session of another principal", sessions, (*suite).sessionOfAnother},
	{"a session that never existed", sessions, (*suite).sessionUnknown},
	{"a lease in a session is not renewed by itself", sessions, (*suite).sessionLeaseRenewed},
	{"a session that ends during acquires", sessions, (*suite).sessionEndsAtOnce},
	{"sessions outside their limits", sessions, (*suite).sessionLimits},
}

// suite is one case: a provider, and a lock of its own.
type suite struct {
	*testing.T
	Provider
	promises Promises
	lock     store.Name
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
	// A busy machine may not reserve a lock within so short a TTL. The try then stands in the way for as long.
	if request.TTL == store.TTLMin && errors.Is(err, store.ErrProviderUnavailable) {
		s.await("a lease that is so short", func() bool {
			lease, err = s.Acquire(s.Context(), request)
			return !errors.Is(err, store.ErrProviderUnavailable) && !errors.Is(err, store.ErrLeaseHeld)
		})
	}
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

// sameEnd reports whether a lease is seen to expire when its holder was told. Where only the holder knows, nothing is
// compared.
func (s *suite) sameEnd(seen, told time.Time) bool {
	return !s.promises.ExpiryShown || seen.Equal(told)
}

// unsupported asks for what the provider does not promise.
func (s *suite) unsupported() {
	for _, c := range []struct {
		promised bool
		request  store.AcquireRequest
	}{
		{s.promises.Shared, store.AcquireRequest{Mode: store.Shared}},
		{s.promises.Subtree, store.AcquireRequest{Scope: store.Subtree}},
		{s.promises.Sessions, store.AcquireRequest{SessionID: uuid.New()}},
	} {
		if c.promised {
			continue
		}
		c.request.Lock, c.request.OwnerID = s.lock, "A"
		var unsupported *store.UnsupportedError
		_, err := s.Acquire(s.Context(), c.request)
		if s.is(err, store.ErrUnsupported); !errors.As(err, &unsupported) {
			s.Errorf("%+v: the error is %T, want an UnsupportedError", c.request, err)
		}
	}
	_, err := s.Lock(s.Context(), s.lock)
	s.is(err, store.ErrNotFound)
}
