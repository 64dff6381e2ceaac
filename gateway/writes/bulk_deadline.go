package writes

import (
	"net/http"
	"sync"
	"time"
)

// bulkDeadline is the read deadline of a bulk stream. Nothing else sets the connection's deadline, which can't be read
// back: two goroutines set it, the reader and the one that ends the stream.
type bulkDeadline struct {
	controller *http.ResponseController

	mu    sync.Mutex
	until time.Time // for the current line
	set   time.Time // on the connection; zero: none
	ended bool
	// whole says that the body was read to its end.
	whole bool
}

// begin starts the time of a new line.
func (d *bulkDeadline) begin(timeout time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = time.Now().Add(timeout)
}

// arm applies the deadline to the next read.
func (d *bulkDeadline) arm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended && !d.set.Equal(d.until) {
		d.set = d.until
		_ = d.controller.SetReadDeadline(d.set) // fails where the read does
	}
}

// disarm removes the deadline while nothing is read: over HTTP/2, one that passes would end the body.
func (d *bulkDeadline) disarm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended && !d.set.IsZero() {
		d.set = time.Time{}
		_ = d.controller.SetReadDeadline(time.Time{})
	}
}

// end limits the reader's remaining time, whatever it does.
func (d *bulkDeadline) end(linger time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	if !d.whole {
		_ = d.controller.SetReadDeadline(time.Now().Add(linger))
	}
}

// bodyEnded removes the deadline for good. After the end of an HTTP/1.1 body, net/http reads the connection, to notice
// that the client leaves. If a deadline passed then, net/http would take the client for gone, and cancel the contexts
// of this and all later requests on the connection.
func (d *bulkDeadline) bodyEnded() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended, d.whole = true, true
	_ = d.controller.SetReadDeadline(time.Time{})
}

// wholeBody reports whether the body was read to its end.
func (d *bulkDeadline) wholeBody() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.whole
}
