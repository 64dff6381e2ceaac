package load

import (
	"fmt"
	"sync"
	"time"
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
