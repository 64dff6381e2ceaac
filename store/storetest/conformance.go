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

// Run checks that a provider keeps leases as the contract says. open is called once and returns one that has given no lease yet; it is
// for open to have it closed when the test ends.
func Run(t *testing.T, open func(t *testing.T) Provider) {
	provider := open(t)
	for _, c := range []struct {
		name string
		test func(*desk)
	}{
		{"a lease is what was asked for", (*desk).leaseAsAsked},
		{"a lease has defaults", (*desk).leaseByDefault},
		{"one holder at a time", (*desk).oneHolder},
		{"one holder of many who ask at once", (*desk).oneOfMany},
		{"not re-entrant", (*desk).notReentrant},
		{"locks are independent", (*desk).independent},
		{"tokens rise", (*desk).tokensRise},
		{"tokens rise in the order of grants", (*desk).tokensInOrder},
		{"a renewal lasts", (*desk).renewal},
		{"a renewal with a wrong lease", (*desk).wrongRenewal},
		{"a release with a wrong lease", (*desk).wrongRelease},
		{"a replaced holder", (*desk).replaced},
		{"an expired lease is grantable", (*desk).expiredGrantable},
		{"an expired lease is not renewed", (*desk).expiredNotRenewed},
		{"an expired lease may be released", (*desk).expiredReleased},
		{"a release frees the lock", (*desk).releaseFrees},
		{"a release sent twice", (*desk).releaseTwice},
		{"a broken lease", (*desk).broken},
		{"breaking what nobody holds", (*desk).breakNothing},
		{"a request sent again", (*desk).requestAgain},
		{"a request sent again after the end", (*desk).requestAfterEnd},
		{"a request of another owner", (*desk).requestOfAnother},
		{"many who send the same request at once", (*desk).requestAtOnce},
		{"a lock is seen as it stands", (*desk).seen},
		{"arguments within their limits", (*desk).withinLimits},
		{"arguments outside their limits", (*desk).outsideLimits},
		{"a reason for breaking within its limits", (*desk).reasonLimits},

		{"readers beside each other", (*desk).readers},
		{"many readers at once", (*desk).readersAtOnce},
		{"a reader leaves the others", (*desk).readerLeaves},
		{"the readers' lock is broken", (*desk).readersBroken},
		{"a writer or readers of many who ask at once", (*desk).writerOrReaders},
		{"a subtree covers what is below", (*desk).subtreeCovers},
		{"what is below holds a subtree up", (*desk).subtreeHeldUp},
		{"a subtree or names in it of many who ask at once", (*desk).subtreeOrNames},
		{"an expired subtree is replaced where it is asked for", (*desk).subtreeReplaced},
		{"tokens rise above and below", (*desk).tokensRiseInTree},

		{"a session is what was asked for", (*desk).sessionAsAsked},
		{"a session is kept alive with its leases", (*desk).sessionKept},
		{"the end of a session releases its leases", (*desk).sessionEnds},
		{"a session that was not kept alive", (*desk).sessionExpires},
		{"a session that there never was", (*desk).sessionUnknown},
		{"a lease in a session is not renewed by itself", (*desk).sessionLeaseRenewed},
		{"a session that is ended while leases are asked for", (*desk).sessionEndsAtOnce},
		{"sessions outside their limits", (*desk).sessionLimits},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(&desk{T: t, Provider: provider, lock: store.Name(strings.NewReplacer(" ", "-", "'", "").Replace(c.name))})
		})
	}
}

// desk is where one test is done: a provider, and a lock that nobody else uses.
type desk struct {
	*testing.T
	Provider
	lock store.Name
}

// long is a TTL that no test outlives.
const long = time.Hour

// patience bounds the wait for what must come by itself.
const patience = time.Minute

// acquire takes the lock, which must be free.
func (d *desk) acquire(owner string, ttl time.Duration) store.Lease {
	d.Helper()
	return d.granted(store.AcquireRequest{Lock: d.lock, OwnerID: owner, TTL: ttl})
}

func (d *desk) granted(request store.AcquireRequest) store.Lease {
	d.Helper()
	lease, err := d.Acquire(d.Context(), request)
	if err != nil {
		d.Fatalf("acquire by %s: %v", request.OwnerID, err)
	}
	return lease
}

func (d *desk) released(lease store.Lease) {
	d.Helper()
	if err := d.Release(d.Context(), lease.Ref()); err != nil {
		d.Fatalf("release by %s: %v", lease.OwnerID, err)
	}
}

// heldBy expects that the lock is the owner's, with the token that it was granted.
func (d *desk) heldBy(lease store.Lease) {
	d.Helper()
	lock := d.look()
	if lock.State != store.LockHeld || lock.Token != lease.Token || lock.Holder().OwnerID != lease.OwnerID {
		d.Errorf("the lock stands as %+v, it must be held by %s with token %d", lock, lease.OwnerID, lease.Token)
	}
}

func (d *desk) look() store.Lock {
	d.Helper()
	lock, err := d.Lock(d.Context(), d.lock)
	if err != nil {
		d.Fatal(err)
	}
	return lock
}

// lost expects that a lease was lost for one of the reasons.
func (d *desk) lost(err error, reasons ...string) {
	d.Helper()
	var lost *store.LostError
	if !errors.As(err, &lost) || !errors.Is(err, store.ErrLeaseLost) {
		d.Errorf("the error is %v, it must be that the lease is lost: %s", err, strings.Join(reasons, " or "))
		return
	}
	for _, reason := range reasons {
		if lost.Reason == reason {
			return
		}
	}
	d.Errorf("the lease is lost because it is %s, it must be: %s", lost.Reason, strings.Join(reasons, " or "))
}

// is expects an error.
func (d *desk) is(err, target error) {
	d.Helper()
	if !errors.Is(err, target) {
		d.Errorf("the error is %v, it must be: %v", err, target)
	}
}

// await waits for something that comes by itself.
func (d *desk) await(what string, happened func() bool) {
	d.Helper()
	deadline := time.Now().Add(patience)
	for !happened() {
		if time.Now().After(deadline) {
			d.Fatalf("waited %s for %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// expired returns a lease that has expired and that nobody has replaced.
func (d *desk) expired(owner string) store.Lease {
	d.Helper()
	lease := d.acquire(owner, store.TTLMin)
	d.await("the lease to expire", func() bool { return d.look().State == store.LockExpired })
	return lease
}
