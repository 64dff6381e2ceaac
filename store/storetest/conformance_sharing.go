package storetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fencegate/fencegate/store"
)

func (s *suite) share(owner string) store.Lease {
	s.Helper()
	return s.granted(store.AcquireRequest{Lock: s.lock, OwnerID: owner, Mode: store.Shared, TTL: long})
}

func (s *suite) subtree(owner string) store.Lease {
	s.Helper()
	return s.granted(store.AcquireRequest{Lock: s.lock, OwnerID: owner, Scope: store.Subtree, TTL: long})
}

// refused expects that a request is refused since another owner is in the way.
func (s *suite) refused(request store.AcquireRequest, owner string) store.HeldError {
	s.Helper()
	_, err := s.Acquire(s.Context(), request)
	var held *store.HeldError
	if !errors.As(err, &held) || !errors.Is(err, store.ErrLeaseHeld) {
		s.Fatalf("%+v: the error is %v, want a HeldError", request, err)
	}
	if held.Lock != request.Lock || held.OwnerID != owner || held.Remaining <= 0 || held.QueueLength != 0 {
		s.Errorf("%+v: the error says %+v, want that %s holds the lock", request, held, owner)
	}
	return *held
}

func (s *suite) holders(leases ...store.Lease) {
	s.Helper()
	lock := s.look()
	if len(lock.Holders) != len(leases) {
		s.Errorf("the lock is held by %+v, want %+v", lock.Holders, leases)
		return
	}
	for i, lease := range leases {
		holder := lock.Holders[i]
		if holder.Token != lease.Token || holder.OwnerID != lease.OwnerID || holder.Mode != lease.Mode {
			s.Errorf("holder %d is %+v, want %+v", i, holder, lease)
		}
	}
}

func (s *suite) readers() {
	first, second := s.share("A"), s.share("B")
	if second.Token <= first.Token || first.Mode != store.Shared || second.Mode != store.Shared ||
		first.Scope != store.Node {
		s.Errorf("granted are %+v and %+v", first, second)
	}
	s.holders(first, second)
	s.refused(store.AcquireRequest{Lock: s.lock, OwnerID: "C"}, "B")
	s.released(second)
	s.refused(store.AcquireRequest{Lock: s.lock, OwnerID: "C"}, "A")
	s.released(first)
	writer := s.acquire("C", long)
	s.holders(writer)
	s.refused(store.AcquireRequest{Lock: s.lock, OwnerID: "A", Mode: store.Shared}, "C")
}

func (s *suite) readersAtOnce() {
	leases := s.atOnce(func(i int) store.AcquireRequest {
		return store.AcquireRequest{Lock: s.lock, OwnerID: fmt.Sprint("client ", i), Mode: store.Shared}
	})
	tokens := map[int64]bool{}
	for _, lease := range leases {
		tokens[lease.Token] = true
	}
	if len(tokens) != clientsAtOnce || len(s.look().Holders) != clientsAtOnce {
		s.Errorf("%d of %d were granted the lock, with %d tokens", len(leases), clientsAtOnce, len(tokens))
	}
}

func (s *suite) readerLeaves() {
	first, second := s.share("A"), s.share("B")
	s.released(second)
	if _, err := s.Renew(s.Context(), first.Ref(), long); err != nil {
		s.Error(err)
	}
	s.holders(first)
	third := s.share("C")
	s.released(second)
	s.holders(first, third)
}

func (s *suite) readersBroken() {
	first, second := s.share("A"), s.share("B")
	if ended := s.broken(); ended.Token != second.Token {
		s.Errorf("broken is %+v, want %+v", ended, second)
	}
	s.renewalLost(first, "broken")
	s.renewalLost(second, "broken")
	s.heldBy(s.acquire("C", long))
}

// writerOrReaders lets readers and writers acquire at the same time, again and again.
func (s *suite) writerOrReaders() {
	s.oneOrOthers(func(i int) store.AcquireRequest {
		return store.AcquireRequest{Lock: s.lock, OwnerID: fmt.Sprint("client ", i),
			Mode: []store.Mode{store.Shared, store.Exclusive}[i%2]}
	}, func(lease store.Lease) bool { return lease.Mode == store.Exclusive })
}

