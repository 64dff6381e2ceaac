package spec

import (
	"slices"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// guard draws a transaction of a client of SQL. One with an older snapshot begins first, and meanwhile its lease is
// perhaps replaced, by one on the name, or on one above or below.
func (g *Generator) guard(name store.Name, known Known, c Choices) Op {
	if below := pick(c, g.Names); isBelow(below, name) {
		return g.guardReplaced(name, below, known, c)
	}
	op := g.again(c, func() Op {
		op := g.token(Guard, name, known, c)
		if g.Client != "" && c.Below(8) > 0 {
			op = right(Guard, name, known)
		}
		if op.Level = pick(c, Levels); len(g.Levels) > 0 {
			op.Level = pick(c, g.Levels)
		}
		if op.Way = pick(c, Ways); len(g.Ways) > 0 {
			op.Way = pick(c, g.Ways)
		}
		if rarely(c) {
			op.Way = pick(c, []string{Undone, Unadmitted})
		}
		below := pick(c, g.Names)
		switch {
		case op.Way == BySetting:
		case isBelow(below, name):
			op.Key = below
		case op.Sequence != nil && rarely(c):
			op.Value = pick(c, []string{"digest", "another"})
		}
		return op
	})
	if op.Late = op.Kind == Guard && c.Below(3) == 0; !op.Late {
		return op
	}
	if leases := known.Leases(); c.Below(4) > 0 {
		if of := slices.IndexFunc(leases, func(l Lease) bool { return l.Token == op.Token }); of >= 0 {
			expire := Op{Kind: Expire, Name: leases[of].Lock, Token: op.Token}
			g.next = append(g.next, func(Known, Choices) Op { return expire })
		}
		if g.Client == "" { // otherwise others do
			g.next = append(g.next, func(known Known, c Choices) Op { return g.acquire(pick(c, g.Names), known, c) })
		}
	}
	g.next = append(g.next, func(Known, Choices) Op { return op })
	return Op{Kind: Begin, Name: op.Name, Level: op.Level}
}

// guardReplaced draws a transaction that writes below a name by the token of a subtree lease there, which is replaced
// after the transaction began.
func (g *Generator) guardReplaced(above, below store.Name, known Known, c Choices) Op {
	expireAll := func(known Known) (expire []Op) {
		for _, lease := range known.Leases() {
			if lease.End == Running && (lease.Lock == above || isBelow(lease.Lock, above)) {
				expire = append(expire, Op{Kind: Expire, Name: lease.Lock, Token: lease.Token})
			}
		}
		return expire
	}
	follows := func(op Op) { g.next = append(g.next, func(Known, Choices) Op { return op }) }
	first := g.acquire(above, known, c)
	first.Mode, first.Scope = store.Exclusive, store.Subtree
	for _, op := range expireAll(known) {
		follows(op)
	}
	follows(first)
	g.next = append(g.next, func(known Known, c Choices) Op {
		op := right(Guard, below, known)
		op.Level, op.Late = pick(c, Levels), true
		if len(g.Levels) > 0 {
			op.Level = pick(c, g.Levels)
		}
		for _, op := range expireAll(known) {
			follows(op)
		}
		newer := g.acquire(pick(c, g.Names), known, c)
		newer.Session, newer.TTL = uuid.Nil, g.TTL
		follows(newer)
		follows(op)
		return Op{Kind: Begin, Name: below, Level: op.Level}
	})
	return Op{Kind: ReadLock, Name: above}
}

// transact draws a transaction. Some are as they should be, and sent again after a write to one of their resources: on
// one fence that is a retry, on the other it comes too late.
func (g *Generator) transact(known Known, c Choices) Op {
	names := distinct(g.Names, 1+c.Below(len(g.Names)), c)
	if len(names) > 1 && rarely(c) {
		op := Op{Kind: Transact}
		for _, name := range names[:2] {
			op.Parts = append(op.Parts, right(Token, name, known))
		}
		for _, name := range names[:2] {
			op.Parts = append(op.Parts, Op{Kind: Put, Name: name, Key: keys[0], Value: "v", Type: "text/plain"})
		}
		g.next = append(g.next,
			func(known Known, c Choices) Op {
				write := right(Put, names[c.Below(2)], known)
				g.change(&write, known, c)
				return write
			},
			func(Known, Choices) Op { return op })
		return op
	}
	return g.again(c, func() Op {
		op := Op{Kind: Transact}
		for _, name := range names {
			op.Parts = append(op.Parts, g.token(Token, name, known, c))
		}
		changed := map[[2]store.Name]bool{}
		for range 1 + c.Below(4) {
			change := Op{Name: pick(c, names)}
			g.change(&change, known, c)
			if at := [2]store.Name{change.Name, change.Key}; !changed[at] {
				changed[at] = true
				op.Parts = append(op.Parts, change)
			}
		}
		return op
	})
}

func distinct(names []store.Name, count int, c Choices) []store.Name {
	left := slices.Clone(names)
	for i := range count {
		j := i + c.Below(len(left)-i)
		left[i], left[j] = left[j], left[i]
	}
	return left[:count]
}
