//go:build unix

package faults

import (
	"sync"
	"testing"
	"time"
)

// history is what clients saw. Times are by the test's monotonic clock.
type history struct {
	grants []grant
	writes []write
}

// grant is a lease that an acquire returned. Sent is when it was first asked for.
type grant struct {
	lock, owner, leaseID string
	token                int64
	sent, answered       time.Duration
}

// write is one numbered write, however often it was sent.
type write struct {
	resource, key   string
	token, sequence int64
	value           string
	outcome         outcome
	attempts        int

	// Of the attempt that was answered for good: when it was sent, and what an acknowledgement said.
	sent     time.Duration
	version  int64
	replayed bool
}

// outcome is what a client knows in the end of a write.
type outcome int

const (
	acknowledged outcome = iota
	// notApplied was refused, or failed with the outcome not_applied, each time it was sent: it must have left no trace.
	notApplied
	// doubtful was refused or given up after an attempt of unknown outcome: it may have been applied, once.
	doubtful
)

// journal is written by many clients.
type journal struct {
	begun time.Time

	mu           sync.Mutex
	history      history
	acks         int
	unexpected   []string // what no fault explains
	unavailables int
}

func newJournal() *journal { return &journal{begun: time.Now()} }

func (j *journal) now() time.Duration { return time.Since(j.begun) }

func (j *journal) granted(g grant) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.history.grants = append(j.history.grants, g)
}

func (j *journal) wrote(w write) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.history.writes = append(j.history.writes, w)
	if w.outcome == acknowledged {
		j.acks++
	}
}

func (j *journal) unavailable() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unavailables++
}

func (j *journal) timesUnavailable() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.unavailables
}

func (j *journal) surprise(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unexpected = append(j.unexpected, what)
}

// standing tells how many writes were acknowledged so far, and whether something unexpected has happened.
func (j *journal) standing() (acks int, sound bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.acks, len(j.unexpected) == 0
}

// report shows what the load was made of, and fails the test for what no fault explains.
func (j *journal) report(t *testing.T) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	outcomes := map[outcome]int{}
	replayed := 0
	for _, w := range j.history.writes {
		outcomes[w.outcome]++
		if w.replayed {
			replayed++
		}
	}
	t.Logf("%d grants; %d writes acknowledged, %d of them as replays, %d not applied, %d doubtful; unavailable %d times",
		len(j.history.grants), outcomes[acknowledged], replayed, outcomes[notApplied], outcomes[doubtful], j.unavailables)
	for _, what := range j.unexpected[:min(10, len(j.unexpected))] {
		t.Error(what)
	}
}
