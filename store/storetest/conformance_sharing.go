package storetest

import (
	"errors"
	"fmt"

	"github.com/fencegate/fencegate/store"
)

func (d *desk) share(owner string) store.Lease {
	d.Helper()
	return d.granted(store.AcquireRequest{Lock: d.lock, OwnerID: owner, Mode: store.Shared, TTL: long})
}

func (d *desk) subtree(owner string) store.Lease {
	d.Helper()
	return d.granted(store.AcquireRequest{Lock: d.lock, OwnerID: owner, Scope: store.Subtree, TTL: long})
}

// refused expects that a request is refused since another owner is in the way.
func (d *desk) refused(request store.AcquireRequest, owner string) {
	d.Helper()
	_, err := d.Acquire(d.Context(), request)
	var held *store.HeldError
	if !errors.As(err, &held) || !errors.Is(err, store.ErrLeaseHeld) {
		d.Errorf("%+v: the error is %v, it must be that the lock is held", request, err)
		return
	}
	if held.Lock != request.Lock || held.OwnerID != owner || held.Remaining <= 0 || held.QueueLength != 0 {
		d.Errorf("%+v: held is %+v, it must be by %s", request, held, owner)
	}
}

func (d *desk) holders(leases ...store.Lease) {
	d.Helper()
	lock := d.look()
	if len(lock.Holders) != len(leases) {
		d.Errorf("the lock is held by %+v, it must be by %+v", lock.Holders, leases)
		return
	}
	for i, lease := range leases {
		holder := lock.Holders[i]
		if holder.Token != lease.Token || holder.OwnerID != lease.OwnerID || holder.Mode != lease.Mode {
			d.Errorf("holder %d is %+v, it must be %+v", i, holder, lease)
		}
	}
}

func (d *desk) readers() {
	first, second := d.share("A"), d.share("B")
	if second.Token <= first.Token || first.Mode != store.Shared || second.Mode != store.Shared || first.Scope != store.Node {
		d.Errorf("granted are %+v and %+v", first, second)
	}
	d.holders(first, second)
	d.refused(store.AcquireRequest{Lock: d.lock, OwnerID: "C"}, "B")
	d.released(second)
	d.refused(store.AcquireRequest{Lock: d.lock, OwnerID: "C"}, "A")
	d.released(first)
	writer := d.acquire("C", long)
	d.holders(writer)
	d.refused(store.AcquireRequest{Lock: d.lock, OwnerID: "A", Mode: store.Shared}, "C")
}

func (d *desk) readersAtOnce() {
	leases := d.atOnce(func(i int) store.AcquireRequest {
		return store.AcquireRequest{Lock: d.lock, OwnerID: fmt.Sprint("client ", i), Mode: store.Shared}
	})
	tokens := map[int64]bool{}
	for _, lease := range leases {
		tokens[lease.Token] = true
	}
	if len(tokens) != clientsAtOnce || len(d.look().Holders) != clientsAtOnce {
		d.Errorf("%d of %d were granted the lock, with %d tokens", len(leases), clientsAtOnce, len(tokens))
	}
}

func (d *desk) readerLeaves() {
	first, second := d.share("A"), d.share("B")
	d.released(second)
	if _, err := d.Renew(d.Context(), first.Ref(), long); err != nil {
		d.Error(err)
	}
	d.holders(first)
	third := d.share("C")
	d.released(second)
	d.holders(first, third)
}

func (d *desk) readersBroken() {
	first, second := d.share("A"), d.share("B")
	ended, err := d.Break(d.Context(), d.lock, "all of them")
	if err != nil || ended.Token != second.Token {
		d.Errorf("broken is %+v (%v)", ended, err)
	}
	for _, lease := range []store.Lease{first, second} {
		_, err := d.Renew(d.Context(), lease.Ref(), long)
		d.lost(err, "broken")
	}
	d.heldBy(d.acquire("C", long))
}

// writerOrReaders lets readers and writers ask at the same time, again and again.
func (d *desk) writerOrReaders() {
	for round := range 5 {
		leases := d.atOnce(func(i int) store.AcquireRequest {
			return store.AcquireRequest{Lock: d.lock, OwnerID: fmt.Sprint("client ", i), Mode: []store.Mode{store.Shared, store.Exclusive}[i%2]}
		})
		writers := 0
		for _, lease := range leases {
			if lease.Mode == store.Exclusive {
				writers++
			}
			d.released(lease)
		}
		if writers > 1 || writers == 1 && len(leases) > 1 || len(leases) == 0 {
			d.Fatalf("round %d: %d were granted the lock, of whom %d may write", round, len(leases), writers)
		}
	}
}

