package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/storetest"
)

// historyCall is one operation that a client asked for. Exactly one of its fields is set, besides the resources it concerns. The end
// of a session is two of them: it is over, and then its fences are closed.
type historyCall struct {
	resources []store.Name

	acquire     *store.AcquireRequest
	renew       *historyRenewal
	release     *store.LeaseRef
	broken      bool
	over        *uuid.UUID
	end         *uuid.UUID
	keepAlive   *uuid.UUID
	write       *store.Write
	transaction *store.Transaction
	lock        bool
	fence       bool
	record      store.Name
}

type historyRenewal struct {
	store.LeaseRef
	ttl time.Duration
}

// historyAnswer is what the client was told. made is the lease that came into being by an acquire, also where nobody was told.
type historyAnswer struct {
	told storetest.Told
	made storetest.Grant
}

// perform asks the store.
func (c historyCall) perform(ctx context.Context, s *engine.Engine) historyAnswer {
	switch {
	case c.acquire != nil:
		lease, err := s.Acquire(ctx, *c.acquire)
		return historyAnswer{storetest.ToldLease(storetest.CodeGranted, lease, err), storetest.GrantOf(lease, c.acquire.RequestID)}
	case c.renew != nil:
		lease, err := s.Renew(ctx, c.renew.LeaseRef, c.renew.ttl)
		return historyAnswer{told: storetest.ToldLease(storetest.CodeRenewed, lease, err)}
	case c.release != nil:
		return historyAnswer{told: storetest.ToldDone(storetest.CodeReleased, s.Release(ctx, *c.release))}
	case c.broken:
		lease, err := s.Break(ctx, c.resources[0], "history")
		return historyAnswer{told: storetest.ToldLease(storetest.CodeBroken, lease, err)}
	case c.write != nil:
		result, err := s.Commit(ctx, *c.write)
		if err != nil {
			return historyAnswer{told: storetest.ToldError(err)}
		}
		return historyAnswer{told: storetest.ToldWrite(result)}
	case c.transaction != nil:
		result, err := s.Transact(ctx, *c.transaction)
		return historyAnswer{told: storetest.ToldTransaction(result, err)}
	case c.end != nil:
		_, err := s.EndSession(ctx, *c.end)
		return historyAnswer{told: storetest.ToldDone(storetest.CodeReleased, err)}
	case c.keepAlive != nil:
		session, err := s.KeepAlive(ctx, *c.keepAlive)
		return historyAnswer{told: storetest.ToldSession(storetest.CodeRenewed, session, err)}
	case c.lock:
		lock, err := s.Lock(ctx, c.resources[0])
		return historyAnswer{told: storetest.ToldLock(lock, err)}
	case c.fence:
		fence, err := s.Fence(ctx, c.resources[0])
		return historyAnswer{told: storetest.ToldFence(fence, err)}
	}
	record, err := s.Record(ctx, c.resources[0], c.record)
	return historyAnswer{told: storetest.ToldRecord(record, err)}
}

// reads reports whether the call changes nothing.
func (c historyCall) reads() bool { return c.lock || c.fence || c.record != "" }

// foretell is what the model says of the call.
func (c historyCall) foretell(world storetest.World, answer historyAnswer) (storetest.World, storetest.Told) {
	switch {
	case c.write != nil:
		return world.Write(*c.write)
	case c.transaction != nil:
		return world.Transact(*c.transaction)
	}
	switch {
	case c.over != nil:
		return world.SessionOver(*c.over, storetest.Released, 0), storetest.Told{Code: storetest.CodeDone}
	case c.end != nil:
		if slices.Contains(world.LiveSessions(), *c.end) {
			return world, storetest.Told{Code: "the session is to be over first"}
		}
		return world.EndSession(*c.end)
	case c.keepAlive != nil:
		return world.KeepAlive(*c.keepAlive, answer.told.ExpiresAt)
	}
	name := c.resources[0]
	switch {
	case c.acquire != nil:
		return world.Acquire(*c.acquire, answer.made)
	case c.renew != nil:
		return world.Renew(c.renew.LeaseRef, c.renew.ttl, answer.told.ExpiresAt)
	case c.release != nil:
		return world.Release(*c.release)
	case c.broken:
		return world.Break(name)
	case c.lock:
		return world, world.Lock(name)
	case c.fence:
		return world, world.Fence(name)
	}
	return world, world.Resource(name).Record(c.record)
}

// historySteps says how things may stand after the call, nowhere if the model could not have given the answer. Leases run out at any
// moment: the answer is allowed if it is right with any of the leases run out just before. As few of them as possible are taken to have
// run out, since the others still may; but what a break ends, and what was done without telling, depends on which.
func historySteps(world storetest.World, call historyCall, answer historyAnswer) []any {
	var steps []any
	for _, moment := range historyMoments(world, call.concerns(world)) {
		next, told := call.foretell(moment, answer)
		switch {
		case !answer.allows(call, told):
		case call.reads():
			// It sees one moment of the data, but reads the clock after it, beside the fence's lock: a renewal
			// may come between, so that what it says of time binds nobody.
			return []any{world}
		case call.broken, answer.told.Code == storetest.CodeUnknown:
			steps = append(steps, next)
		default:
			return []any{next}
		}
	}
	return steps
}

