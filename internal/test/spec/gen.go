package spec

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Choices makes the choices of a generator: at random, or one after the other until all were made (Exhaust).
type Choices interface {
	// Below returns a number from 0 to n-1. Smaller numbers are the simpler choices.
	Below(n int) int
}

// Exhaust makes all choices that there are: each Next begins the next sequence of them.
type Exhaust struct {
	made  []struct{ value, below int }
	at    int
	begun bool
}

// Next reports whether there is a sequence of choices that was not made before.
func (e *Exhaust) Next() bool {
	e.at = 0
	if !e.begun {
		e.begun = true
		return true
	}
	for last := len(e.made) - 1; last >= 0; last-- {
		if e.made[last].value++; e.made[last].value < e.made[last].below {
			return true
		}
		e.made = e.made[:last]
	}
	return false
}

// Below implements Choices.
func (e *Exhaust) Below(n int) int {
	if e.at == len(e.made) {
		e.made = append(e.made, struct{ value, below int }{0, n})
	}
	e.at++
	return e.made[e.at-1].value
}

// FromSeed makes choices at random, the same for the same seed.
func FromSeed(seed uint64) Choices {
	return fromSeed{rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // it chooses what a test does
}

type fromSeed struct{ *rand.Rand }

func (s fromSeed) Below(n int) int { return s.IntN(n) }

// Known is what the one who draws an operation knows: everything ([State]), or what a client was answered.
type Known interface {
	// Granted returns the token that is in force on a name, and its lease_id; 0 if it knows of none.
	Granted(name store.Name) (token int64, leaseID uuid.UUID)
	// Last returns the number of the last write to a name.
	Last(name store.Name) (token, sequence int64)
	// Version returns the version of a record; 0 if there is none.
	Version(name, key store.Name) int64
	// Leases are those to operate on, right or wrong; the latest is the last.
	Leases() []Lease
	Sessions() []Session
}

// Generator draws operations that meet: on few names, with few contents, mostly right, and often wrong in one field.
type Generator struct {
	Names   []store.Name
	Owners  []string
	Weights []Weight
	// TTL is the shortest of a lease, and TTLSpread how much longer one may be. A TTL that no run outlives leaves expiry
	// to Expire.
	TTL, TTLSpread time.Duration
	// Wait is how long most acquires wait; 0: none does.
	Wait time.Duration
	// Gateways is how many there are to send to.
	Gateways int
	// Flat: no subtree is requested. Without any, a database decides by shorter ways.
	Flat bool
	// Sessionless: it knows no session. Its weights have no kind of them.
	Sessionless bool
	// Client, if not empty, is a client among others. It works mostly as it should on what it holds, and each of its
	// acquires has a request_id of its own that begins so.
	Client string
	// ByVersion has no write expect a record of any version.
	ByVersion bool
	// Levels are the isolation levels of transactions of SQL; empty: any.
	Levels []string
	// Ways are those in which clients of SQL are admitted; empty: any.
	Ways []string
	// Principals, if any, send the acquires. Then some policies are on owners.
	Principals []string
	// Newest has clients say which token they know: an engine's acquire judges that.
	Newest bool
	// Elsewhere is that of a [State].
	Elsewhere bool

	requests int
	sent     []Op                              // writes, sets and transactions
	waits    []Op                              // acquires that wait, or did
	next     []func(known Known, c Choices) Op // follow at once
}

// Weight is how often a kind is drawn, compared with the others.
type Weight struct {
	Kind  Kind
	Share int
}

// Sequential is how often operations are drawn that come one after the other.
var Sequential = []Weight{
	{Acquire, 4}, {Renew, 2}, {Release, 2}, {Break, 2}, {Expire, 2}, {Sweep, 2}, {HoldOut, 2}, {OpenSession, 2},
	{KeepAlive, 2}, {EndSession, 2}, {ExpireSession, 2}, {ReadSession, 2}, {Put, 6}, {Set, 4}, {Transact, 6},
	{SetPolicy, 2}, {DeletePolicy, 2}, {ReadLock, 2}, {ReadFence, 2}, {ReadRecord, 1},
}

// Sessionless are those of [Sequential] that know no session.
func Sessionless() []Weight {
	sessions := []Kind{OpenSession, KeepAlive, EndSession, ExpireSession, ReadSession}
	return slices.DeleteFunc(slices.Clone(Sequential), func(w Weight) bool { return slices.Contains(sessions, w.Kind) })
}

// Next draws an operation.
func (g *Generator) Next(known Known, c Choices) Op {
	op := g.any(known, c)
	if g.Gateways > 1 {
		op.At = c.Below(g.Gateways)
	}
	return op
}

func (g *Generator) any(known Known, c Choices) Op {
	if len(g.next) > 0 {
		follows := g.next[0]
		g.next = g.next[1:]
		return follows(known, c)
	}
	if g.Client != "" && len(known.Leases()) == 0 && c.Below(4) > 0 {
		return g.draw(Acquire, known, c)
	}
	sum := 0
	for _, weight := range g.Weights {
		sum += weight.Share
	}
	at := c.Below(sum)
	for _, weight := range g.Weights {
		if at -= weight.Share; at < 0 {
			return g.draw(weight.Kind, known, c)
		}
	}
	panic("no weight")
}

func (g *Generator) draw(kind Kind, known Known, c Choices) Op {
	name := pick(c, g.Names)
	if g.Client != "" && kind != Acquire && len(known.Leases()) > 0 && c.Below(8) > 0 {
		held := someLease(known, c)
		name = held.Lock
		if below := pick(c, g.Names); held.Scope == store.Subtree && isBelow(below, name) {
			name = below
		}
	}
	switch kind {
	case Acquire:
		return g.acquire(name, known, c)
	case Break: // is followed by an acquire, without which little happens on the name
		if c.Below(3) > 0 {
			g.next = append(g.next, func(known Known, c Choices) Op { return g.acquire(name, known, c) })
		}
		return Op{Kind: Break, Name: name}
	case Leave:
		return g.leave(known, c)
	case Renew, Release:
		return g.mistaken(kind, g.lease(known, c), c)
	case Together:
		return g.together(name, known, c)
	case Expire, HoldOut:
		lease := g.lease(known, c)
		return Op{Kind: kind, Name: lease.Lock, Token: lease.Token}
	case OpenSession:
		return Op{Kind: OpenSession, Owner: pick(c, g.Owners), TTL: time.Hour, Principal: g.principal(c)}
	case KeepAlive, EndSession, ExpireSession, ReadSession:
		return Op{Kind: kind, Session: someSession(known, c)}
	case Put:
		return g.again(c, func() Op { return g.write(name, known, c) })
	case Set:
		return g.set(known, c)
	case Guard:
		return g.guard(name, known, c)
	case Transact:
		return g.transact(known, c)
	case SetPolicy:
		return Op{Kind: SetPolicy, Name: name, Policy: g.policy(c)}
	case ReadRecord:
		return Op{Kind: ReadRecord, Name: name, Key: pick(c, keys)}
	}
	return Op{Kind: kind, Name: name}
}

func pick[T any](c Choices, from []T) T { return from[c.Below(len(from))] }

// rarely is true once in four times.
func rarely(c Choices) bool { return c.Below(4) == 3 }

func (g *Generator) acquire(name store.Name, known Known, c Choices) Op {
	g.requests++
	op := Op{
		Kind: Acquire, Name: name, Owner: pick(c, g.Owners), Mode: store.Exclusive, Scope: store.Node,
		TTL: g.TTL + time.Duration(c.Below(int(g.TTLSpread/time.Millisecond)+1))*time.Millisecond,
	}
	op.Principal = g.principal(c)
	if g.Newest && rarely(c) {
		granted, _ := known.Granted(name)
		op.NewestToken = pick(c, []int64{granted, someLease(known, c).Token, granted + 10_000})
	}
	if g.Elsewhere && c.Below(8) < 7 {
		op.Request = pick(c, []string{"", "again-0", "again-1"})
		return op
	}
	if rarely(c) || g.Wait > 0 && c.Below(3) == 2 {
		op.Mode = store.Shared
	}
	if rarely(c) && !g.Flat {
		op.Scope = store.Subtree
	}
	switch c.Below(5) {
	case 3, 4:
		op.Request = "again-" + strconv.Itoa(c.Below(2))
	case 2:
		op.Request = strconv.Itoa(g.requests)
	}
	if g.Client != "" {
		op.Request = g.Client + "-" + strconv.Itoa(g.requests)
	}
	if !g.Sessionless && (g.Client == "" || len(known.Sessions()) > 0) && rarely(c) {
		op.Session, op.TTL = someSession(known, c), 0
	}
	if g.Wait > 0 && !rarely(c) {
		return g.wait(op, c)
	}
	return op
}

func (g *Generator) principal(c Choices) string {
	if len(g.Principals) == 0 {
		return ""
	}
	return pick(c, g.Principals)
}

func (g *Generator) policy(c Choices) store.Policy {
	policy := store.Policy{
		Rule:      pick(c, []store.Rule{store.RuleStrict, store.RuleSameToken}),
		Authority: pick(c, []store.Authority{store.AuthorityBuiltin, store.AuthorityBuiltin, store.AuthorityExternal}),
	}
	if policy.Authority == store.AuthorityBuiltin {
		policy.RequireLeaseID, policy.RequireLiveLease = c.Below(2) == 1, c.Below(2) == 1
		policy.MaxHold = pick(c, []time.Duration{0, 30 * time.Minute, 48 * time.Hour})
		policy.RequirePrincipalOwner = len(g.Principals) > 1 && rarely(c)
	}
	if slices.ContainsFunc(g.Weights, func(w Weight) bool { return w.Kind == Guard }) {
		policy.RequireLiveLease = false // an older snapshot does not show what Expire does, as it shows what time does
	}
	if g.Elsewhere { // which knows the policies of a grant, and not those of now
		policy.Authority, policy.RequireLiveLease, policy.MaxHold = store.AuthorityBuiltin, false, 0
	}
	return policy
}

// again returns an operation that was drawn before, now and then; otherwise a new one, which it remembers.
func (g *Generator) again(c Choices, draw func() Op) Op {
	if len(g.sent) > 0 && rarely(c) {
		return g.sent[len(g.sent)-1-c.Below(min(len(g.sent), 4))]
	}
	op := draw()
	g.sent = append(g.sent, op)
	return op
}

var keys = []store.Name{"k", "k/l"}

// write is a put or a delete of one of few records, as a holder sends it that does everything right, or with one mistake.
func (g *Generator) write(name store.Name, known Known, c Choices) Op {
	op := right(Put, name, known)
	_, last := known.Last(name)
	lease := someLease(known, c)
	mistake := c.Below(10)
	if mistake == 9 {
		op = g.token(Put, name, known, c)
	}
	g.change(&op, known, c)
	if mistake != 8 {
		op.Expect = nil
	}
	switch mistake {
	case 0, 1:
		op.LeaseID = uuid.Nil
	case 4:
		op.Sequence = new(max(0, last-int64(c.Below(3))))
	case 5:
		op.Sequence = nil
	case 6:
		op.LeaseID = pick(c, []uuid.UUID{WrongID(op.LeaseID), lease.ID})
	case 7:
		op.Token, op.LeaseID = lease.Token, lease.ID
	}
	return op
}

func (g *Generator) change(op *Op, known Known, c Choices) {
	op.Key = pick(c, keys)
	if op.Kind = []Kind{Put, Put, Delete}[c.Below(3)]; op.Kind == Put {
		op.Value = pick(c, []string{"", "v", "\x00\xff"})
		op.Type = pick(c, []string{"text/plain", "application/octet-stream"})
	}
	version := known.Version(op.Name, op.Key)
	switch c.Below(6) {
	case 2:
		op.Expect = new(store.ExpectNone)
	case 3:
		if !g.ByVersion {
			op.Expect = new(store.ExpectAny)
		}
	case 4:
		op.Expect = new(version)
	case 5:
		op.Expect = new(version + 1)
	}
}

// token is what a write to a name presents.
func (g *Generator) token(kind Kind, name store.Name, known Known, c Choices) Op {
	op := Op{Kind: kind, Name: name}
	granted, leaseID := known.Granted(name)
	lastToken, lastSequence := known.Last(name)
	switch c.Below(9) {
	case 0, 1, 2, 3:
		op.Token = granted
	case 4:
		op.Token = lastToken
	case 5:
		op.Token = someLease(known, c).Token
	case 7:
		op.Token = max(0, max(granted, lastToken)+int64(c.Below(4))-1)
	case 8:
		op.Token = max(granted, lastToken) + 10 + int64(c.Below(10_000))
	}
	if c.Below(4) < 3 {
		op.Sequence = new(max(0, lastSequence+int64(c.Below(5))-1))
	}
	switch c.Below(4) {
	case 1, 2:
		op.LeaseID = leaseID
	case 3:
		op.LeaseID = WrongID(leaseID)
	}
	return op
}

// right is the token of a holder that does everything right.
func right(kind Kind, name store.Name, known Known) Op {
	granted, leaseID := known.Granted(name)
	op := Op{Kind: kind, Name: name, Token: granted, LeaseID: leaseID, Sequence: new(int64(1))}
	if token, sequence := known.Last(name); token == granted {
		*op.Sequence = sequence + 1
	}
	return op
}

// set draws writes to be sent together: some were sent before, some are in a row; or those of holders that number their
// writes, with an odd one between.
func (g *Generator) set(known Known, c Choices) Op {
	set := Op{Kind: Set, Parts: make([]Op, 2+c.Below(5))}
	chain := c.Below(3) == 0
	names := []store.Name{pick(c, g.Names), pick(c, g.Names)}
	for i := range set.Parts {
		if chain {
			set.Parts[i] = right(Put, pick(c, names), known)
			set.Parts[i].Key, set.Parts[i].Value = pick(c, keys), strconv.Itoa(i)
			set.Parts[i].Type, set.Parts[i].LeaseID = "text/plain", uuid.Nil
		} else {
			set.Parts[i] = g.again(c, func() Op { return g.write(pick(c, g.Names), known, c) })
		}
	}
	set.Parts = slices.DeleteFunc(set.Parts, func(part Op) bool { return part.Kind != Put && part.Kind != Delete })
	if len(set.Parts) == 0 {
		set.Parts = append(set.Parts, g.write(pick(c, g.Names), known, c))
	}
	if chain || c.Below(2) == 1 {
		number(set.Parts)
	}
	odd := &set.Parts[c.Below(len(set.Parts))]
	switch c.Below(6) {
	case 3:
		*odd = g.write(odd.Name, known, c)
	case 4:
		odd.Sequence = nil
	case 5:
		for i := range set.Parts {
			set.Parts[i].Sequence = nil
		}
	}
	return set
}

// number gives writes to one resource numbers that rise, so that many of a set are admitted.
func number(writes []Op) {
	last := map[store.Name]int64{}
	for i, write := range writes {
		if write.Sequence != nil {
			last[write.Name] = max(last[write.Name]+1, *write.Sequence)
			writes[i].Sequence = new(last[write.Name])
		}
	}
}
