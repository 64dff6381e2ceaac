//go:build unix

package faults

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/load"
)

// history is what clients saw. Times are by the test's monotonic clock.
type history struct {
	grants []grant
	writes []write
}

// grant is a lease that an acquire returned. Sent is when its acquire was first sent.
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

// Granted notes a lease.
func (j *journal) Granted(lease api.Lease, sent, answered time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.history.grants = append(j.history.grants, grant{
		lock: lease.Lock, owner: lease.OwnerID, leaseID: lease.LeaseID, token: lease.FencingToken,
		sent: sent, answered: answered,
	})
}

// Wrote notes a write.
func (j *journal) Wrote(w load.Write) {
	j.mu.Lock()
	defer j.mu.Unlock()
	outcome := notApplied
	switch {
	case w.Applied:
		outcome = acknowledged
		j.acks++
	case w.Doubtful:
		outcome = doubtful
	}
	j.history.writes = append(j.history.writes, write{
		resource: w.Resource, key: w.Key, value: w.Value, token: w.Token, sequence: w.Sequence,
		outcome: outcome, sent: w.Sent, version: w.Version, replayed: w.Replayed,
	})
}

// Unavailable counts an answer that faults explain. It must say whether the call was applied.
func (j *journal) Unavailable(err error) {
	var problem *api.Problem
	if errors.As(err, &problem) && problem.Outcome == "" {
		j.Unexpected(fmt.Sprintf("unavailable without an outcome: %v", err))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unavailables++
}

func (j *journal) timesUnavailable() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.unavailables
}

// Unexpected notes an answer that no fault explains.
func (j *journal) Unexpected(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unexpected = append(j.unexpected, what)
}

// progress returns how many writes were acknowledged so far, and whether all answers were expected ones.
func (j *journal) progress() (acks int, sound bool) {
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
