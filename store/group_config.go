package store

import (
	"cmp"
	"errors"
	"fmt"
)

// Bounds of one batch. The cost of a batch grows with its rows, and with the turns in which the writes to one resource are judged.
const (
	batchRowsMax  = 256
	batchTurnsMax = 32
	batchBytesMax = 1 << 20 // of values; a single larger value is a batch of its own
	// largeBytes is the size from which on a value goes by the lane for large ones.
	largeBytes = 64 << 10
)

// ErrOverloaded says that too many writes wait already. It is always an ErrUnavailable, too, and nothing was applied.
var ErrOverloaded = errors.New("too many writes wait")

// GroupConfig bounds a Group. The zero value of a field is its default.
type GroupConfig struct {
	// BatchesMax bounds the batches in flight, each of which takes a connection. Default half of the connections, at least 3:
	// the rest is for all else. 3 to 1000.
	BatchesMax int
	// QueueMax bounds the writes that wait for a batch. Default 16384; at least 1.
	QueueMax int
	// QueueBytesMax bounds the bytes of the values and names that wait for a batch; a single larger write may wait alone. Default 64 MiB;
	// at least 1 KiB.
	QueueBytesMax int64
}

// withDefaults returns ErrInvalid for what is outside its limits, naming the flag.
func (c GroupConfig) withDefaults(connectionsMax int) (GroupConfig, error) {
	c.BatchesMax = cmp.Or(c.BatchesMax, min(max(3, connectionsMax/2), 1000))
	c.QueueMax = cmp.Or(c.QueueMax, 16384)
	c.QueueBytesMax = cmp.Or(c.QueueBytesMax, 64<<20)
	switch {
	case c.BatchesMax < 3 || c.BatchesMax > 1000:
		return c, fmt.Errorf("%w: --write-batches-max is %d, it must be 3 to 1000", ErrInvalid, c.BatchesMax)
	case c.QueueMax < 1:
		return c, fmt.Errorf("%w: --write-queue-max is %d, it must be at least 1", ErrInvalid, c.QueueMax)
	case c.QueueBytesMax < 1<<10:
		return c, fmt.Errorf("%w: --write-queue-bytes-max is %d, it must be at least 1024", ErrInvalid, c.QueueBytesMax)
	}
	return c, nil
}
