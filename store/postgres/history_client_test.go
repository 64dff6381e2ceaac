package postgres_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/storetest"
)

// historyClient works on a few locks as clients do, and as they should not: it writes late, twice, out of order, and
// with tokens that it made up. Its calls and their answers are in operations.
type historyClient struct {
	id       int
	gateway  enginetest.Served
	chance   *rand.Rand
	clock    func() int64 // nanoseconds since the history began; it only rises
	names    []store.Name
	slots    map[store.Name]chan struct{} // to be taken for the time of a call
	together bool                         // write to several resources in one transaction, too
	trees    bool                         // ask for subtrees, to share, and for leases in a session, too

	sessions   []store.Session // the latest last
	held       []*heldLease    // the latest last
	requests   int
	operations []porcupine.Operation
}

// heldLease is a lease as its client knows it. It may have ended.
type heldLease struct {
	lease    store.Lease
	sequence int64
	writes   []store.Write
}

// historyHeldMax is how many leases a client remembers to misuse.
const historyHeldMax = 6

// work visits locks until over is closed. What is under way then is finished.
func (c *historyClient) work(ctx context.Context, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		default:
		}
		if held := c.tryAcquire(ctx, c.names[c.chance.IntN(len(c.names))]); held != nil {
			c.hold(ctx, held)
		}
		c.misbehave(ctx)
	}
}

// tryAcquire acquires the lock once, and sends the request again while its outcome is unknown.
func (c *historyClient) tryAcquire(ctx context.Context, name store.Name) *heldLease {
	c.requests++
	request := store.AcquireRequest{
		Lock: name, OwnerID: fmt.Sprintf("client-%d", c.id),
		TTL:       store.TTLMin + time.Duration(c.chance.IntN(50))*time.Millisecond,
		RequestID: fmt.Sprintf("%d-%d", c.id, c.requests),
	}
	if c.trees {
		c.vary(ctx, &request)
	}
	call := historyCall{resources: []store.Name{name}, acquire: &request}
	result := c.sendUntilKnown(ctx, call)
	if c.oneIn(20) {
		result = c.send(ctx, call)
	}
	if result.answer.Code != storetest.CodeGranted {
		time.Sleep(time.Duration(c.chance.Int64N(int64(10 * time.Millisecond)))) // leaves the machine to the holders
		return nil
	}
	held := &heldLease{lease: store.Lease{
		Lock: name, OwnerID: request.OwnerID, ID: result.answer.ID, Token: result.answer.Token,
		TTL:  cmp.Or(request.TTL, store.TTLMin),
		Mode: request.Mode, Scope: request.Scope, SessionID: request.SessionID,
	}}
	c.held = append(c.held, held)
	if len(c.held) > historyHeldMax {
		c.held = c.held[1:]
	}
	return held
}

// hold works under a lease, and then releases it, or forgets to.
func (c *historyClient) hold(ctx context.Context, held *heldLease) {
	for range c.chance.IntN(c.actionsMax(held)) {
		switch c.chance.IntN(10) {
		case 0:
			c.renew(ctx, held)
		case 1:
			c.read(ctx, held.lease.Lock)
		case 2:
			c.pause(held)
		case 3, 4:
			if c.together {
				c.transact(ctx, held)
			}
		default:
			c.writeNext(ctx, held)
		}
	}
	switch {
	case c.oneIn(3) && held.lease.SessionID == uuid.Nil:
	case held.lease.SessionID != uuid.Nil && c.oneIn(2):
		c.sendUntilKnown(ctx, historyCall{end: &held.lease.SessionID})
	default:
		c.release(ctx, held)
	}
}

// pause is a process that is frozen, often for longer than its lease lasts.
func (c *historyClient) pause(held *heldLease) {
	if c.oneIn(3) {
		time.Sleep(time.Duration(c.chance.Int64N(int64(held.lease.TTL + held.lease.TTL/2))))
	}
}

// misbehave makes a call that no client should make, under any of the leases that the client was ever granted.
func (c *historyClient) misbehave(ctx context.Context) {
	c.read(ctx, c.names[c.chance.IntN(len(c.names))])
	if len(c.held) == 0 {
		return
	}
	held := c.held[c.chance.IntN(len(c.held))]
	switch c.chance.IntN(8) {
	case 0:
		c.renew(ctx, held)
	case 1:
		c.release(ctx, held)
	case 2:
		if c.oneIn(4) {
			c.send(ctx, historyCall{resources: []store.Name{held.lease.Lock}, broken: true})
		}
	case 3:
		made := c.newWrite(held, nil)
		made.Token += 1 << 40
		c.send(ctx, historyCall{resources: []store.Name{made.Resource}, write: &made})
	case 4, 5:
		c.writeAgain(ctx, held)
	default:
		c.writeNext(ctx, held)
	}
}

