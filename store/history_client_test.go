package store_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/storetest"
)

// historyClient works on a few locks as clients do, and as they should not: it writes late, twice, out of order, and with tokens
// that it made up. What it asked and was told is in operations.
type historyClient struct {
	id       int
	gateway  *engine.Engine
	chance   *rand.Rand
	clock    func() int64 // nanoseconds since the history began; it only rises
	names    []store.Name
	slots    map[store.Name]chan struct{} // to be taken for the time of a call
	together bool                         // write to several resources in one transaction, too
	trees    bool                         // ask for subtrees, to share, and for leases in a session, too

	sessions   []store.Session  // the latest last
	tenures    []*historyTenure // the latest last
	requests   int
	operations []porcupine.Operation
}

// historyTenure is what a client knows of a lease that it was granted. It may be over.
type historyTenure struct {
	lease    store.Lease
	sequence int64
	writes   []store.Write
}

// historyTenuresMax is how many leases a client remembers to misuse.
const historyTenuresMax = 6

// work visits locks until over is closed. What is under way then is finished.
func (c *historyClient) work(ctx context.Context, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		default:
		}
		if tenure := c.visit(ctx, c.names[c.chance.IntN(len(c.names))]); tenure != nil {
			c.hold(ctx, tenure)
		}
		c.misbehave(ctx)
	}
}

// visit tries to acquire the lock. It asks again where it was not told the outcome.
func (c *historyClient) visit(ctx context.Context, name store.Name) *historyTenure {
	c.requests++
	request := store.AcquireRequest{
		Lock: name, OwnerID: fmt.Sprintf("client-%d", c.id), TTL: store.TTLMin + time.Duration(c.chance.IntN(50))*time.Millisecond,
		RequestID: fmt.Sprintf("%d-%d", c.id, c.requests),
	}
	if c.trees {
		c.amongOthers(ctx, &request)
	}
	call := historyCall{resources: []store.Name{name}, acquire: &request}
	answer := c.insist(ctx, call)
	if c.oneIn(20) {
		answer = c.ask(ctx, call)
	}
	if answer.told.Code != storetest.CodeGranted {
		time.Sleep(time.Duration(c.chance.Int64N(int64(10 * time.Millisecond)))) // and leaves the machine to those who hold something
		return nil
	}
	tenure := &historyTenure{lease: store.Lease{
		Lock: name, OwnerID: request.OwnerID, ID: answer.told.ID, Token: answer.told.Token, TTL: cmp.Or(request.TTL, store.TTLMin),
		Mode: request.Mode, Scope: request.Scope, SessionID: request.SessionID,
	}}
	c.tenures = append(c.tenures, tenure)
	if len(c.tenures) > historyTenuresMax {
		c.tenures = c.tenures[1:]
	}
	return tenure
}

// hold does what a holder does, and then releases the lock, or forgets to.
func (c *historyClient) hold(ctx context.Context, tenure *historyTenure) {
	for range c.chance.IntN(c.diligence(tenure)) {
		switch c.chance.IntN(10) {
		case 0:
			c.renew(ctx, tenure)
		case 1:
			c.read(ctx, tenure.lease.Lock)
		case 2:
			c.pause(tenure)
		case 3, 4:
			if c.together {
				c.transact(ctx, tenure)
			}
		default:
			c.writeNext(ctx, tenure)
		}
	}
	switch {
	case c.oneIn(3) && tenure.lease.SessionID == uuid.Nil:
	case tenure.lease.SessionID != uuid.Nil && c.oneIn(2):
		c.endSession(ctx, tenure.lease.SessionID)
	default:
		c.release(ctx, tenure)
	}
}

// pause is a process that stands still, often for longer than its lease lasts.
func (c *historyClient) pause(tenure *historyTenure) {
	if c.oneIn(3) {
		time.Sleep(time.Duration(c.chance.Int64N(int64(tenure.lease.TTL + tenure.lease.TTL/2))))
	}
}

// misbehave does something that nobody should do, with any of the leases that the client was ever granted.
func (c *historyClient) misbehave(ctx context.Context) {
	c.read(ctx, c.names[c.chance.IntN(len(c.names))])
	if len(c.tenures) == 0 {
		return
	}
	tenure := c.tenures[c.chance.IntN(len(c.tenures))]
	switch c.chance.IntN(8) {
	case 0:
		c.renew(ctx, tenure)
	case 1:
		c.release(ctx, tenure)
	case 2:
		if c.oneIn(4) {
			c.ask(ctx, historyCall{resources: []store.Name{tenure.lease.Lock}, broken: true})
		}
	case 3:
		made := c.draftWrite(tenure, nil)
		made.Token += 1 << 40
		c.ask(ctx, historyCall{resources: []store.Name{made.Resource}, write: &made})
	case 4, 5:
		c.writeAgain(ctx, tenure)
	default:
		c.writeNext(ctx, tenure)
	}
}

func (c *historyClient) renew(ctx context.Context, tenure *historyTenure) {
	renewal := historyRenewal{LeaseRef: tenure.lease.Ref(), ttl: store.TTLMin + time.Duration(c.chance.IntN(100))*time.Millisecond}
	if c.oneIn(10) {
		renewal.ID = uuid.New()
	}
	c.ask(ctx, historyCall{resources: []store.Name{tenure.lease.Lock}, renew: &renewal})
}

func (c *historyClient) release(ctx context.Context, tenure *historyTenure) {
	ref := tenure.lease.Ref()
	if c.oneIn(10) {
		ref.OwnerID = "somebody"
	}
	c.insist(ctx, historyCall{resources: []store.Name{ref.Lock}, release: &ref})
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
	c.ask(ctx, call)
}

