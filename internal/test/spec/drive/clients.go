package drive

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/store"
)

// Clients are concurrent clients of a few names. They work as clients do, and as they should not: they write late, twice,
// out of order, and with tokens that they made up; they pause for longer than their leases last, and give up before the
// answer comes.
type Clients struct {
	Count    int
	Gateways []spec.Service // a client uses one of them
	Names    []store.Name
	Weights  []spec.Weight
	Levels   []string // of transactions of SQL; empty: any
	Ways     []string // of their admission; empty: any
	Sessions int      // that each client has; it also uses those that it has ended
	// SlotsMax is how many calls may concern a name at a time: a checker's work doubles with each, and more than a few
	// bring no other order.
	SlotsMax int
	For      time.Duration
	Seed     uint64
}

// Run returns the calls of the clients, and the state that they began with.
func (c Clients) Run(ctx context.Context, initial spec.State) ([]spec.Call, spec.State, error) {
	began := time.Now()
	slots := map[store.Name]chan struct{}{}
	for _, name := range c.Names {
		slots[name] = make(chan struct{}, c.SlotsMax)
	}
	clients := make([]*client, c.Count)
	for i := range clients {
		one := &client{
			id: i, on: c.Gateways[i%len(c.Gateways)], slots: slots,
			random: rand.New(rand.NewPCG(c.Seed, uint64(i))), //nolint:gosec // it chooses what a test does
			clock:  func(at time.Time) int64 { return at.Sub(began).Nanoseconds() },
			draws: spec.Generator{Names: c.Names, Owners: []string{fmt.Sprint("client-", i)}, Weights: c.Weights,
				TTL: store.TTLMin, TTLSpread: 50 * time.Millisecond, Client: fmt.Sprint(i), Levels: c.Levels,
				Ways: c.Ways},
			sequences: map[int64]int64{},
		}
		for range c.Sessions {
			op := spec.Op{Kind: spec.OpenSession, Owner: one.draws.Owners[0], TTL: time.Hour}
			answer, chosen := spec.Perform(ctx, one.on, op)
			if answer.Code != spec.CodeDone {
				return nil, initial, fmt.Errorf("a session was not opened: %s", answer)
			}
			initial, _ = initial.Step(op, chosen)
			one.sessions = append(one.sessions, spec.Session{ID: chosen.ID})
		}
		clients[i] = one
	}
	var working sync.WaitGroup
	until := time.Now().Add(c.For)
	for _, one := range clients {
		working.Go(func() {
			for time.Now().Before(until) {
				one.work(ctx)
			}
		})
	}
	working.Wait()
	var calls []spec.Call
	for _, one := range clients {
		calls = append(calls, one.calls...)
	}
	// Everything is read after the clients: no acknowledged change may be missing.
	last := clients[0]
	last.calls = nil
	for _, op := range initial.Reads(c.Names) {
		if op.Kind != spec.ReadSession {
			last.send(ctx, op)
		}
	}
	return append(calls, last.calls...), initial, nil
}

// client is one of them, and what it knows.
type client struct {
	id     int
	on     spec.Service
	random *rand.Rand
	draws  spec.Generator
	slots  map[store.Name]chan struct{} // to be taken for the time of a call
	clock  func(at time.Time) int64

	leases    []spec.Lease // that it was granted; they may have ended
	sequences map[int64]int64
	sessions  []spec.Session
	calls     []spec.Call
}

// leasesKept is how many leases a client remembers to misuse.
const leasesKept = 6

// Below makes it a source of choices.
func (c *client) Below(n int) int { return c.random.IntN(n) }

// Leases is what it was granted.
func (c *client) Leases() []spec.Lease { return c.leases }

// Sessions are its sessions.
func (c *client) Sessions() []spec.Session { return c.sessions }

// Granted is the newest of its leases that covers the name; now and then one that does not.
func (c *client) Granted(name store.Name) (token int64, leaseID uuid.UUID) {
	for _, lease := range slices.Backward(c.leases) {
		covers := lease.Lock == name || lease.Scope == store.Subtree && strings.HasPrefix(string(name), string(lease.Lock)+"/")
		if covers || c.random.IntN(20) == 0 {
			return lease.Token, lease.ID
		}
	}
	return 0, uuid.Nil
}

// Last is the number of its own last write under its newest token.
func (c *client) Last(name store.Name) (token, sequence int64) {
	token, _ = c.Granted(name)
	return token, c.sequences[token]
}

// Version is a guess.
func (c *client) Version(store.Name, store.Name) int64 { return c.random.Int64N(4) }

