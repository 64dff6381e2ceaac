package lockclient

import (
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

func newTestConnection(writes ...*PendingWrite) (*BulkWriter, *bulkConnection) {
	b := &BulkWriter{changed: make(chan struct{})}
	b.work = sync.NewCond(&b.mu)
	for i, w := range writes {
		w.done = make(chan struct{})
		if i == 0 {
			b.first = w
		} else {
			b.last.next = w
		}
		b.last = w
		b.held++
	}
	l := &bulkConnection{writer: b, limit: time.Hour, silence: time.NewTimer(time.Hour), cursor: b.first}
	b.connection = l
	return b, l
}

// A write that is still to be sent is sent, also if the writes before it leave the window between two reads, and the
// next of them was settled over an earlier connection.
func TestConnectionSendsBehindASettledWrite(t *testing.T) {
	resent, settled, next := &PendingWrite{line: []byte("1\n")}, &PendingWrite{line: []byte("2\n"), settled: true},
		&PendingWrite{line: []byte("3\n")}
	b, l := newTestConnection(resent, settled, next)
	into := make([]byte, 2)
	if n := l.fill(into); string(into[:n]) != "1\n" {
		t.Fatalf("the first read returned %q, want the first line", into[:n])
	}
	b.settle(resent, api.BulkVerdict{Status: 200}, nil)
	if n := l.fill(into); string(into[:n]) != "3\n" {
		t.Errorf("the next read returned %q, want the third line", into[:n])
	}
}

// The connection's list of sent writes stays small, also while some verdict is always due.
func TestConnectionForgetsWritesWithAVerdict(t *testing.T) {
	b, l := newTestConnection()
	into := make([]byte, 64)
	for range 100_000 {
		w := &PendingWrite{line: []byte("x\n"), done: make(chan struct{})}
		if b.last == nil {
			b.first = w
		} else {
			b.last.next = w
		}
		b.last, l.cursor = w, w
		b.held++
		l.fill(into)
		if l.due() > 2 {
			if _, err := l.take(api.BulkVerdict{Status: 200}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if cap(l.sent) > 64 {
		t.Errorf("the list of sent writes has room for %d, want at most 64 for 3 without a verdict", cap(l.sent))
	}
}
