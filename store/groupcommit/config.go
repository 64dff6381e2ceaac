package groupcommit

import (
	"cmp"
	"fmt"

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