// allows reports whether the client may have been told what the model foretells. A call whose outcome is unknown may have
// happened at any time after it was made; if it never did, that is as if it had happened after all others. But an
// acquire is known to have been granted, since those that were not are left out.
func (a historyAnswer) allows(call historyCall, foretold storetest.Told) bool {
	switch {
	case a.told.Code != storetest.CodeUnknown:
		return foretold.Same(a.told)
	case call.acquire != nil:
		return foretold.Token == a.made.Token || foretold.Code == storetest.CodeLost
	}
	return true
}

// concerns are the names of the leases on which the answer depends: whether they run.
func (c historyCall) concerns(world storetest.World) []store.Name {
	switch {
	case c.acquire != nil:
		return world.Around(c.acquire.Lock)
	case c.renew != nil, c.release != nil, c.broken, c.lock:
		return c.resources
	}
	return slices.DeleteFunc(slices.Clone(c.resources), func(name store.Name) bool { return !world.Policy(name).RequireLiveLease })
}

// historyMoments are the states that time alone may have made: none of the leases has run out, or some have.
func historyMoments(world storetest.World, resources []store.Name) []storetest.World {
	moments := []storetest.World{world}
	for _, name := range resources {
		for _, grant := range world.Resource(name).Running() {
			for _, moment := range slices.Clone(moments) {
				moments = append(moments, moment.Expire(name, grant.Token))
			}
		}
	}
	return moments
}

// historyModel is the contract for the checker. Resources are independent of each other unless there are transactions.
func historyModel(initial storetest.World, partitioned bool) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{initial} },
		Step: func(state, input, output any) []any {
			return historySteps(state.(storetest.World), input.(historyCall), output.(historyAnswer))
		},
		Equal:             func(a, b any) bool { return a.(storetest.World).Equal(b.(storetest.World)) },
		Hash:              func(state any) uint64 { return state.(storetest.World).Hash() },
		DescribeOperation: func(input, output any) string { return fmt.Sprint(input, " → ", output.(historyAnswer).told) },
		DescribeState:     func(state any) string { return state.(storetest.World).Summary() },
	}
	if partitioned {
		model.Partition = historyByResource
	}
	return model.ToModel()
}

func historyByResource(operations []porcupine.Operation) [][]porcupine.Operation {
	of := map[store.Name][]porcupine.Operation{}
	for _, operation := range operations {
		name := operation.Input.(historyCall).resources[0]
		of[name] = append(of[name], operation)
	}
	var parts [][]porcupine.Operation
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, of[name])
	}
	return parts
}

// String shows the call as a group would.
func (c historyCall) String() string {
	switch {
	case c.acquire != nil:
		return fmt.Sprintf("%s acquires %s %s %s in session %s (request %s)", c.acquire.OwnerID, c.acquire.Mode, c.acquire.Scope,
			c.acquire.Lock, c.acquire.SessionID, c.acquire.RequestID)
	case c.renew != nil:
		return fmt.Sprintf("%s renews %s token %d", c.renew.OwnerID, c.renew.Lock, c.renew.Token)
	case c.release != nil:
		return fmt.Sprintf("%s releases %s token %d", c.release.OwnerID, c.release.Lock, c.release.Token)
	case c.broken:
		return fmt.Sprintf("break %s", c.resources[0])
	case c.over != nil:
		return fmt.Sprintf("session %s is over", c.over)
	case c.end != nil:
		return fmt.Sprintf("end session %s", c.end)
	case c.keepAlive != nil:
		return fmt.Sprintf("keep session %s alive", c.keepAlive)
	case c.write != nil:
		return fmt.Sprintf("%s %s %s=%q under %s", c.write.Kind, c.write.Resource, c.write.Key, c.write.Value, claimText(c.write.WriteToken))
	case c.transaction != nil:
		text := "transact"
		for _, claim := range c.transaction.Tokens {
			text += fmt.Sprintf(" %s under %s", claim.Resource, claimText(claim))
		}
		return text
	case c.lock:
		return fmt.Sprintf("read lock %s", c.resources[0])
	case c.fence:
		return fmt.Sprintf("read fence %s", c.resources[0])
	}
	return fmt.Sprintf("read %s %s", c.resources[0], c.record)
}

// claimText is 34 or 34.2.
func claimText(claim store.WriteToken) string {
	if claim.Sequence == nil {
		return fmt.Sprint(claim.Token)
	}
	return fmt.Sprintf("%d.%d", claim.Token, *claim.Sequence)
}
