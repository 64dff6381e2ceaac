package load

import (
	"fmt"
	"sync"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// The properties that are checked, by their numbers in the contract.
const (
	oneHolder    = "P1"
	tokensRise   = "P2"
	oldShutOut   = "P3"
	nothingElse  = "P4"
	holdersAlone = "P6"
	nothingLost  = "P9"
	exactlyOnce  = "P10"
)

// violationsKept bounds how many are reported in full; the others are counted.
const violationsKept = 100

// Violation is something that the contract rules out.
type Violation struct {
	// Property is its number in the contract: P1 to P12.
	Property string `json:"property"`
	Lock     string `json:"lock"`
	What     string `json:"what"`
	// Evidence is the operations that prove it, each with the times, since the run began, at which it was sent and
	// answered.
	Evidence []string `json:"evidence"`
}

// checker checks the answers of clients against the contract. It is safe for concurrent use.
type checker struct {
	now       func() time.Duration
	histories map[string]*lockHistory
	// See Exercise. renewalsMayBeLost says that an answered renewal proves nothing.
	renewalsMayBeLost, commitsMayBeLost bool

	mu    sync.Mutex
	kept  []Violation
	total int64
}

// newChecker makes one for the names of a run. now never goes back.
func newChecker(names []string, now func() time.Duration) *checker {
	c := &checker{now: now, histories: map[string]*lockHistory{}}
	for _, name := range names {
		c.histories[name] = newLockHistory(name, c)
	}
	return c
}

func (c *checker) violations() (kept []Violation, total int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept[:len(c.kept):len(c.kept)], c.total
}

func (c *checker) found(v Violation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.commitsMayBeLost && v.Property != tokensRise {
		return
	}
	c.total++
	if len(c.kept) < violationsKept {
		c.kept = append(c.kept, v)
	}
}

// lockHistory is what is known of one lock and of the resource that it protects.
type lockHistory struct {
	name    string
	checker *checker

	mu sync.Mutex

	// newest has the greatest token that an acquire has returned.
	newest *grant
	// grants are the last grantsKept, in the order of their answers.
	grants []*grant

	ledger ledger
}

func newLockHistory(name string, c *checker) *lockHistory {
	return &lockHistory{name: name, checker: c, ledger: newLedger()}
}

// proof is an operation that can be shown as evidence.
type proof interface{ evidence() string }

// accuse reports a violation. l.mu is held.
func (l *lockHistory) accuse(property, what string, proofs ...proof) {
	v := Violation{Property: property, Lock: l.name, What: what}
	for _, p := range proofs {
		v.Evidence = append(v.Evidence, p.evidence())
	}
	l.checker.found(v)
}

// span shows when something was sent and answered.
func span(sent, answered time.Duration) string {
	if answered == 0 {
		return fmt.Sprintf("%.6fs–", sent.Seconds())
	}
	return fmt.Sprintf("%.6fs–%.6fs", sent.Seconds(), answered.Seconds())
}

// grantsKept is how many grants of a name are compared with a new one: far more than can be live on it without that
// being found.
const grantsKept = 64

// acquiring is an acquire, however often its request_id is sent.
type acquiring struct {
	history *lockHistory
	owner   string
	sent    time.Duration
	// known is the newest grant that had been answered when it was sent for the first time.
	known *grant
}

// acquireSent is called before an acquire is sent for the first time.
func (l *lockHistory) acquireSent(owner string) *acquiring {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &acquiring{history: l, owner: owner, sent: l.checker.now(), known: l.newest}
}

// grant is a lease that an acquire has returned. Its times by the database are in milliseconds, cut off.
type grant struct {
	history        *lockHistory
	lease          api.Lease
	sent, answered time.Duration

	grantedMS int64
	// expiresMS is the latest expiry that was answered: it is live until then, unless a release was sent.
	expiresMS int64
	// extended says that a renewal went unanswered: it may be live for longer.
	extended  bool
	releasing bool
	// beside are the tokens of leases that it was found to be live beside.
	beside map[int64]bool
}

func (g *grant) evidence() string {
	text := fmt.Sprintf("%s acquire by %s (%s): token %d, live from %s to %s by the database's clock",
		span(g.sent, g.answered), g.lease.OwnerID, g.lease.Mode, g.lease.FencingToken, clockMS(g.grantedMS),
		clockMS(g.expiresMS))
	if g.releasing {
		text += ", then a release was sent"
	}
	return text
}

func (g *grant) shared() bool { return g.lease.Mode == "shared" }

// granted is called with the answer to an acquire.
func (a *acquiring) granted(lease api.Lease) *grant {
	l := a.history
	l.mu.Lock()
	defer l.mu.Unlock()
	g := &grant{
		history: l, lease: lease, sent: a.sent, answered: l.checker.now(),
		grantedMS: lease.GrantedAt.UnixMilli(), expiresMS: lease.ExpiresAt.UnixMilli(),
	}
	if a.known != nil && lease.FencingToken <= a.known.lease.FencingToken {
		l.accuse(tokensRise, fmt.Sprintf("token %d was granted to an acquire that was sent after token %d had been granted",
			lease.FencingToken, a.known.lease.FencingToken), a.known, g)
	}
	for _, other := range l.grants {
		l.compareTokens(other, g)
		l.compareLeases(other, g)
	}
	l.grants = append(l.grants, g)
	if len(l.grants) > grantsKept {
		l.grants = l.grants[1:]
	}
	if l.newest == nil || lease.FencingToken > l.newest.lease.FencingToken {
		l.newest = g
	}
	return g
}

// compareTokens is P2 by the database's clock.
func (l *lockHistory) compareTokens(a, b *grant) {
	switch {
	case a.lease.FencingToken == b.lease.FencingToken:
		l.accuse(tokensRise, fmt.Sprintf("token %d was granted twice", a.lease.FencingToken), a, b)
	case a.lease.FencingToken > b.lease.FencingToken:
		a, b = b, a
		fallthrough
	default:
		if a.grantedMS > b.grantedMS {
			l.accuse(tokensRise, fmt.Sprintf("token %d was granted before token %d", b.lease.FencingToken,
				a.lease.FencingToken), a, b)
		}
	}
}

// compareLeases is P1. Both have been answered by now. The one that was granted first was live when the other was
// granted, if that was before its expiry and its release has not even been sent by now. Where both were granted within
// a millisecond, either may have been first.
func (l *lockHistory) compareLeases(a, b *grant) {
	if a.shared() && b.shared() {
		return
	}
	if a.grantedMS > b.grantedMS {
		a, b = b, a
	}
	live := !a.releasing && b.grantedMS < a.expiresMS
	if a.grantedMS == b.grantedMS {
		live = live && !b.releasing && a.grantedMS < b.expiresMS
	}
	if !live || a.beside[b.lease.FencingToken] {
		return
	}
	if a.beside == nil {
		a.beside = map[int64]bool{}
	}
	a.beside[b.lease.FencingToken] = true
	l.accuse(oneHolder, fmt.Sprintf("token %d (%s) was granted while the lease of token %d (%s) was live",
		b.lease.FencingToken, b.lease.Mode, a.lease.FencingToken, a.lease.Mode), a, b)
}

// renewed is called with the answer to a renewal. The lease has no other renewal under way.
func (g *grant) renewed(lease api.Lease) {
	l := g.history
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.checker.renewalsMayBeLost {
		return
	}
	expires := lease.ExpiresAt.UnixMilli()
	at := expires - lease.TTLMS
	if at > g.expiresMS && !g.extended {
		l.accuse(holdersAlone, fmt.Sprintf("the lease of token %d was renewed at %s by the database's clock, after it had "+
			"expired",
			g.lease.FencingToken, clockMS(at)), g)
	}
	g.expiresMS = max(g.expiresMS, expires)
	for _, other := range l.grants {
		if other != g {
			l.compareLeases(g, other)
		}
	}
}

// renewalLost is called where a renewal may have been applied and no answer came.
func (g *grant) renewalLost() {
	g.history.mu.Lock()
	defer g.history.mu.Unlock()
	g.extended = true
}

// releaseSent is called before a release is sent. It returns the grant that had replaced this one by then, if it is the
// first release.
func (g *grant) releaseSent() (replacedBy *grant) {
	l := g.history
	l.mu.Lock()
	defer l.mu.Unlock()
	if !g.releasing && !g.shared() && l.newest.lease.FencingToken > g.lease.FencingToken {
		replacedBy = l.newest
	}
	g.releasing = true
	return replacedBy
}

// released is called where the first release was answered as done.
func (g *grant) released(replacedBy *grant) {
	if replacedBy == nil {
		return
	}
	g.history.mu.Lock()
	defer g.history.mu.Unlock()
	g.history.accuse(holdersAlone, fmt.Sprintf("the lease of token %d was released, after token %d had replaced it",
		g.lease.FencingToken, replacedBy.lease.FencingToken), g, replacedBy)
}

func clockMS(ms int64) string { return time.UnixMilli(ms).UTC().Format("15:04:05.000") }
