package storetest

import (
	"errors"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

func (d *desk) renewal() {
	lease := d.acquire("A", long)
	same, err := d.Renew(d.Context(), lease.Ref(), 0)
	if err != nil {
		d.Fatal(err)
	}
	if same.Ref() != lease.Ref() || same.TTL != long || !same.GrantedAt.Equal(lease.GrantedAt) || same.ExpiresAt.Before(lease.ExpiresAt) {
		d.Errorf("%+v was renewed, and is %+v", lease, same)
	}
	other, err := d.Renew(d.Context(), lease.Ref(), 2*long)
	if err != nil {
		d.Fatal(err)
	}
	if other.TTL != 2*long || other.ExpiresAt.Sub(same.ExpiresAt) < long {
		d.Errorf("%+v was renewed for %s, and is %+v", same, 2*long, other)
	}
	if holder := d.look().Holder(); holder == nil || !holder.ExpiresAt.Equal(other.ExpiresAt) {
		d.Errorf("renewed is %+v, and the lock is held by %+v", other, holder)
	}
}

// wrongRefs are references to a lease that are wrong in one thing each.
func (d *desk) wrongRefs(lease store.Lease) map[string]store.LeaseRef {
	owner, id, newer, older := lease.Ref(), lease.Ref(), lease.Ref(), lease.Ref()
	owner.OwnerID = "B"
	id.ID = uuid.New()
	newer.Token++
	older.Token--
	return map[string]store.LeaseRef{"another owner": owner, "another lease_id": id, "a greater token": newer, "a lower token": older}
}

func (d *desk) wrongRenewal() {
	lease := d.acquire("A", long)
	for wrong, ref := range d.wrongRefs(lease) {
		if _, err := d.Renew(d.Context(), ref, 2*long); !errors.Is(err, store.ErrLeaseLost) {
			d.Errorf("%s: the error is %v", wrong, err)
		}
	}
	d.heldBy(lease)
	if holder := d.look().Holder(); !holder.ExpiresAt.Equal(lease.ExpiresAt) {
		d.Errorf("the lease now expires at %s", holder.ExpiresAt)
	}
	elsewhere := lease.Ref()
	elsewhere.Lock += "/never-used"
	_, err := d.Renew(d.Context(), elsewhere, 0)
	d.is(err, store.ErrNotFound)
}

func (d *desk) wrongRelease() {
	lease := d.acquire("A", long)
	for wrong, ref := range d.wrongRefs(lease) {
		if err := d.Release(d.Context(), ref); !errors.Is(err, store.ErrLeaseLost) {
			d.Errorf("%s: the error is %v", wrong, err)
		}
	}
	d.heldBy(lease)
	elsewhere := lease.Ref()
	elsewhere.Lock += "/never-used"
	d.is(d.Release(d.Context(), elsewhere), store.ErrNotFound)
}

// replaced lets the holder before do what only a holder may (P6).
func (d *desk) replaced() {
	late := d.expired("A")
	lease := d.acquire("A", long) // of the same owner, by mistake
	_, err := d.Renew(d.Context(), late.Ref(), long)
	d.lost(err, "superseded")
	d.lost(d.Release(d.Context(), late.Ref()), "superseded")
	mixed := lease.Ref()
	mixed.ID = late.ID
	d.lost(d.Release(d.Context(), mixed), "mismatch")
	d.heldBy(lease)
}

// expiredGrantable finds the moment at which the lock is granted anew: not before the lease has expired, and as soon as it has (P1, P7).
func (d *desk) expiredGrantable() {
	late := d.acquire("A", store.TTLMin)
	var next store.Lease
	d.await("the lock to be granted anew", func() bool {
		lease, err := d.Acquire(d.Context(), store.AcquireRequest{Lock: d.lock, OwnerID: "B", TTL: long})
		if err != nil && !errors.Is(err, store.ErrLeaseHeld) {
			d.Fatal(err)
		}
		next = lease
		return err == nil
	})
	if next.GrantedAt.Before(late.ExpiresAt) || next.Token <= late.Token {
		d.Errorf("%+v was granted while %+v was live", next, late)
	}
	d.heldBy(next)
}

func (d *desk) expiredNotRenewed() {
	late := d.expired("A")
	_, err := d.Renew(d.Context(), late.Ref(), long)
	d.lost(err, "expired")
	if state := d.look().State; state != store.LockExpired {
		d.Errorf("the lock is %s", state)
	}
}

func (d *desk) expiredReleased() {
	late := d.expired("A")
	d.released(late)
	if state := d.look().State; state != store.LockFree {
		d.Errorf("the lock is %s", state)
	}
}

func (d *desk) releaseFrees() {
	lease := d.acquire("A", long)
	d.released(lease)
	_, err := d.Renew(d.Context(), lease.Ref(), long)
	d.lost(err, "released")
	if lock := d.look(); lock.State != store.LockFree || lock.Holder() != nil || lock.Token != lease.Token {
		d.Errorf("the lock stands as %+v", lock)
	}
	d.heldBy(d.acquire("B", long))
}

func (d *desk) releaseTwice() {
	lease := d.acquire("A", long)
	d.released(lease)
	d.released(lease)
	next := d.acquire("B", long)
	d.released(lease) // also when the lock is another's, whose it stays
	d.heldBy(next)
}

func (d *desk) broken() {
	lease := d.acquire("A", long)
	ended, err := d.Break(d.Context(), d.lock, "it hangs")
	if err != nil {
		d.Fatal(err)
	}
	if ended.Token != lease.Token || ended.OwnerID != "A" || ended.ID != uuid.Nil {
		d.Errorf("broken is %+v", ended)
	}
	if lock := d.look(); lock.State != store.LockFree || lock.Holder() != nil {
		d.Errorf("the lock stands as %+v", lock)
	}
	_, err = d.Renew(d.Context(), lease.Ref(), long)
	d.lost(err, "broken")
	d.lost(d.Release(d.Context(), lease.Ref()), "broken")
	d.heldBy(d.acquire("B", long))
}

func (d *desk) breakNothing() {
	_, err := d.Break(d.Context(), d.lock, "test")
	d.is(err, store.ErrNotFound)
	d.released(d.acquire("A", long))
	_, err = d.Break(d.Context(), d.lock, "test")
	d.is(err, store.ErrNotFound)
}

// request is one that is sent more than once.
func (d *desk) request(owner string) store.AcquireRequest {
	return store.AcquireRequest{Lock: d.lock, OwnerID: owner, TTL: long, RequestID: "r1"}
}

func (d *desk) requestAgain() {
	lease := d.granted(d.request("A"))
	again := d.granted(d.request("A"))
	if again.Ref() != lease.Ref() || !again.ExpiresAt.Equal(lease.ExpiresAt) {
		d.Errorf("granted is %+v, and then %+v", lease, again)
	}
	other := d.request("A")
	other.RequestID = "r2"
	_, err := d.Acquire(d.Context(), other)
	d.is(err, store.ErrLeaseHeld)
	elsewhere := d.request("A")
	elsewhere.Lock += "/elsewhere"
	if d.granted(elsewhere).Token == lease.Token {
		d.Error("the request_id of another lock was taken for this one's")
	}
}

// requestAfterEnd ends the lease before the request comes again: it was granted once, and is not granted a second time.
func (d *desk) requestAfterEnd() {
	d.released(d.granted(d.request("A")))
	_, err := d.Acquire(d.Context(), d.request("A"))
	d.lost(err, "released")
	short := store.AcquireRequest{Lock: d.lock, OwnerID: "A", TTL: store.TTLMin, RequestID: "r2"}
	d.granted(short)
	d.await("the lease to expire", func() bool { return d.look().State == store.LockExpired })
	_, err = d.Acquire(d.Context(), short)
	d.lost(err, "expired")
	d.acquire("B", long)
	_, err = d.Acquire(d.Context(), short)
	d.lost(err, "expired")
}

func (d *desk) requestOfAnother() {
	lease := d.granted(d.request("A"))
	_, err := d.Acquire(d.Context(), d.request("B"))
	d.is(err, store.ErrInvalid)
	d.heldBy(lease)
}

func (d *desk) requestAtOnce() {
	leases := d.atOnce(func(int) store.AcquireRequest { return d.request("A") })
	for _, lease := range leases {
		if lease.Ref() != leases[0].Ref() {
			d.Errorf("granted are both %+v and %+v", leases[0], lease)
		}
	}
	if len(leases) != clientsAtOnce {
		d.Errorf("%d of %d were told of the lease", len(leases), clientsAtOnce)
	}
}

func (d *desk) seen() {
	_, err := d.Lock(d.Context(), d.lock)
	d.is(err, store.ErrNotFound)
	lease := d.acquire("A", store.TTLMin)
	d.await("the lease to expire", func() bool {
		lock := d.look()
		switch {
		case lock.Lock != d.lock, lock.Token != lease.Token:
			d.Fatalf("%+v is seen as %+v", lease, lock)
		case lock.Holder() == nil, lock.Holder().OwnerID != "A", !lock.Holder().ExpiresAt.Equal(lease.ExpiresAt), lock.Holder().ID != uuid.Nil:
			d.Fatalf("%+v is seen as held by %+v", lease, lock.Holder())
		}
		return lock.State == store.LockExpired
	})
	d.released(lease)
	if lock := d.look(); lock.State != store.LockFree || lock.Holder() != nil {
		d.Errorf("the lock is seen as %+v", lock)
	}
}
