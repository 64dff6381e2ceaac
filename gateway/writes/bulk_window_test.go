package writes

import (
	"testing"

	"github.com/fencegate/fencegate/store"
)

// The answers of transactions count as bytes of the stream until they are written.
func TestBulkWindowCountsAnswers(t *testing.T) {
	t.Parallel()
	window := newBulkWindow()
	line := window.take(1, 10, nil)
	line.answer = make([]byte, 100)
	window.settle(line, store.Result{}, nil)
	lines := window.next(make([]*bulkLine, 0, 1), nil, true)
	if len(lines) != 1 || window.undecided != 0 || window.bytes != 100 {
		t.Errorf("the window counts %d bytes and %d lines, want 100 and 0", window.bytes, window.undecided)
	}
	window.next(nil, lines, false)
	if window.bytes != 0 || line.answer != nil {
		t.Errorf("the window counts %d bytes after the answer was written", window.bytes)
	}
}
