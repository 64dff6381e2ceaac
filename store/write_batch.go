package store

import (
	"slices"
	"sync"
)

// WriteBatch is a list of writes for Store.ExecWrites, and the verdicts on them. Its zero value is empty. It is reused:
// what a batch of writes costs must not grow.
type WriteBatch struct {
	writes   []*Write
	sums     [][]byte     // the digests of the writes
	verdicts []verdictRow // on the writes, in the order in which they were added

	// The arguments, turn after turn.
	tokenColumns
	operationColumns
	digests  [][]byte
	turnEnds []int32

	lockWait int32 // how long the statement waits for fences, in milliseconds

	order  []int32        // which of the writes each argument is of
	turns  []int32        // of the writes, from 0
	latest map[Name]int32 // turn of each resource
}

var writeBatches = sync.Pool{New: func() any { return &WriteBatch{} }}

// Add appends a write with its digest (see Write.Digest). The batch keeps both pointers until Reset.
func (b *WriteBatch) Add(write *Write, digest *Digest) {
	b.writes = append(b.writes, write)
	b.sums = append(b.sums, digest[:])
}

// Busy reports whether the write at index was not decided because another session has locked its fence.
func (b *WriteBatch) Busy(index int) bool { return b.verdicts[index].verdict == verdictBusy }

// Result returns the verdict on the write at index.
func (b *WriteBatch) Result(index int) Result { return b.verdicts[index].result(b.writes[index]) }

// arrange fills the arguments: the first writes to all resources, then the second ones, and so on.
func (b *WriteBatch) arrange() {
	b.verdicts = slices.Grow(b.verdicts[:0], len(b.writes))[:len(b.writes)]
	b.order, b.turns, b.turnEnds = b.order[:0], b.turns[:0], b.turnEnds[:0]
	if b.latest == nil {
		b.latest = map[Name]int32{}
	}
	clear(b.latest)
	for i, write := range b.writes {
		turn := b.latest[write.Resource]
		b.latest[write.Resource] = turn + 1
		if int(turn) == len(b.turnEnds) {
			b.turnEnds = append(b.turnEnds, 0)
		}
		b.turnEnds[turn]++
		b.order, b.turns = append(b.order, int32(i)), append(b.turns, turn)
	}
	for turn := 1; turn < len(b.turnEnds); turn++ {
		b.turnEnds[turn] += b.turnEnds[turn-1]
	}
	if len(b.turnEnds) > 1 {
		slices.SortStableFunc(b.order, func(x, y int32) int { return int(b.turns[x] - b.turns[y]) })
	}
	for _, i := range b.order {
		b.tokenColumns.add(&b.writes[i].WriteToken)
		b.operationColumns.add(&b.writes[i].Operation)
		b.digests = append(b.digests, b.sums[i])
	}
}

// verdictOf returns the verdict on the write that is the nth argument, from 1.
func (b *WriteBatch) verdictOf(n int32) *verdictRow { return &b.verdicts[b.order[n-1]] }

// Reset removes all writes. It keeps the memory, but no pointer to a write.
func (b *WriteBatch) Reset() {
	clear(b.writes)
	clear(b.sums)
	clear(b.verdicts)
	clear(b.resources)
	clear(b.tokens)
	clear(b.sequences)
	clear(b.leaseIDs)
	clear(b.kinds)
	clear(b.keys)
	clear(b.contentTypes)
	clear(b.values)
	clear(b.expected)
	clear(b.digests)
	clear(b.latest)
	*b = WriteBatch{
		writes: b.writes[:0], sums: b.sums[:0], verdicts: b.verdicts[:0],
		tokenColumns:     tokenColumns{b.resources[:0], b.tokens[:0], b.sequences[:0], b.leaseIDs[:0]},
		operationColumns: operationColumns{b.kinds[:0], b.keys[:0], b.contentTypes[:0], b.values[:0], b.expected[:0]},
		digests:          b.digests[:0],
		turnEnds:         b.turnEnds[:0], order: b.order[:0], turns: b.turns[:0], latest: b.latest,
	}
}
