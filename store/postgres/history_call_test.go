package postgres_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/storetest"
)

// historyCall is one operation of a client. Exactly one of its fields is set, besides the resources it concerns. The
// end of a session is two of them: it is over, and then its fences are closed.
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

// historyResult is the answer to a call, and the lease that an acquire made, also where its answer was lost.
type historyResult struct {
	answer storetest.Answer
	made   storetest.Grant
}

// historyStore is a Store or a Service.
type historyStore interface {
	storetest.Provider
	Write(ctx context.Context, writes []store.Write) ([]store.Result, error)
	Transact(ctx context.Context, transaction store.Transaction) (store.TransactionResult, error)
	Fence(ctx context.Context, resource store.Name) (store.Fence, error)
	Record(ctx context.Context, resource, key store.Name) (store.Record, error)
}

// perform makes the call.
func (c historyCall) perform(ctx context.Context, s historyStore) historyResult {
	switch {
	case c.acquire != nil:
		lease, err := s.Acquire(ctx, *c.acquire)
		return historyResult{storetest.LeaseAnswer(storetest.CodeGranted, lease, err),
			storetest.GrantOf(lease, c.acquire.RequestID)}
	case c.renew != nil:
		lease, err := s.Renew(ctx, c.renew.LeaseRef, c.renew.ttl)
		return historyResult{answer: storetest.LeaseAnswer(storetest.CodeRenewed, lease, err)}
	case c.release != nil:
		return historyResult{answer: storetest.DoneAnswer(storetest.CodeReleased, s.Release(ctx, *c.release))}
	case c.broken:
		lease, err := s.Break(ctx, c.resources[0], "history")
		return historyResult{answer: storetest.LeaseAnswer(storetest.CodeBroken, lease, err)}
	case c.write != nil:
		result, err := commit(ctx, s, *c.write)
		if err != nil {
			return historyResult{answer: storetest.ErrorAnswer(err)}
		}
		return historyResult{answer: storetest.WriteAnswer(result)}
	case c.transaction != nil:
		result, err := s.Transact(ctx, *c.transaction)
		return historyResult{answer: storetest.TransactionAnswer(result, err)}
	case c.end != nil:
		_, err := s.EndSession(ctx, *c.end)
		return historyResult{answer: storetest.DoneAnswer(storetest.CodeReleased, err)}
	case c.keepAlive != nil:
		session, err := s.KeepAlive(ctx, *c.keepAlive)
		return historyResult{answer: storetest.SessionAnswer(storetest.CodeRenewed, session, err)}
	case c.lock:
		lock, err := s.Lock(ctx, c.resources[0])
		return historyResult{answer: storetest.LockAnswer(lock, err)}
	case c.fence:
		fence, err := s.Fence(ctx, c.resources[0])
		return historyResult{answer: storetest.FenceAnswer(fence, err)}
	}
	record, err := s.Record(ctx, c.resources[0], c.record)
	return historyResult{answer: storetest.RecordAnswer(record, err)}
}

// commit sends one write, through a group commit if there is one.
func commit(ctx context.Context, s historyStore, write store.Write) (store.Result, error) {
	type committer interface {
		Commit(ctx context.Context, write store.Write) (store.Result, error)
	}
	if s, ok := s.(committer); ok {
		return s.Commit(ctx, write)
	}
	results, err := s.Write(ctx, []store.Write{write})
	if err != nil {
		return store.Result{}, err
	}
	return results[0], nil
}

// reads reports whether the call changes nothing.
func (c historyCall) reads() bool { return c.lock || c.fence || c.record != "" }

// predict is what the model says of the call.
func (c historyCall) predict(state storetest.Model, result historyResult) (storetest.Model, storetest.Answer) {
	switch {
	case c.write != nil:
		return state.Write(*c.write)
	case c.transaction != nil:
		return state.Transact(*c.transaction)
	}
	switch {
	case c.over != nil:
		return state.SessionOver(*c.over, storetest.Released, 0), storetest.Answer{Code: storetest.CodeDone}
	case c.end != nil:
		if state.Live(*c.end) {
			return state, storetest.Answer{Code: "the session is to be over first"}
		}
		return state.EndSession(*c.end)
	case c.keepAlive != nil:
		return state.KeepAlive(*c.keepAlive, result.answer.ExpiresAt)
	}
	name := c.resources[0]
	switch {
	case c.acquire != nil:
		return state.Acquire(*c.acquire, result.made)
	case c.renew != nil:
		return state.Renew(c.renew.LeaseRef, c.renew.ttl, result.answer.ExpiresAt)
	case c.release != nil:
		return state.Release(*c.release)
	case c.broken:
		return state.Break(name)
	case c.lock:
		return state, state.Lock(name)
	case c.fence:
		return state, state.Fence(name)
	}
	return state, state.Resource(name).Record(c.record)
}