// oneOrOthers sends requests at the same time, again and again: one lease of a kind is granted, and nothing beside it,
// or some of the other kind.
func (s *suite) oneOrOthers(request func(i int) store.AcquireRequest, alone func(store.Lease) bool) {
	s.Helper()
	for round := range 5 {
		leases := s.atOnce(request)
		if len(leases) == 0 || len(leases) > 1 && slices.ContainsFunc(leases, alone) {
			s.Fatalf("round %d: granted were %+v", round, leases)
		}
		for _, lease := range leases {
			s.released(lease)
		}
	}
}

func (s *suite) subtreeCovers() {
	lease := s.subtree("A")
	if lease.Scope != store.Subtree || lease.Mode != store.Exclusive {
		s.Errorf("granted is %+v", lease)
	}
	for _, name := range []store.Name{s.lock, s.lock + "/a", s.lock + "/a/b"} {
		for _, scope := range []store.Scope{store.Node, store.Subtree} {
			s.refused(store.AcquireRequest{Lock: name, OwnerID: "B", Scope: scope}, "A")
			s.refused(store.AcquireRequest{Lock: name, OwnerID: "B", Mode: store.Shared, Scope: scope}, "A")
		}
	}
	for _, name := range []store.Name{s.lock + "-a", s.lock + "-b/c", s.lock + "0"} {
		s.granted(store.AcquireRequest{Lock: name, OwnerID: "B", Scope: store.Subtree})
	}
	s.heldBy(lease)
	s.released(lease)
	s.granted(store.AcquireRequest{Lock: s.lock + "/a/b", OwnerID: "B"})
}

func (s *suite) subtreeHeldUp() {
	below := s.granted(store.AcquireRequest{Lock: s.lock + "/a/b", OwnerID: "A", TTL: long})
	reader := s.granted(store.AcquireRequest{Lock: s.lock + "/c", OwnerID: "B", Mode: store.Shared, TTL: 2 * long})
	s.refused(store.AcquireRequest{Lock: s.lock, OwnerID: "C", Scope: store.Subtree}, "B")
	s.refused(store.AcquireRequest{Lock: s.lock, OwnerID: "C", Mode: store.Shared, Scope: store.Subtree}, "A")
	s.released(s.acquire("C", long)) // the name alone
	s.released(below)
	s.refused(store.AcquireRequest{Lock: s.lock, OwnerID: "C", Scope: store.Subtree}, "B")
	s.released(s.granted(store.AcquireRequest{Lock: s.lock, OwnerID: "C", Mode: store.Shared, Scope: store.Subtree}))
	s.released(reader)
	s.heldBy(s.subtree("C"))
}

// subtreeOrNames acquires a subtree and names in it at the same time, again and again.
func (s *suite) subtreeOrNames() {
	s.oneOrOthers(func(i int) store.AcquireRequest {
		request := store.AcquireRequest{Lock: s.lock, OwnerID: fmt.Sprint("client ", i), Scope: store.Subtree}
		if i%2 == 0 {
			request.Lock, request.Scope = store.Name(fmt.Sprintf("%s/%d", s.lock, i)), store.Node
		}
		return request
	}, func(lease store.Lease) bool { return lease.Scope == store.Subtree })
}

func (s *suite) subtreeReplaced() {
	late := s.granted(store.AcquireRequest{Lock: s.lock, OwnerID: "A", Scope: store.Subtree, TTL: store.TTLMin})
	s.awaitExpiry()
	below := s.granted(store.AcquireRequest{Lock: s.lock + "/a", OwnerID: "B", TTL: long})
	if below.Token <= late.Token || below.GrantedAt.Before(late.ExpiresAt) {
		s.Errorf("%+v was granted while %+v was live", below, late)
	}
	s.renewalLost(late, "expired")
	s.refused(store.AcquireRequest{Lock: s.lock, OwnerID: "C", Scope: store.Subtree}, "B")
	s.released(below)
	s.heldBy(s.subtree("C"))
	s.lost(s.Release(s.Context(), late.Ref()), "superseded")
}

func (s *suite) tokensRiseInTree() {
	last := int64(0)
	for round := range 3 {
		for _, request := range []store.AcquireRequest{
			{Lock: s.lock, Scope: store.Subtree}, {Lock: s.lock + "/a"}, {Lock: s.lock + "/a/b", Mode: store.Shared},
			{Lock: s.lock + "/a", Scope: store.Subtree},
		} {
			request.OwnerID = fmt.Sprint("round ", round)
			lease := s.granted(request)
			if lease.Token <= last {
				s.Errorf("token %d was granted on %s, after token %d", lease.Token, lease.Lock, last)
			}
			last = lease.Token
			s.released(lease)
		}
	}
}
