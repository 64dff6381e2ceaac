package journal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/load"
)

// history is what clients saw. Times are since the begin of the journal.
type history struct {
	grants []grant
	writes []write
	losses []loss
}

// loss is a failover or a restore that takes back, by design, what was answered in this time.
type loss struct{ from, to time.Duration }

// mayBeLost reports whether what was answered at a time may be gone.
func (h *history) mayBeLost(answered time.Duration) bool {
	return slices.ContainsFunc(h.losses, func(l loss) bool { return l.from <= answered && answered <= l.to })
}

// grant is a lease that an acquire returned. Sent is when its acquire was first sent.
type grant struct {
	lock, owner, leaseID string
	subtree              bool
	token                int64
	sent, answered       time.Duration
}

// write is one numbered write, however often it was sent.
type write struct {
	resource, key   string
	token, sequence int64
	value           string
	outcome         outcome
	mustFail        string // why it must be refused, whenever it comes; "" if it may be admitted

	// Of the attempt that was answered for good: when it was sent and answered, and what an acknowledgement said.
	sent, answered time.Duration
	version        int64
	replayed       bool
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

// Journal is what the clients of a load saw. It is the load's Observer, and safe for concurrent use.
type Journal struct {
	// Rows is a query of the rows of protected tables that were written under names with the prefix $1: resource, key,
	// value, token, sequence and time, in the order of tokens and sequences. Each row is one write, by SQL. "" if there are
	// none.
	Rows string

	begun time.Time

	mu           sync.Mutex
	history      history
	acks         map[string]int // by the kind of the values
	unexpected   []string       // what no fault explains
	unavailables int
}

// New returns an empty journal, which begins now.
func New() *Journal { return &Journal{begun: time.Now(), acks: map[string]int{}} }

// Now is the time since its begin.
func (j *Journal) Now() time.Duration { return time.Since(j.begun) }

// Granted notes a lease.
func (j *Journal) Granted(lease api.Lease, sent, answered time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.history.grants = append(j.history.grants, grant{
		lock: lease.Lock, owner: lease.OwnerID, leaseID: lease.LeaseID, token: lease.FencingToken,
		subtree: lease.Scope == "subtree", sent: sent, answered: answered,
	})
}

// Wrote notes a write.
func (j *Journal) Wrote(w load.Write) {
	j.mu.Lock()
	defer j.mu.Unlock()
	outcome := notApplied
	switch {
	case w.Applied:
		outcome = acknowledged
		j.acks[kindOf(w.Value)]++
	case w.Doubtful:
		outcome = doubtful
	}
	j.history.writes = append(j.history.writes, write{
		resource: w.Resource, key: w.Key, value: w.Value, token: w.Token, sequence: w.Sequence,
		outcome: outcome, sent: w.Sent, answered: w.Answered, version: w.Version, replayed: w.Replayed,
		mustFail: w.MustFail,
	})
}

// Unavailable counts an answer that faults explain. It must say whether the call was applied.
func (j *Journal) Unavailable(err error) {
	var problem *api.Problem
	if errors.As(err, &problem) && problem.Outcome == "" {
		j.Unexpected(fmt.Sprintf("unavailable without an outcome: %v", err))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unavailables++
}

// Unexpected notes an answer that no fault explains.
func (j *Journal) Unexpected(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unexpected = append(j.unexpected, what)
}

// Progress returns how many writes of an Exercise were acknowledged so far, and whether all answers were expected ones.
func (j *Journal) Progress() (acks int, sound bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.acks[byPut] + j.acks[byTransaction], len(j.unexpected) == 0
}

// ProgressOf is Progress for the writes whose values Value made of this kind.
func (j *Journal) ProgressOf(kind string) (acks int, sound bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.acks[`"`+kind+" "], len(j.unexpected) == 0
}

// Lost notes that what was answered from one time to another may be gone, by design: a standby that lacked it was
// promoted, or a backup from before was restored. What was answered later was answered by the new database.
func (j *Journal) Lost(from, to time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.history.losses = append(j.history.losses, loss{from, to})
}

// Summary says what the load was made of.
func (j *Journal) Summary() string {
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
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(j.acks)) {
		kinds = append(kinds, fmt.Sprintf("%d by %s", j.acks[kind], strings.Trim(kind, `" `)))
	}
	return fmt.Sprintf(
		"%d grants; %d writes acknowledged (%s), %d of them as replays, %d not applied, %d doubtful; unavailable %d times",
		len(j.history.grants), outcomes[acknowledged], strings.Join(kinds, ", "), replayed, outcomes[notApplied],
		outcomes[doubtful], j.unavailables)
}

// Check compares what clients saw with what the database has, and returns what contradicts the contract, and the
// answers that no fault explains. No client is at work any more, and the load's names begin with prefix.
func (j *Journal) Check(ctx context.Context, db *pgxpool.Pool, prefix string) ([]string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	stored, err := readState(ctx, db, prefix, j.Rows)
	if err != nil {
		return nil, fmt.Errorf("read what the database has: %w", err)
	}
	if len(j.history.grants) == 0 || len(j.history.writes) == 0 {
		return nil, errors.New("nothing was done")
	}
	return slices.Concat(j.unexpected, checkHistory(j.history, stored)), nil
}
