package store

import (
	"slices"
	"sync"
)

// writeColumns are the arguments for a WriteBatch, turn after turn. They are reused.
type writeColumns struct {
	batch *WriteBatch
	tokenColumns
	operationColumns
	digests  [][]byte
	turnEnds []int32

	lockWait int32 // how long the statement waits for fences, in milliseconds

	order  []int32        // which of the writes each argument is of
	turns  []int32        // of the writes, from 0
	latest map[Name]int32 // turn of each resource
}

var (
	writeBatches = sync.Pool{New: func() any { return &WriteBatch{} }}
	columnsPool  = sync.Pool{New: func() any { return &writeColumns{latest: map[Name]int32{}} }}
)

// arrange fills the arguments with those of a batch: the first writes to all resources, then the second ones, and so on.
func (c *writeColumns) arrange(batch *WriteBatch) {
	c.batch = batch
	c.batch.Decisions = slices.Grow(c.batch.Decisions[:0], len(c.batch.Writes))[:len(c.batch.Writes)]
	for i, write := range c.batch.Writes {
		turn := c.latest[write.Resource]
		c.latest[write.Resource] = turn + 1
		if int(turn) == len(c.turnEnds) {
			c.turnEnds = append(c.turnEnds, 0)
		}
		c.turnEnds[turn]++
		c.order, c.turns = append(c.order, int32(i)), append(c.turns, turn)
	}
	for turn := 1; turn < len(c.turnEnds); turn++ {
		c.turnEnds[turn] += c.turnEnds[turn-1]
	}
	if len(c.turnEnds) > 1 {
		slices.SortStableFunc(c.order, func(x, y int32) int { return int(c.turns[x] - c.turns[y]) })
	}
	for _, i := range c.order {
		c.tokenColumns.add(&c.batch.Writes[i].WriteToken)
		c.operationColumns.add(&c.batch.Writes[i].Operation)
		c.digests = append(c.digests, c.batch.Digests[i])
	}
}

// decisionOf returns the decision on the write that is the nth argument, from 1.
func (c *writeColumns) decisionOf(n int32) *Decision { return &c.batch.Decisions[c.order[n-1]] }

// release keeps the memory for the next batch, but no pointer to a write.
func (c *writeColumns) release() {
	clear(c.resources)
	clear(c.tokens)
	clear(c.sequences)
	clear(c.leaseIDs)
	clear(c.kinds)
	clear(c.keys)
	clear(c.contentTypes)
	clear(c.values)
	clear(c.expected)
	clear(c.digests)
	clear(c.latest)
	*c = writeColumns{
		tokenColumns:     tokenColumns{c.resources[:0], c.tokens[:0], c.sequences[:0], c.leaseIDs[:0]},
		operationColumns: operationColumns{c.kinds[:0], c.keys[:0], c.contentTypes[:0], c.values[:0], c.expected[:0]},
		digests:          c.digests[:0],
		turnEnds:         c.turnEnds[:0], order: c.order[:0], turns: c.turns[:0], latest: c.latest,
	}
	columnsPool.Put(c)
}