// work makes a call, and follows it up as its answer allows.
func (c *client) work(ctx context.Context) {
	op := c.draws.Next(c, c)
	answer, chosen := c.sendUntilKnown(ctx, op)
	if op.Kind == spec.Acquire && c.random.IntN(20) == 0 {
		answer, chosen = c.send(ctx, op)
	}
	c.note(op)
	switch {
	case op.Kind == spec.Acquire && answer.Code == spec.CodeGranted:
		mode, scope, _ := strings.Cut(answer.Lease, ",")
		c.leases = append(c.leases, spec.Lease{Lock: op.Name, Token: answer.Token, ID: chosen.ID, Owner: op.Owner,
			Mode: store.Mode(mode), Scope: store.Scope(scope)})
		c.leases = c.leases[max(0, len(c.leases)-leasesKept):]
	case op.Kind == spec.Acquire: // leaves the machine to the holders
		time.Sleep(time.Duration(c.random.Int64N(int64(10 * time.Millisecond))))
	case op.Kind == spec.Expire: // others are granted its lock
		time.Sleep(time.Duration(c.random.Int64N(int64(20 * time.Millisecond))))
	case c.random.IntN(25) == 0: // frozen, often for longer than its lease lasts
		time.Sleep(time.Duration(c.random.Int64N(int64(store.TTLMin) * 3 / 2)))
	}
}

// note keeps the numbers of its writes.
func (c *client) note(op spec.Op) {
	for _, part := range append(op.Parts, op) {
		if part.Sequence != nil && part.Token != 0 {
			c.sequences[part.Token] = max(c.sequences[part.Token], *part.Sequence)
		}
	}
}

// sendUntilKnown sends the call until its outcome is known. Earlier attempts have then happened, or can have no effect
// any more: their end is known, and the checker need not try them at every later moment. The exception is a write that
// was refused for its records, or an acquire for its holder: an earlier attempt may still find them otherwise.
func (c *client) sendUntilKnown(ctx context.Context, op spec.Op) (spec.Answer, spec.Choice) {
	first := len(c.calls)
	answer, chosen := c.send(ctx, op)
	for answer.Code == spec.CodeUnknown && hasNumber(op) {
		answer, chosen = c.send(ctx, op)
	}
	switch answer.Code {
	case spec.CodeUnknown, spec.CodeHeld, spec.CodeNotFound, string(store.VerdictVersionMismatch), spec.CodeNotApplied:
		return answer, chosen
	}
	for i := first; i < len(c.calls); i++ {
		c.calls[i].Answered = c.calls[len(c.calls)-1].Answered
	}
	return answer, chosen
}

// hasNumber reports whether an operation that is sent again happens once.
func hasNumber(op spec.Op) bool {
	switch op.Kind {
	case spec.Acquire, spec.Release, spec.EndSession:
		return true
	case spec.Transact:
		return !slices.ContainsFunc(op.Parts, func(p spec.Op) bool { return p.Kind == spec.Token && p.Sequence == nil })
	}
	return op.Sequence != nil
}

// send makes the call and records its answer. Now and then the client gives up before the answer.
func (c *client) send(ctx context.Context, op spec.Op) (spec.Answer, spec.Choice) {
	sql, bySQL := c.on.(*SQL)
	if !bySQL && !op.Reads() && c.random.IntN(60) == 0 { // which ends an SQL client's connection
		hasty, cancel := context.WithTimeout(ctx, time.Duration(c.random.Int64N(int64(3*time.Millisecond))))
		defer cancel()
		ctx = hasty
	}
	names := []store.Name{op.Name}
	for _, part := range op.Parts {
		names = append(names, part.Name)
	}
	slices.Sort(names) // in one order, so that no two clients wait for each other
	names = slices.DeleteFunc(slices.Compact(names), func(name store.Name) bool { return c.slots[name] == nil })
	for _, name := range names {
		c.slots[name] <- struct{}{}
	}
	call := spec.Call{Client: c.id, Op: op, Sent: c.clock(time.Now())}
	call.Answer, call.Chosen = spec.Perform(ctx, c.on, op)
	call.Answered = c.clock(time.Now())
	if op.Kind == spec.Guard && call.Answer.Code == spec.CodeAdmitted && bySQL {
		call.Sent = c.clock(sql.Committing)
	}
	for _, name := range names {
		<-c.slots[name]
	}
	if op.Kind == spec.EndSession && call.Answer.Code == spec.CodeNotApplied {
		call.Answer.Code = spec.CodeUnknown // it is more than one statement
	}
	if call.Answer.Code == spec.CodeUnknown {
		call.Answered = spec.Never // it may still arrive
	}
	c.calls = append(c.calls, call)
	return call.Answer, call.Chosen
}