func (d *desk) subtreeCovers() {
	lease := d.subtree("A")
	if lease.Scope != store.Subtree || lease.Mode != store.Exclusive {
		d.Errorf("granted is %+v", lease)
	}
	for _, name := range []store.Name{d.lock, d.lock + "/a", d.lock + "/a/b"} {
		for _, scope := range []store.Scope{store.Node, store.Subtree} {
			d.refused(store.AcquireRequest{Lock: name, OwnerID: "B", Scope: scope}, "A")
			d.refused(store.AcquireRequest{Lock: name, OwnerID: "B", Mode: store.Shared, Scope: scope}, "A")
		}
	}
	for _, name := range []store.Name{d.lock + "-a", d.lock + "-b/c", d.lock + "0"} {
		d.granted(store.AcquireRequest{Lock: name, OwnerID: "B", Scope: store.Subtree})
	}
	d.heldBy(lease)
	d.released(lease)
	d.granted(store.AcquireRequest{Lock: d.lock + "/a/b", OwnerID: "B"})
}

func (d *desk) subtreeHeldUp() {
	below := d.granted(store.AcquireRequest{Lock: d.lock + "/a/b", OwnerID: "A", TTL: long})
	reader := d.granted(store.AcquireRequest{Lock: d.lock + "/c", OwnerID: "B", Mode: store.Shared, TTL: 2 * long})
	d.refused(store.AcquireRequest{Lock: d.lock, OwnerID: "C", Scope: store.Subtree}, "B")
	d.refused(store.AcquireRequest{Lock: d.lock, OwnerID: "C", Mode: store.Shared, Scope: store.Subtree}, "A")
	d.released(d.acquire("C", long)) // the name alone
	d.released(below)
	d.refused(store.AcquireRequest{Lock: d.lock, OwnerID: "C", Scope: store.Subtree}, "B")
	d.released(d.granted(store.AcquireRequest{Lock: d.lock, OwnerID: "C", Mode: store.Shared, Scope: store.Subtree}))
	d.released(reader)
	d.heldBy(d.subtree("C"))
}

// subtreeOrNames lets some ask for a subtree and some for names in it, at the same time, again and again.
func (d *desk) subtreeOrNames() {
	for round := range 5 {
		leases := d.atOnce(func(i int) store.AcquireRequest {
			request := store.AcquireRequest{Lock: d.lock, OwnerID: fmt.Sprint("client ", i), Scope: store.Subtree}
			if i%2 == 0 {
				request.Lock, request.Scope = store.Name(fmt.Sprintf("%s/%d", d.lock, i)), store.Node
			}
			return request
		})
		subtrees := 0
		for _, lease := range leases {
			if lease.Scope == store.Subtree {
				subtrees++
			}
			d.released(lease)
		}
		if subtrees > 1 || subtrees == 1 && len(leases) > 1 || len(leases) == 0 {
			d.Fatalf("round %d: %d were granted something, of whom %d the subtree", round, len(leases), subtrees)
		}
	}
}

func (d *desk) subtreeReplaced() {
	late := d.granted(store.AcquireRequest{Lock: d.lock, OwnerID: "A", Scope: store.Subtree, TTL: store.TTLMin})
	d.await("the lease to expire", func() bool { return d.look().State == store.LockExpired })
	below := d.granted(store.AcquireRequest{Lock: d.lock + "/a", OwnerID: "B", TTL: long})
	if below.Token <= late.Token || below.GrantedAt.Before(late.ExpiresAt) {
		d.Errorf("%+v was granted while %+v was live", below, late)
	}
	_, err := d.Renew(d.Context(), late.Ref(), long)
	d.lost(err, "expired")
	d.refused(store.AcquireRequest{Lock: d.lock, OwnerID: "C", Scope: store.Subtree}, "B")
	d.released(below)
	d.heldBy(d.subtree("C"))
	d.lost(d.Release(d.Context(), late.Ref()), "superseded")
}

func (d *desk) tokensRiseInTree() {
	last := int64(0)
	for round := range 3 {
		for _, request := range []store.AcquireRequest{
			{Lock: d.lock, Scope: store.Subtree}, {Lock: d.lock + "/a"}, {Lock: d.lock + "/a/b", Mode: store.Shared}, {Lock: d.lock + "/a", Scope: store.Subtree},
		} {
			request.OwnerID = fmt.Sprint("round ", round)
			lease := d.granted(request)
			if lease.Token <= last {
				d.Errorf("token %d was granted on %s, after token %d", lease.Token, lease.Lock, last)
			}
			last = lease.Token
			d.released(lease)
		}
	}
}
