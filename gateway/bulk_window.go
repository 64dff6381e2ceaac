package gateway

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// bulkLine is a line that was taken. It is used again when its verdict is written.
type bulkLine struct {
	window *bulkWindow
	number int64
	bytes  int
	taken  time.Time
	write  store.Write
	// decided takes the verdict of the store, once, from any goroutine.
	decided func(store.Result, error)

	// submitting: Submit has not returned; undecided is then why the line could not be decided. Both are guarded by the window.
	submitting bool
	undecided  error

	malformed bool // it was refused before the store was asked
	settled   bool // result or err is there
	result    store.Result
	err       error
}

// decide takes the verdict of the store. What comes before Submit has returned, and is no verdict, is left to the reader: he may submit
// the line again.
func (l *bulkLine) decide(result store.Result, err error) {
	if errors.Is(err, store.ErrUnavailable) && l.window.undecided(l, err) {
		return
	}
	l.window.settle(l, result, err)
}

// refuse settles a line that the store was not asked about.
func (l *bulkLine) refuse(err error) {
	l.malformed = true
	l.window.settle(l, store.Result{}, err)
}

// bulkWindow holds the lines of a stream that were taken and not answered yet, in their order.
type bulkWindow struct {
	// entering is held while a line is submitted, and by who notes that one could not be decided. The store refuses what waits behind such a
	// line on its resource, after it has told of it: so either a line stands behind it by then, or it is not submitted at all, and no later
	// write of a resource is admitted where an earlier one was not decided.
	entering sync.Mutex
	failure  error // why a line could not be decided; guarded by entering

	mu   sync.Mutex
	room sync.Cond // for the reader: there is room, or the stream was stopped
	head sync.Cond // for the writer: the first line is settled, or the stream was stopped

	lines       [bulkLinesMax]*bulkLine // a ring
	first, held int
	bytes       int // of the lines that are not settled
	free        []*bulkLine

	nextLine int64         // after the last that was taken
	stopped  string        // why no more lines are taken; "": they are
	ending   chan struct{} // closed when stopped is set
}

func newBulkWindow() *bulkWindow {
	w := &bulkWindow{nextLine: 1, ending: make(chan struct{})}
	w.room.L, w.head.L = &w.mu, &w.mu
	return w
}

// take makes the next line one that was taken, when there is room for it; nil if the stream was stopped. From here on it has a verdict.
func (w *bulkWindow) take(number int64, bytes int, deadline *deadlines) *bulkLine {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.stopped == "" && (w.held == bulkLinesMax || w.bytes > 0 && w.bytes+bytes > bulkBytesMax) {
		deadline.disarm() // it is not the client who is late
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
	w.lines[(w.first+w.held)%bulkLinesMax] = line
	w.held++
	w.bytes += bytes
	w.nextLine = number + 1
	return line
}

// submit has enter submit a line. It returns an error if the line was not taken in, or could not be decided at once.
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

// undecided reports whether a line that could not be decided is the reader's, since Submit has not returned. Otherwise nothing is
// submitted from now on.
func (w *bulkWindow) undecided(line *bulkLine, err error) bool {
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

// notApplied is what lines are told that were not submitted.
func notApplied(err error) error {
	return &store.UnavailableError{Outcome: store.OutcomeNotApplied, Err: fmt.Errorf("a line before it could not be decided: %w", err)}
}

// settle notes a verdict. What the line held is let go at once, whether the client takes the verdict or not.
func (w *bulkWindow) settle(line *bulkLine, result store.Result, err error) {
	if err == nil {
		err = result.Err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	line.result, line.err, line.settled = result, err, true
	line.write.Operation = store.Operation{}
	w.bytes -= line.bytes
	w.room.Signal()
	if w.lines[w.first] == line {
		w.head.Signal()
	}
	if errors.Is(err, store.ErrUnavailable) {
		w.stopLocked(api.BulkUnavailable)
	}
}

// stop says that no more lines are taken. The first reason counts.
func (w *bulkWindow) stop(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopLocked(why)
}

func (w *bulkWindow) stopLocked(why string) {
	if w.stopped == "" {
		w.stopped = why
		close(w.ending)
		w.room.Signal()
		w.head.Signal()
	}
}

// next gives the settled lines at the head, as many as into has room for, and takes back those that it gave before. It gives none if
// there are none, unless it may wait; then it gives none if the stream was stopped and every line that was taken has been given.
func (w *bulkWindow) next(into, back []*bulkLine, wait bool) []*bulkLine {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = append(w.free, back...)
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

// end is why the stream was stopped, and the first line that was not taken.
func (w *bulkWindow) end() (why string, nextLine int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopped, w.nextLine
}