func (c *historyClient) renew(ctx context.Context, held *heldLease) {
	renewal := historyRenewal{LeaseRef: held.lease.Ref(),
		ttl: store.TTLMin + time.Duration(c.chance.IntN(100))*time.Millisecond}
	if c.oneIn(10) {
		renewal.ID = uuid.New()
	}
	c.send(ctx, historyCall{resources: []store.Name{held.lease.Lock}, renew: &renewal})
}

func (c *historyClient) release(ctx context.Context, held *heldLease) {
	ref := held.lease.Ref()
	if c.oneIn(10) {
		ref.OwnerID = "somebody"
	}
	c.sendUntilKnown(ctx, historyCall{resources: []store.Name{ref.Lock}, release: &ref})
}

// read looks at the lock, its fence or a record.
func (c *historyClient) read(ctx context.Context, name store.Name) {
	call := historyCall{resources: []store.Name{name}}
	switch c.chance.IntN(3) {
	case 0:
		call.lock = true
	case 1:
		call.fence = true
	default:
		call.record = historyKeys[c.chance.IntN(len(historyKeys))]
	}
	c.send(ctx, call)
}

// writeNext writes under the next number, or without one. It sends a numbered write again until its outcome is known.
func (c *historyClient) writeNext(ctx context.Context, held *heldLease) {
	var number *int64
	if !c.oneIn(6) {
		held.sequence++
		number = new(int64)
		*number = held.sequence
	}
	write := c.newWrite(held, number)
	held.writes = append(held.writes, write)
	call := historyCall{resources: []store.Name{write.Resource}, write: &write}
	if number == nil {
		c.send(ctx, call)
		return
	}
	c.sendUntilKnown(ctx, call)
}

// writeAgain sends an earlier write once more, as a network does that delivers twice or late; sometimes with other
// content.
func (c *historyClient) writeAgain(ctx context.Context, held *heldLease) {
	if len(held.writes) == 0 {
		return
	}
	write := held.writes[max(0, len(held.writes)-1-c.chance.IntN(3))]
	if c.oneIn(4) {
		write.Value = []byte("another value")
	}
	c.send(ctx, historyCall{resources: []store.Name{write.Resource}, write: &write})
}

var historyKeys = []store.Name{"a", "b"}

func (c *historyClient) newWrite(held *heldLease, number *int64) store.Write {
	c.requests++
	write := store.Write{
		WriteToken: store.WriteToken{Resource: c.within(held), Token: held.lease.Token, Sequence: number},
		Operation: store.Operation{
			Kind: store.Put, Key: historyKeys[c.chance.IntN(len(historyKeys))],
			Value: fmt.Appendf(nil, "%d of client %d", c.requests, c.id), ContentType: "text/plain",
		},
	}
	if c.oneIn(6) {
		write.Kind, write.Value, write.ContentType = store.Delete, nil, ""
	}
	if c.oneIn(2) {
		write.LeaseID = &held.lease.ID
	}
	if c.oneIn(8) {
		expect := c.chance.Int64N(4) - 1
		write.Expect = &expect
	}
	return write
}

// transact changes the resource together with another one that the client holds, or once held.
func (c *historyClient) transact(ctx context.Context, held *heldLease) {
	other := c.held[c.chance.IntN(len(c.held))]
	var writes []store.Write
	for _, t := range []*heldLease{held, other} {
		t.sequence++
		number := t.sequence
		writes = append(writes, c.newWrite(t, &number))
	}
	if writes[0].Resource == writes[1].Resource {
		return
	}
	slices.SortFunc(writes, func(a, b store.Write) int { return cmp.Compare(a.Resource, b.Resource) })
	var transaction store.Transaction
	var names []store.Name
	for _, write := range writes {
		transaction.Tokens = append(transaction.Tokens, write.WriteToken)
		transaction.Operations = append(transaction.Operations, store.ResourceOperation{Resource: write.Resource,
			Operation: write.Operation})
		names = append(names, write.Resource)
	}
	call := historyCall{resources: names, transaction: &transaction}
	c.sendUntilKnown(ctx, call)
	if c.oneIn(10) {
		c.send(ctx, call)
	}
}

