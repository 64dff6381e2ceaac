package groupcommit

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/store"
)

// batch is writes that are decided in one commit. It is a worker's, and used again.
type batch struct {
	ctx     context.Context // of the statements
	span    trace.Span      // nil: none of the rows is traced
	lane    *lane
	streams []*stream
	rows    []*pending // sorted by resource, those to one resource in their order
	count   int        // of the rows
	bytes   int64
	busy    []*pending // rows that were put off
	columns store.WriteBatch

	took time.Duration // of the last statement that was answered; 0: none was
}

// fits says whether the write may be added: the bounds of a batch, and that a large value is none of the quick lane's.
func (b *batch) fits(p *pending) bool {
	switch {
	case b.lane.kind == laneQuick && p.size > largeBytes:
		return false
	case b.count == 0:
		return true
	}
	return b.count < batchRowsMax && b.bytes+p.size <= batchBytesMax
}

func (b *batch) reset() {
	clear(b.streams)
	clear(b.rows)
	clear(b.busy)
	b.columns.Reset()
	*b = batch{streams: b.streams[:0], rows: b.rows[:0], busy: b.busy[:0], columns: b.columns}
}

// decide has rows decided in one commit, and tells each its verdict. What waited too long for a lock of somebody else is put off. Where the fault
// may be in one row, the rows are taken apart by halves until it stands alone and gets the error for itself. All else, a statement timeout among it, is told to
// every row: another try would know no more than the caller's, and make all wait twice.
func (g *Group) decide(b *batch, rows []*pending) {
	err := g.ask(b, rows)
	switch {
	case err == nil:
	case errors.Is(err, store.ErrLocked) && b.lane.kind != lanePatient:
		// Who of several is in the way is found out by having each go alone.
		several := rows[0].stream != rows[len(rows)-1].stream
		b.putOff(rows, !several)
	case errors.Is(err, store.ErrUnavailable):
		b.fail(rows, err)
	case len(rows) == 1:
		rows[0].answer(store.Result{}, err)
	default:
		half := len(rows) / 2
		g.decide(b, rows[:half])
		if rest := b.without(rows[half:]); len(rest) > 0 {
			g.decide(b, rest)
		}
	}
}

// ask sends rows in one statement. If that is committed, it tells them their verdicts and returns nil.
func (g *Group) ask(b *batch, rows []*pending) error {
	b.columns.Reset()
	for _, p := range rows {
		b.columns.Add(&p.write, &p.digest)
	}
	ctx, cancel := context.WithTimeout(b.ctx, g.timeout)
	defer cancel()
	begun := time.Now()
	err := g.store.ExecWrites(ctx, &b.columns, b.lane.kind == lanePatient)
	if err != nil {
		return err
	}
	b.took = time.Since(begun)
	g.commits[b.lane.kind].Add(b.took)
	for i, p := range rows {
		if b.columns.Busy(i) {
			b.putOff(rows[i:i+1], true)
		} else {
			p.answer(b.columns.Result(i), nil)
		}
	}
	return nil
}

// fail tells rows that they could not be decided. What waits behind them will be told that it was not applied, see Group.settle.
func (b *batch) fail(rows []*pending, err error) {
	if b.span != nil {
		store.SpanFailed(b.span, err)
	}
	for _, p := range rows {
		p.stream.failed = err
		p.answer(store.Result{}, err)
	}
}

// putOff gives rows back to their streams. Where it is known that somebody else has locked what they need, they will wait for that.
func (b *batch) putOff(rows []*pending, locked bool) {
	for _, p := range rows {
		p.stream.putOff, p.stream.locked = true, locked
	}
	b.busy = append(b.busy, rows...)
}

// without takes out the rows that stand behind one of the same stream which could not be decided, or was put off, and returns the others.
func (b *batch) without(rows []*pending) []*pending {
	for len(rows) > 0 {
		switch s := rows[0].stream; {
		case s.failed != nil:
			rows[0].answer(store.Result{}, store.NotApplied(s.failed))
		case s.putOff:
			b.putOff(rows[:1], s.locked)
		default:
			return rows
		}
		rows = rows[1:]
	}
	return nil
}
