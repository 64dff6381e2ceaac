package store

import "math/bits"

// GroupStats tells how writes are committed together.
type GroupStats struct {
	// Queued and QueuedBytes wait for a batch now.
	Queued, QueuedBytes int64
	// InFlight are batches that are being decided now, by lane: quick, large and patient.
	InFlight GroupLanes
	// Commits are how long the batches that were committed took in the database, by lane.
	Commits GroupDurations
	groupCounts
}

// GroupLanes is a number for each lane: for large values, for resources whose fences somebody else has locked, and for all else.
type GroupLanes struct{ Quick, Large, Patient int64 }

// GroupDurations are durations for each lane.
type GroupDurations struct{ Quick, Large, Patient Durations }

// groupCounts are counted from the beginning.
type groupCounts struct {
	Refused uint64 // because too many waited
	Batches uint64
	Writes  uint64 // in batches
	Busy    uint64 // of those, put back since somebody else had something locked that they needed
	// BatchSizes counts the batches of up to 1, 2, 4, 8, … 256 writes, each those with fewer included.
	BatchSizes [9]uint64
}

// BatchSizeBounds are the bounds of GroupStats.BatchSizes.
var BatchSizeBounds = [9]int{1, 2, 4, 8, 16, 32, 64, 128, 256}

// Stats returns the state of the Group now.
func (g *Group) Stats() GroupStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return GroupStats{
		Queued: int64(g.queued.writes), QueuedBytes: g.queued.bytes,
		InFlight: GroupLanes{
			Quick: int64(g.lanes[laneQuick].inFlight), Large: int64(g.lanes[laneLarge].inFlight), Patient: int64(g.lanes[lanePatient].inFlight),
		},
		Commits: GroupDurations{
			Quick: g.commits[laneQuick].read(), Large: g.commits[laneLarge].read(), Patient: g.commits[lanePatient].read(),
		},
		groupCounts: g.counted,
	}
}

// count counts a batch that is sent.
func (c *groupCounts) count(writes int) {
	if writes == 0 {
		return
	}
	c.Batches++
	c.Writes += uint64(writes)
	for i := bits.Len(uint(writes - 1)); i < len(c.BatchSizes); i++ {
		c.BatchSizes[i]++
	}
}