// sendUntilKnown sends the call until its outcome is known. Earlier attempts have then happened, or can have no effect
// any more: their end is known, and the checker need not try them at every later moment. The exception is a write that
// was refused for its records, or an acquire for its holder: an earlier attempt may still find them otherwise.
func (c *historyClient) sendUntilKnown(ctx context.Context, call historyCall) historyResult {
	first := len(c.operations)
	result := c.send(ctx, call)
	for result.answer.Code == storetest.CodeUnknown {
		result = c.send(ctx, call)
	}
	switch result.answer.Code {
	case storetest.CodeHeld, storetest.CodeNotFound, string(store.VerdictVersionMismatch), storetest.CodeNotApplied:
		return result
	}
	for i := first; i < len(c.operations); i++ {
		c.operations[i].Return = c.operations[len(c.operations)-1].Return
	}
	return result
}

// send makes the call and records its answer. Now and then the client gives up before the answer.
func (c *historyClient) send(ctx context.Context, call historyCall) historyResult {
	if !call.reads() && c.oneIn(60) {
		hasty, cancel := context.WithTimeout(ctx, time.Duration(c.chance.Int64N(int64(3*time.Millisecond))))
		defer cancel()
		ctx = hasty
	}
	for _, name := range call.resources {
		c.slots[name] <- struct{}{}
	}
	called := c.clock()
	result := call.perform(ctx, c.gateway)
	returned := c.clock()
	for _, name := range call.resources {
		<-c.slots[name]
	}
	if call.end != nil && result.answer.Code == storetest.CodeNotApplied {
		result.answer.Code = storetest.CodeUnknown // it is more than one statement
	}
	if result.answer.Code == storetest.CodeUnknown {
		returned = math.MaxInt64 // it may still arrive
	}
	if call.end != nil {
		c.operations = append(c.operations, porcupine.Operation{
			ClientId: c.id, Input: historyCall{over: call.end},
			Output: historyResult{answer: storetest.Answer{Code: storetest.CodeDone}},
			Call:   called, Return: returned,
		})
	}
	if result.answer.Code != storetest.CodeNotApplied {
		c.operations = append(c.operations, porcupine.Operation{
			ClientId: c.id, Input: call, Output: result, Call: called, Return: returned,
		})
	}
	return result
}

func (c *historyClient) oneIn(n int) bool { return c.chance.IntN(n) == 0 }

var historyOfTrees = historyPlan{
	clients: 6, gateways: 2, together: true, trees: true,
	policies: []store.Policy{
		{Prefix: "tree", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin},
		{Prefix: "tree/a", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin},
		{Prefix: "tree/a/x", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin},
		{Prefix: "tree/b", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin},
	},
}

// TestHistoryOfTrees checks the same where clients take subtrees and names in them, exclusive or shared, some of them
// in sessions that they end.
func TestHistoryOfTrees(t *testing.T) { testHistories(t, historyOfTrees) }

// historySessions is how many sessions each client has. It also uses those that it has ended.
const historySessions = 4

// openSessions gives each client a session.
func (f *historyFixture) openSessions(t *testing.T, state storetest.Model, clients []*historyClient) storetest.Model {
	t.Helper()
	for _, client := range clients {
		for range historySessions {
			session, err := client.gateway.CreateSession(t.Context(),
				store.SessionRequest{OwnerID: fmt.Sprintf("client-%d", client.id), TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			client.sessions = append(client.sessions, session)
			state = state.WithSession(session)
		}
	}
	return state
}

// vary makes a request one for a shared lease, for the subtree, or in a session.
func (c *historyClient) vary(ctx context.Context, request *store.AcquireRequest) {
	request.Mode, request.Scope = store.Exclusive, store.Node
	if c.oneIn(4) {
		request.Mode = store.Shared
	}
	if c.oneIn(2) {
		request.Scope = store.Subtree
	}
	if c.oneIn(5) {
		session := c.sessions[c.chance.IntN(len(c.sessions))]
		request.SessionID, request.TTL = session.ID, 0
		if c.oneIn(4) {
			c.send(ctx, historyCall{keepAlive: &session.ID})
		}
	}
}

// actionsMax bounds the actions of a holder. One with a shared lease does less.
func (c *historyClient) actionsMax(held *heldLease) int {
	if held.lease.Mode == store.Shared {
		return 3
	}
	return 12
}

// within is a name that the held covers; now and then one that it does not.
func (c *historyClient) within(held *heldLease) store.Name {
	if !c.trees || held.lease.Scope != store.Subtree && !c.oneIn(10) {
		return held.lease.Lock
	}
	name := c.names[c.chance.IntN(len(c.names))]
	if strings.HasPrefix(string(name), string(held.lease.Lock)) || c.oneIn(10) {
		return name
	}
	return held.lease.Lock
}