// historySteps returns the possible states after the call; none if the model could not have given the answer. Leases
// run out at any moment: the answer is allowed if it is right with any of the leases run out just before. As few as
// possible are taken to have run out, since the others still may. The effects of a break and of a call with an unknown
// outcome depend on which.
func historySteps(state storetest.Model, call historyCall, result historyResult) []any {
	var steps []any
	for _, moment := range historyMoments(state, call.concerns(state)) {
		next, answer := call.predict(moment, result)
		switch {
		case !result.allows(call, answer):
		case call.reads():
			// A read sees the data of one moment, but reads the clock later, without the fence's lock. A renewal may
			// come between, so expiry seen by a read doesn't bind the state.
			return []any{state}
		case call.broken, result.answer.Code == storetest.CodeUnknown:
			steps = append(steps, next)
		default:
			return []any{next}
		}
	}
	return steps
}

// allows reports whether the answer agrees with the model's. A call whose outcome is unknown may have happened at any
// time after it was made; if it never did, that is as if it had happened after all others. An acquire with an unknown
// outcome was granted: resolve has removed the others.
func (r historyResult) allows(call historyCall, predicted storetest.Answer) bool {
	switch {
	case r.answer.Code != storetest.CodeUnknown:
		return predicted.Same(r.answer)
	case call.acquire != nil:
		return predicted.Token == r.made.Token || predicted.Code == storetest.CodeLost
	}
	return true
}

// concerns are the names whose leases the answer depends on.
func (c historyCall) concerns(state storetest.Model) []store.Name {
	switch {
	case c.acquire != nil:
		return state.Around(c.acquire.Lock)
	case c.renew != nil, c.release != nil, c.broken, c.lock:
		return c.resources
	}
	return slices.DeleteFunc(slices.Clone(c.resources),
		func(name store.Name) bool { return !state.Policy(name).RequireLiveLease })
}

// historyMoments are the states that time alone may have made: each set of the running leases may have run out.
func historyMoments(state storetest.Model, resources []store.Name) []storetest.Model {
	moments := []storetest.Model{state}
	for _, name := range resources {
		for _, grant := range state.Resource(name).Running() {
			for _, moment := range slices.Clone(moments) {
				moments = append(moments, moment.Expire(name, grant.Token))
			}
		}
	}
	return moments
}

// historyModel is the contract for the checker. Resources are independent of each other unless there are transactions.
func historyModel(initial storetest.Model, partitioned bool) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{initial} },
		Step: func(state, input, output any) []any {
			return historySteps(state.(storetest.Model), input.(historyCall), output.(historyResult))
		},
		Equal:             func(a, b any) bool { return a.(storetest.Model).Equal(b.(storetest.Model)) },
		Hash:              func(state any) uint64 { return state.(storetest.Model).Hash() },
		DescribeOperation: func(input, output any) string { return fmt.Sprint(input, " → ", output.(historyResult).answer) },
		DescribeState:     func(state any) string { return state.(storetest.Model).Summary() },
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

// String shows the call in a line.
func (c historyCall) String() string {
	switch {
	case c.acquire != nil:
		return fmt.Sprintf("%s acquires %s %s %s in session %s (request %s)", c.acquire.OwnerID, c.acquire.Mode,
			c.acquire.Scope,
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
		return fmt.Sprintf("%s %s %s=%q under %s", c.write.Kind, c.write.Resource, c.write.Key, c.write.Value,
			tokenText(c.write.WriteToken))
	case c.transaction != nil:
		text := "transact"
		for _, token := range c.transaction.Tokens {
			text += fmt.Sprintf(" %s under %s", token.Resource, tokenText(token))
		}
		return text
	case c.lock:
		return fmt.Sprintf("read lock %s", c.resources[0])
	case c.fence:
		return fmt.Sprintf("read fence %s", c.resources[0])
	}
	return fmt.Sprintf("read %s %s", c.resources[0], c.record)
}

// tokenText is 34 or 34.2.
func tokenText(token store.WriteToken) string {
	if token.Sequence == nil {
		return fmt.Sprint(token.Token)
	}
	return fmt.Sprintf("%d.%d", token.Token, *token.Sequence)
}
