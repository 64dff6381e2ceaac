package writes

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// bulkWindow holds the lines of a stream that were taken and not answered yet, in their order.
type bulkWindow struct {
	// entering is held while a line is submitted, and while one is noted as undecided. The store reports such a line
	// before it refuses the writes that wait behind it on its resource. So a later line either waits behind it by then
	// or is not submitted: no later write of a resource is admitted after an earlier one that was not decided.
	entering sync.Mutex
	failure  error // why a line could not be decided; guarded by entering

	mu   sync.Mutex
	room sync.Cond // for the reader: there is room, or the stream was stopped
	head sync.Cond // for the writer: the first line is settled, or the stream was stopped

	lines       [bulkLinesMax]*bulkLine // a ring
	first, held int
	undecided   int // of the lines, those that are not settled
	bytes       int // of the lines that are not settled, and of answers that were not written
	free        []*bulkLine

	nextLine int64         // the number after the last line that was taken
	stopped  string        // why no more lines are taken; "": they are
	ending   chan struct{} // closed when stopped is set
}

func newBulkWindow() *bulkWindow {
	w := &bulkWindow{nextLine: 1, ending: make(chan struct{})}
	w.room.L, w.head.L = &w.mu, &w.mu
	return w
}

// take waits for room and takes the next line, which then gets a verdict. It returns nil if the stream was stopped.
func (w *bulkWindow) take(number int64, bytes int, deadline *bulkDeadline) *bulkLine {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.stopped == "" && (w.held == bulkLinesMax || w.bytes > 0 && w.bytes+bytes > bulkBytesMax) {
		deadline.disarm() // the client is not late
		w.room.Wait()
	}
	if w.stopped != "" {
		return nil
	}
	var line *bulkLine
	if n := len(w.free); n > 0 {
		line, w.free = w.free[n-1], w.free[:n-1]
	} else {
		line = &bulkLine{window: w}
		line.decided = line.decide
	}
	line.number, line.bytes, line.malformed, line.settled = number, bytes, false, false
	w.undecided++
	w.lines[(w.first+w.held)%bulkLinesMax] = line
	w.held++
	w.bytes += bytes
	w.nextLine = number + 1
	return line
}

// submit calls enter to submit a line. It returns an error if the line was not submitted, or not decided at once.
func (w *bulkWindow) submit(line *bulkLine, enter func()) error {
	w.entering.Lock()
	defer w.entering.Unlock()
	if w.failure != nil {
		return w.failure
	}
	w.mu.Lock()
	line.submitting, line.undecided = true, nil
	w.mu.Unlock()
	enter()
	w.mu.Lock()
	defer w.mu.Unlock()
	line.submitting = false
	if err := line.undecided; err != nil && !errors.Is(err, store.ErrOverloaded) {
		w.failure = notApplied(err)
	}
	return line.undecided
}

// leaveUndecided reports whether a line that could not be decided is left to the reader, since Submit has not returned.
// Otherwise no more lines are submitted.
func (w *bulkWindow) leaveUndecided(line *bulkLine, err error) bool {
	w.mu.Lock()
	if line.submitting {
		line.undecided = err
		w.mu.Unlock()
		return true
	}
	w.mu.Unlock()
	w.entering.Lock()
	defer w.entering.Unlock()
	w.failure = notApplied(err)
	return false
}

// notApplied is the error of lines that were not submitted.
func notApplied(err error) error {
	return store.NotApplied(fmt.Errorf("a line before it could not be decided: %w", err))
}

// settle notes a verdict. It frees what the line held at once, whether the client takes the verdict or not.
func (w *bulkWindow) settle(line *bulkLine, result store.Result, err error) {
	if err == nil {
		err = result.Err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	line.result, line.err, line.settled = result, err, true
	line.write.Operation, line.transaction = store.Operation{}, nil
	w.undecided--
	w.bytes += len(line.answer) - line.bytes
	w.room.Signal()
	if w.lines[w.first] == line {
		w.head.Signal()
	}
	if errors.Is(err, store.ErrUnavailable) {
		w.stopLocked(api.BulkUnavailable)
	}
}

// stop takes no more lines. The first reason counts.
func (w *bulkWindow) stop(reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopLocked(reason)
}

func (w *bulkWindow) stopLocked(reason string) {
	if w.stopped == "" {
		w.stopped = reason
		close(w.ending)
		w.room.Signal()
		w.head.Signal()
	}
}

// next returns the settled lines at the head, up to the capacity of into, and takes back the lines that it returned
// before. If it may wait, it returns none only after the stream was stopped and every line was returned.
func (w *bulkWindow) next(into, back []*bulkLine, wait bool) []*bulkLine {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = append(w.free, back...)
	for _, line := range back {
		w.bytes -= len(line.answer)
		line.answer = nil
	}
	if len(back) > 0 {
		w.room.Signal()
	}
	for wait && (w.held > 0 || w.stopped == "") && (w.held == 0 || !w.lines[w.first].settled) {
		w.head.Wait()
	}
	into = into[:0]
	for w.held > 0 && len(into) < cap(into) && w.lines[w.first].settled {
		into = append(into, w.lines[w.first])
		w.lines[w.first] = nil
		w.first = (w.first + 1) % bulkLinesMax
		w.held--
	}
	if len(into) > 0 {
		w.room.Signal()
	}
	return into
}

// sleep reports whether lines are still taken after the pause.
func (w *bulkWindow) sleep(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.ending:
		return false
	}
}

// end returns why the stream was stopped, and the number of the first line that was not taken.
func (w *bulkWindow) end() (reason string, nextLine int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopped, w.nextLine
}
