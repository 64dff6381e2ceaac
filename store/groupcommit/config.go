package groupcommit

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/fencegate/fencegate/store"
)

// Bounds of one batch. Its cost grows with its rows, and with the turns in which the writes to one resource are judged.
const (
	batchRowsMax  = 256
	batchTurnsMax = 32
	batchBytesMax = 1 << 20 // of values; a single larger value is a batch of its own
	// largeBytes is the size above which a value goes by the lane for large ones.
	largeBytes = 64 << 10
)

// Config bounds a Group. The zero value of a field is its default.
type Config struct {
	// BatchesMax bounds the batches in flight, each of which takes a connection. Default half of the connections, at least
	// 3; 3 to 1000.
	BatchesMax int
	// QueueMax bounds the writes that wait for a batch. A 16th of it may be for one resource, but always 256; a quarter
	// for resources whose fences another session has locked. Default 16384; at least 1.
	QueueMax int
	// QueueBytesMax bounds the bytes of the values and names that wait for a batch; a single larger write may wait alone.
	// The same parts of it are for one resource, and for locked fences. Default 64 MiB; at least 1 KiB.
	QueueBytesMax int64
}

const (
	// resourceShare is the part of the queue that may be for one resource.
	resourceShare = 16
	// resourceWritesMin is how many writes may wait for one resource in any case.
	resourceWritesMin = 256
	// lockedShare is the part of the queue that may be for fences that another session has locked.
	lockedShare = 4
)

// load is a number of writes and of their bytes.
type load struct {
	writes int
	bytes  int64
}

func (l *load) add(writes int, bytes int64) { l.writes, l.bytes = l.writes+writes, l.bytes+bytes }

// full returns a text on the load if one more write would exceed the bound; or "". A write above the bound may be
// alone.
func (l load) full(p *pending, limit load) string {
	switch {
	case l.writes >= limit.writes:
		return fmt.Sprintf("%d writes", l.writes)
	case l.writes > 0 && l.bytes+p.size > limit.bytes:
		return fmt.Sprintf("%d bytes and %d more", l.bytes, p.size)
	}
	return ""
}

func (c Config) queueMax() load { return load{c.QueueMax, c.QueueBytesMax} }

func (c Config) resourceMax() load {
	return load{max(c.QueueMax/resourceShare, min(c.QueueMax, resourceWritesMin)), c.QueueBytesMax / resourceShare}
}

func (c Config) lockedMax() load {
	return load{max(c.QueueMax/lockedShare, min(c.QueueMax, resourceWritesMin)), c.QueueBytesMax / lockedShare}
}

// withDefaults returns ErrInvalid for what is outside its limits, naming the flag.
func (c Config) withDefaults(connectionsMax int) (Config, error) {
	c.BatchesMax = cmp.Or(c.BatchesMax, min(max(3, connectionsMax/2), 1000))
	c.QueueMax = cmp.Or(c.QueueMax, 16384)
	c.QueueBytesMax = cmp.Or(c.QueueBytesMax, 64<<20)
	switch {
	case c.BatchesMax < 3 || c.BatchesMax > 1000:
		return c, fmt.Errorf("%w: --write-batches-max is %d, it must be 3 to 1000", store.ErrInvalid, c.BatchesMax)
	case c.QueueMax < 1:
		return c, fmt.Errorf("%w: --write-queue-max is %d, it must be at least 1", store.ErrInvalid, c.QueueMax)
	case c.QueueBytesMax < 1<<10:
		return c, fmt.Errorf("%w: --write-queue-bytes-max is %d, it must be at least 1024", store.ErrInvalid, c.QueueBytesMax)
	}
	return c, nil
}

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
