package groupcommit

import (
	"math/bits"

	"github.com/fencegate/fencegate/store"
)

// Stats tells how writes are committed together.
type Stats struct {
	// Queued and QueuedBytes wait for a batch now.
	Queued, QueuedBytes int64
	// InFlight are batches that are being decided now, by lane: quick, large and patient.
	InFlight Lanes
	// Commits are how long the batches that were committed took in the database, by lane.
	Commits LaneDurations
	Counts
}

// Lanes is a number for each lane: for large values, for resources whose fences somebody else has locked, and for all else.
type Lanes struct{ Quick, Large, Patient int64 }

// LaneDurations are store.Histogram for each lane.
type LaneDurations struct{ Quick, Large, Patient store.Durations }

// Counts are counted from the beginning.
type Counts struct {
	Refused uint64 // because too many waited
	Batches uint64
	Writes  uint64 // in batches
	Busy    uint64 // of those, put back since somebody else had something locked that they needed
	// BatchSizes counts the batches of up to 1, 2, 4, 8, … 256 writes, each those with fewer included.
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
		InFlight: Lanes{
			Quick: int64(g.lanes[laneQuick].inFlight), Large: int64(g.lanes[laneLarge].inFlight), Patient: int64(g.lanes[lanePatient].inFlight),
		},
		Commits: LaneDurations{
			Quick: g.commits[laneQuick].Read(), Large: g.commits[laneLarge].Read(), Patient: g.commits[lanePatient].Read(),
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
