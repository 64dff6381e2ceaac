package store

import (
	"slices"
	"sync"
)

// writeColumns are writes as fence.write takes them, and the verdicts on them.
type writeColumns struct {
	writes   []*Write
	sums     [][]byte     // the digests of the writes
	verdicts []verdictRow // on the writes, in the order in which they were added

	// The arguments, turn after turn.
	claimColumns
	operationColumns
	digests  [][]byte
	turnEnds []int32

	order  []int32        // which of the writes is at each place
	turns  []int32        // of the writes, from 0
	latest map[Name]int32 // turn of each resource
}

var columnsPool = sync.Pool{New: func() any { return &writeColumns{} }}

// add keeps pointers to the write and its digest.
func (c *writeColumns) add(write *Write, digest []byte) {
	c.writes = append(c.writes, write)
	c.sums = append(c.sums, digest)
}

// arrange fills the arguments: the first writes to all resources, then the second ones, and so on.
func (c *writeColumns) arrange() {
	c.verdicts = slices.Grow(c.verdicts[:0], len(c.writes))[:len(c.writes)]
	c.order, c.turns, c.turnEnds = c.order[:0], c.turns[:0], c.turnEnds[:0]
	if c.latest == nil {
		c.latest = map[Name]int32{}
	}
	clear(c.latest)
	for i, write := range c.writes {
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
		slices.SortStableFunc(c.order, func(a, b int32) int { return int(c.turns[a] - c.turns[b]) })
	}
	for _, i := range c.order {
		c.claimColumns.add(&c.writes[i].WriteToken)
		c.operationColumns.add(&c.writes[i].Operation)
		c.digests = append(c.digests, c.sums[i])
	}
}

// verdictAt is the verdict on the write at a place of the arguments, from 1.
func (c *writeColumns) verdictAt(place int32) *verdictRow { return &c.verdicts[c.order[place-1]] }

// reset leaves room for as many writes as there were, and no pointers to them.
func (c *writeColumns) reset() {
	clear(c.writes)
	clear(c.sums)
	clear(c.verdicts)
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
		writes: c.writes[:0], sums: c.sums[:0], verdicts: c.verdicts[:0],
		claimColumns:     claimColumns{c.resources[:0], c.tokens[:0], c.sequences[:0], c.leaseIDs[:0]},
		operationColumns: operationColumns{c.kinds[:0], c.keys[:0], c.contentTypes[:0], c.values[:0], c.expected[:0]},
		digests:          c.digests[:0],
		turnEnds:         c.turnEnds[:0], order: c.order[:0], turns: c.turns[:0], latest: c.latest,
	}
}
