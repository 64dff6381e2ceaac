package store

import (
	"slices"
	"sync/atomic"
	"time"
)

// Reason says why a statement failed, or why something was tried again.
type Reason string

// The reasons of failures; the first four are those of retries, too.
const (
	// ReasonBusy: another session kept something locked, mostly a fence. Such writes return to their queue.
	ReasonBusy Reason = "busy"
	// ReasonDeadlock and ReasonSerialization: the database has rolled the statement back for what others did at the same
	// time.
	ReasonDeadlock      Reason = "deadlock"
	ReasonSerialization Reason = "serialization"
	// ReasonConnection: there was none, or it was refused or lost.
	ReasonConnection Reason = "connection"
	// ReasonConnectionsExhausted: the database has as many connections as it takes.
	ReasonConnectionsExhausted Reason = "connections_exhausted"
	// ReasonDiskFull: the database has no disk space left.
	ReasonDiskFull Reason = "disk_full"
	// ReasonTimeout: the statement took longer than --statement-timeout, or than its caller had time.
	ReasonTimeout Reason = "timeout"
	// ReasonNotReplicated: a commit was made, and no standby has confirmed it; see ErrNotReplicated.
	ReasonNotReplicated Reason = "not_replicated"
	// ReasonReadOnly: the database is a standby, or takes no writes.
	ReasonReadOnly Reason = "read_only"
	// ReasonNotMigrated: the schema is not this program's.
	ReasonNotMigrated Reason = "not_migrated"
	// ReasonWentBack: it is in an older state than one that was seen; see ErrDatabaseWentBack.
	ReasonWentBack Reason = "went_back"
	// ReasonOther is a database that is out of memory, or a defect.
	ReasonOther Reason = "other"
)

// FailureReasons and RetryReasons are all that there are.
var (
	FailureReasons = reasons[:]
	RetryReasons   = reasons[:4]
)

var reasons = [...]Reason{
	ReasonBusy, ReasonDeadlock, ReasonSerialization, ReasonConnection,
	ReasonConnectionsExhausted, ReasonDiskFull, ReasonTimeout, ReasonNotReplicated, ReasonReadOnly,
	ReasonNotMigrated, ReasonWentBack, ReasonOther,
}

// reasonCounts counts from the beginning.
type reasonCounts map[Reason]*atomic.Uint64

func newReasonCounts(reasons []Reason) reasonCounts {
	c := reasonCounts{}
	for _, reason := range reasons {
		c[reason] = new(atomic.Uint64)
	}
	return c
}

func (c reasonCounts) add(reason Reason, n int) {
	if count := c[reason]; count != nil {
		count.Add(uint64(n))
	}
}

func (c reasonCounts) read() map[Reason]uint64 {
	got := map[Reason]uint64{}
	for reason, count := range c {
		got[reason] = count.Load()
	}
	return got
}

// counts are those of a Store.
type counts struct{ failures, retries reasonCounts }

// Failures returns how many statements have failed, those that were tried again among them. Verdicts are no failures.
func (s *Store) Failures() map[Reason]uint64 { return s.counts.failures.read() }

// Retries returns how often the Store and its machines tried something again: the writes that went back to
// their queue as busy; the statements that the database had rolled back; and what was sent again since the database
// was away: acquires of waiters, grants to them, and the record of rejections.
func (s *Store) Retries() map[Reason]uint64 { return s.counts.retries.read() }

// failed counts the failure of a statement.
func (s *Store) failed(err error) error {
	if err != nil {
		s.counts.failures.add(reasonOf(err), 1)
	}
	return err
}

// CountRetry counts that something is tried again after the failure.
func (s *Store) CountRetry(err error) {
	switch reason := reasonOf(err); reason {
	case ReasonBusy: // counted by the writes that it was for
	case ReasonDeadlock, ReasonSerialization:
		s.counts.retries.add(reason, 1)
	default:
		s.counts.retries.add(ReasonConnection, 1)
	}
}

// CountBusy counts writes that went back to their queue, since another session has locked their fence.
func (s *Store) CountBusy(writes int) { s.counts.retries.add(ReasonBusy, writes) }

// DurationBounds are the bounds of Durations.UpTo.
var DurationBounds = [...]time.Duration{
	250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Durations counts durations from the beginning.
type Durations struct {
	Count uint64
	Sum   time.Duration
	// UpTo counts those up to each of DurationBounds, the shorter ones included.
	UpTo [len(DurationBounds)]uint64
}

// Histogram counts Durations. It is safe for concurrent use.
type Histogram struct {
	sum   atomic.Int64
	exact [len(DurationBounds) + 1]atomic.Uint64 // each without the shorter ones; the last: above all bounds
}

// Add counts one.
func (h *Histogram) Add(took time.Duration) {
	i, _ := slices.BinarySearch(DurationBounds[:], took)
	h.exact[i].Add(1)
	h.sum.Add(int64(took))
}

// Read returns the state now.
func (h *Histogram) Read() Durations {
	got := Durations{Sum: time.Duration(h.sum.Load())}
	for i := range h.exact {
		got.Count += h.exact[i].Load()
		if i < len(got.UpTo) {
			got.UpTo[i] = got.Count
		}
	}
	return got
}
