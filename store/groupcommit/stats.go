package groupcommit

import (
	"math/bits"

	"github.com/fencegate/fencegate/store"
)

// Stats is the state of a Group.
type Stats struct {
	// Queued and QueuedBytes wait for a batch now.
	Queued, QueuedBytes int64
	// InFlight are batches that are being decided now, by lane.
	InFlight Lanes[int64]
	// Commits are the times that committed batches took in the database, by lane.
	Commits Lanes[store.Durations]
	Counts
}

// Lanes has a T for each lane: for large values, for resources whose fences another session has locked, and for all
// else.
type Lanes[T any] struct{ Quick, Large, LockWait T }

// Counts are counted from the start of the Group.
type Counts struct {
	Refused uint64 // because too many waited
	Batches uint64
	Writes  uint64 // in batches
	Busy    uint64 // of those, returned to their queue: another session had locked something
	// BatchSizes counts the batches of up to 1, 2, 4, 8, … 256 writes, those with fewer included.
	BatchSizes [9]uint64
}

// SizeBounds are the bounds of Stats.BatchSizes.
var SizeBounds = [9]int{1, 2, 4, 8, 16, 32, 64, 128, 256}

// Stats returns the state of the Group now.
func (g *Group) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Stats{
		Queued: int64(g.queued.writes), QueuedBytes: g.queued.bytes,
		InFlight: Lanes[int64]{
			Quick: int64(g.lanes[laneQuick].inFlight), Large: int64(g.lanes[laneLarge].inFlight),
			LockWait: int64(g.lanes[laneLockWait].inFlight),
		},
		Commits: Lanes[store.Durations]{
			Quick: g.commits[laneQuick].Read(), Large: g.commits[laneLarge].Read(), LockWait: g.commits[laneLockWait].Read(),
		},
		Counts: g.counted,
	}
}

// count counts a batch that is sent.
func (c *Counts) count(writes int) {
	if writes == 0 {
		return
	}
	c.Batches++
	c.Writes += uint64(writes)
	for i := bits.Len(uint(writes - 1)); i < len(c.BatchSizes); i++ {
		c.BatchSizes[i]++
	}
}
