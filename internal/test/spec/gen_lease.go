package spec

import (
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Waiting is how often operations are drawn where acquires wait.
var Waiting = []Weight{
	{Acquire, 24}, {Leave, 5}, {Release, 13}, {Renew, 1}, {Break, 2}, {Expire, 2}, {OpenSession, 3}, {EndSession, 2},
	{ExpireSession, 1}, {ReadLock, 1}, {Sweep, 1},
}

// wait makes an acquire wait, or returns one that was drawn before, to be sent again, now and then with a mistake.
func (g *Generator) wait(op Op, c Choices) Op {
	op.Wait, op.Request = g.Wait, "wait-"+strconv.Itoa(g.requests)
	if rarely(c) {
		op.Principal = "P"
	}
	if len(g.waits) > 0 && rarely(c) {
		op = g.waits[len(g.waits)-1-c.Below(min(len(g.waits), 4))]
		if c.Below(6) == 5 {
			op.Owner = pick(c, g.Owners)
		}
		return op
	}
	g.waits = append(g.waits, op)
	return op
}

// leave takes requests out of the queue; several at the same time. Some are not there any more.
func (g *Generator) leave(known Known, c Choices) Op {
	waits := append(slices.Clip(g.waits), Op{Name: g.Names[0], Owner: "nobody"})
	state, _ := known.(State)
	if len(state.queue) > 0 && !rarely(c) {
		waits = state.queue
	}
	together := Op{Kind: Together}
	for range 1 + c.Below(2)*c.Below(4) {
		w := waits[len(waits)-1-c.Below(min(len(waits), 8))]
		together.Parts = append(together.Parts, Op{Kind: Leave, Name: w.Name, Owner: w.Owner, Request: w.Request})
	}
	if len(together.Parts) == 1 || state.servesOneOf(together.Parts) {
		return together.Parts[0]
	}
	return together
}

// servesOneOf reports whether the turn of one of those who leave could come before, because the others have left.
func (s State) servesOneOf(leaving []Op) bool {
	for _, op := range leaving {
		is := func(other Op) bool { return other.Name == op.Name && other.Request == op.Request }
		left := s
		for _, other := range leaving {
			if !is(other) {
				left, _ = left.Step(other, Choice{})
			}
		}
		if slices.ContainsFunc(left.Turns(), is) {
			return true
		}
	}
	return false
}

// together draws acquires of one name, or of those around it; without subtrees also acquires, renewals or releases of
// different locks, none in the way of another.
func (g *Generator) together(name store.Name, known Known, c Choices) Op {
	if g.Flat {
		return g.apart(known, c)
	}
	op := Op{Kind: Together}
	for range 2 + c.Below(3) {
		part := g.acquire(name, known, c)
		part.NewestToken = 0
		op.Parts = append(op.Parts, part)
		if rarely(c) {
			name = pick(c, g.Names)
		}
	}
	return op
}

func (g *Generator) apart(known Known, c Choices) Op {
	kind := pick(c, []Kind{Acquire, Release, Release, Renew})
	op := Op{Kind: Together}
	for _, name := range distinct(g.Names, len(g.Names), c) {
		part := g.acquire(name, known, c)
		if part.Scope = store.Node; kind != Acquire {
			of := someLease(known, c)
			for _, lease := range known.Leases() {
				if lease.Lock == name && lease.End == Running {
					of = lease
				}
			}
			part = g.mistaken(kind, of, c)
		}
		if !slices.ContainsFunc(op.Parts, func(other Op) bool { return other.Name == part.Name }) {
			op.Parts = append(op.Parts, part)
		}
	}
	return op
}

// someLease is mostly a recent one. Without any, it is one that nobody has.
func someLease(known Known, c Choices) Lease {
	leases := known.Leases()
	if len(leases) == 0 {
		return Lease{Lock: "nothing", Token: 1, ID: WrongID(uuid.Nil), Owner: "nobody"}
	}
	if c.Below(2) == 0 {
		return leases[len(leases)-1]
	}
	return leases[len(leases)-1-c.Below(min(len(leases), 6))]
}

// lease is one to operate on. Where acquires wait, it mostly runs: little happens in a queue before it ends.
func (g *Generator) lease(known Known, c Choices) Lease {
	running := slices.DeleteFunc(slices.Clone(known.Leases()), func(l Lease) bool { return l.End != Running })
	if g.Wait > 0 && len(running) > 0 && !rarely(c) {
		return pick(c, running)
	}
	return someLease(known, c)
}

// someSession is one of the last, or one that never was.
func someSession(known Known, c Choices) uuid.UUID {
	sessions := known.Sessions()
	back := c.Below(min(len(sessions), 3) + 1)
	if back == len(sessions) {
		return WrongID(uuid.Nil)
	}
	return sessions[len(sessions)-1-back].ID
}

// mistaken is an operation on a lease, mostly right, sometimes wrong in one field.
func (g *Generator) mistaken(kind Kind, lease Lease, c Choices) Op {
	op := Op{Kind: kind, Name: lease.Lock, Owner: lease.Owner, Token: lease.Token, LeaseID: lease.ID}
	if kind == Renew {
		op.TTL = []time.Duration{0, 2 * g.TTL}[c.Below(2)]
	}
	if g.Wait > 0 && !rarely(c) {
		return op
	}
	switch c.Below(7) {
	case 3:
		op.Name = pick(c, g.Names)
	case 4:
		op.Owner = "somebody"
	case 5:
		op.LeaseID = WrongID(op.LeaseID)
	case 6:
		op.Token += int64(c.Below(3)) - 1
	}
	return op
}