// writeNext writes under the next number, or without one. It sends a numbered write again until it is told the outcome.
func (c *historyClient) writeNext(ctx context.Context, tenure *historyTenure) {
	var number *int64
	if !c.oneIn(6) {
		tenure.sequence++
		number = new(int64)
		*number = tenure.sequence
	}
	write := c.draftWrite(tenure, number)
	tenure.writes = append(tenure.writes, write)
	call := historyCall{resources: []store.Name{write.Resource}, write: &write}
	if number == nil {
		c.ask(ctx, call)
		return
	}
	c.insist(ctx, call)
}

// writeAgain sends an earlier write once more, as a network does that delivers twice or late; sometimes with other content.
func (c *historyClient) writeAgain(ctx context.Context, tenure *historyTenure) {
	if len(tenure.writes) == 0 {
		return
	}
	write := tenure.writes[max(0, len(tenure.writes)-1-c.chance.IntN(3))]
	if c.oneIn(4) {
		write.Value = []byte("another value")
	}
	c.ask(ctx, historyCall{resources: []store.Name{write.Resource}, write: &write})
}

var historyKeys = []store.Name{"a", "b"}

func (c *historyClient) draftWrite(tenure *historyTenure, number *int64) store.Write {
	c.requests++
	write := store.Write{
		WriteToken: store.WriteToken{Resource: c.within(tenure), Token: tenure.lease.Token, Sequence: number},
		Operation: store.Operation{
			Kind: store.Put, Key: historyKeys[c.chance.IntN(len(historyKeys))],
			Value: fmt.Appendf(nil, "%d of client %d", c.requests, c.id), ContentType: "text/plain",
		},
	}
	if c.oneIn(6) {
		write.Kind, write.Value, write.ContentType = store.Delete, nil, ""
	}
	if c.oneIn(2) {
		write.LeaseID = &tenure.lease.ID
	}
	if c.oneIn(8) {
		expect := c.chance.Int64N(4) - 1
		write.Expect = &expect
	}
	return write
}

// transact changes the resource together with another one that the client holds, or once held.
func (c *historyClient) transact(ctx context.Context, tenure *historyTenure) {
	other := c.tenures[c.chance.IntN(len(c.tenures))]
	var writes []store.Write
	for _, t := range []*historyTenure{tenure, other} {
		t.sequence++
		number := t.sequence
		writes = append(writes, c.draftWrite(t, &number))
	}
	if writes[0].Resource == writes[1].Resource {
		return
	}
	slices.SortFunc(writes, func(a, b store.Write) int { return cmp.Compare(a.Resource, b.Resource) })
	var transaction store.Transaction
	var names []store.Name
	for _, write := range writes {
		transaction.Tokens = append(transaction.Tokens, write.WriteToken)
		transaction.Operations = append(transaction.Operations, store.ResourceOperation{Resource: write.Resource, Operation: write.Operation})
		names = append(names, write.Resource)
	}
	call := historyCall{resources: names, transaction: &transaction}
	c.insist(ctx, call)
	if c.oneIn(10) {
		c.ask(ctx, call)
	}
}

// insist asks until it is told the outcome. What was sent before has then happened, or can have no effect any more: its end is
// known, which spares the checker from trying it at every later moment. The exception is a write that was refused for
// the records as they were, or an acquire for the holder of that moment: an earlier attempt may still find them otherwise.
func (c *historyClient) insist(ctx context.Context, call historyCall) historyAnswer {
	first := len(c.operations)
	answer := c.ask(ctx, call)
	for answer.told.Code == storetest.CodeUnknown {
		answer = c.ask(ctx, call)
	}
	switch answer.told.Code {
	case storetest.CodeHeld, storetest.CodeNotFound, string(store.VerdictVersionMismatch), storetest.CodeNotApplied:
		return answer
	}
	for i := first; i < len(c.operations); i++ {
		c.operations[i].Return = c.operations[len(c.operations)-1].Return
	}
	return answer
}

// ask performs the call and notes what it was told. Now and then the client loses patience before it is answered.
func (c *historyClient) ask(ctx context.Context, call historyCall) historyAnswer {
	if !call.reads() && c.oneIn(60) {
		hasty, cancel := context.WithTimeout(ctx, time.Duration(c.chance.Int64N(int64(3*time.Millisecond))))
		defer cancel()
		ctx = hasty
	}
	for _, name := range call.resources {
		c.slots[name] <- struct{}{}
	}
	called := c.clock()
	answer := call.perform(ctx, c.gateway)
	returned := c.clock()
	for _, name := range call.resources {
		<-c.slots[name]
	}
	if call.end != nil && answer.told.Code == storetest.CodeNotApplied {
		answer.told.Code = storetest.CodeUnknown // it is more than one statement
	}
	if answer.told.Code == storetest.CodeUnknown {
		returned = math.MaxInt64 // what was sent may still arrive
	}
	if call.end != nil {
		c.operations = append(c.operations, porcupine.Operation{
			ClientId: c.id, Input: historyCall{over: call.end}, Output: historyAnswer{told: storetest.Told{Code: storetest.CodeDone}},
			Call: called, Return: returned,
		})
	}
	if answer.told.Code != storetest.CodeNotApplied {
		c.operations = append(c.operations, porcupine.Operation{
			ClientId: c.id, Input: call, Output: answer, Call: called, Return: returned,
		})
	}
	return answer
}

func (c *historyClient) oneIn(n int) bool { return c.chance.IntN(n) == 0 }
