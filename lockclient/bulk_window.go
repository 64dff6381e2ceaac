package lockclient

import (
	"bytes"
	"context"
	"strconv"

	"github.com/fencegate/fencegate/gateway/api"
)

// lineFault returns what keeps a line from being sent as one line; empty: nothing.
func lineFault(line []byte) string {
	switch {
	case len(bytes.TrimSpace(line)) == 0:
		return "the line is empty: it would have no verdict"
	case bytes.IndexByte(line, '\n') >= 0:
		return "the line has a line feed in it"
	}
	return ""
}

// add puts a write into the window, and numbers it if there is a lease.
func (b *BulkWriter) add(ctx context.Context, w *PendingWrite) error {
	w.done = make(chan struct{})
	if err := takeTurn(ctx, b.adding, w.op); err != nil {
		return err
	}
	defer endTurn(b.adding)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.awaitRoom(ctx, w); err != nil {
		b.letOthersWrite()
		return err
	}
	w.index = b.added
	b.added++
	if b.lease != nil {
		b.lease.sequence++
		w.sequence = b.lease.sequence
		w.line = append(strconv.AppendInt(w.line, w.sequence, 10), '}', '\n')
	}
	if b.last == nil {
		b.first = w
	} else {
		b.last.next = w
	}
	b.last = w
	b.held++
	b.bytes += len(w.line)
	if b.connection != nil && b.connection.cursor == nil {
		b.connection.cursor = w
	}
	b.work.Broadcast()
	return nil
}

// awaitRoom waits for room in the window, and makes the lease's other writes wait. b.mu is held, but not while it
// waits.
func (b *BulkWriter) awaitRoom(ctx context.Context, w *PendingWrite) error {
	for {
		switch err := b.refusal(); {
		case err != nil:
			return err
		case b.held >= b.window || b.held > 0 && b.bytes+len(w.line) > b.bytesMax:
			changed := b.changed
			b.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
				err = endedWith(ctx, notSent(w.op, "the window has no room", ctx.Err()), nil)
			}
			b.mu.Lock()
			if err != nil {
				return err
			}
		case b.lease != nil && !b.writing:
			// Only add sets it to true, and adding lets one add run at a time.
			b.mu.Unlock()
			err := takeTurn(ctx, b.lease.writing, w.op)
			b.mu.Lock()
			if err != nil {
				return err
			}
			b.writing = true
		default:
			return nil
		}
	}
}

// refusal returns why no more writes are taken; nil: they are. b.mu is held.
func (b *BulkWriter) refusal() error {
	switch {
	case b.closing:
		return refused("pipeline", api.CodeInvalidRequest, errPipelineClosed.Error())
	case b.lease != nil && b.lease.Err() != nil:
		return b.lease.Err()
	case b.ctx.Err() != nil:
		return endedWith(b.ctx, notSent("pipeline", "its ctx has ended", context.Cause(b.ctx)), nil)
	}
	return nil
}

// letOthersWrite lets the lease's other writes continue when the window is empty. b.mu is held.
func (b *BulkWriter) letOthersWrite() {
	if b.writing && b.held == 0 {
		b.writing = false
		endTurn(b.lease.writing)
	}
}

// settle gives a write its result. It leaves the window when all writes before it have theirs, too.
func (b *BulkWriter) settle(w *PendingWrite, verdict api.BulkVerdict, err error) {
	verdict.Line = w.index + 1
	b.mu.Lock()
	w.settled, w.verdict, w.err = true, verdict, err
	b.mu.Unlock()
	for {
		b.mu.Lock()
		front := b.first
		ready := front != nil && front.settled
		b.mu.Unlock()
		if !ready {
			return
		}
		if b.onResult != nil {
			b.onResult(BulkResult{Index: front.index, Verdict: front.verdict, Err: front.err})
		}
		b.remove(front)
	}
}

// remove takes the first write out of the window.
func (b *BulkWriter) remove(w *PendingWrite) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failure == nil {
		b.failure = w.err
	}
	b.held--
	b.bytes -= len(w.line)
	if b.connection != nil && b.connection.cursor == w {
		b.connection.cursor = w.next // it was settled by an earlier connection
	}
	// A caller that keeps the write must not keep the writes after it in memory.
	b.first, w.next, w.line = w.next, nil, nil
	if b.first == nil {
		b.last = nil
		b.work.Broadcast() // for Close
	}
	b.letOthersWrite()
	close(w.done)
	close(b.changed)
	b.changed = make(chan struct{})
}
