package lockclient

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
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

// render reads all events of a stream, one a line.
func render(stream io.Reader) (string, error) {
	events := newEventReader(stream)
	var text strings.Builder
	for {
		event, err := events.next()
		if err != nil {
			fmt.Fprintf(&text, "retry %v", events.retry)
			return text.String(), err
		}
		fmt.Fprintf(&text, "%q %q %q\n", event.id, event.kind, event.data)
	}
}

var streams = map[string]struct{ stream, want string }{
	"plain":                    {"id: 7\nevent: granted\ndata: {}\n\n", "\"7\" \"granted\" \"{}\"\nretry 0s"},
	"no space after the colon": {"id:7\nevent:a\ndata:x\n\n", "\"7\" \"a\" \"x\"\nretry 0s"},
	"one space only is left":   {"data:  x \n\n", "\"\" \"\" \" x \"\nretry 0s"},
	"comments and unknown":     {": alive\n\nfoo: bar\ndata: x\nbaz\n\n:\n", "\"\" \"\" \"x\"\nretry 0s"},
	"several lines of data":    {"data: a\ndata\ndata: b\n\n", "\"\" \"\" \"a\\n\\nb\"\nretry 0s"},
	"the id stays": {
		"id: 7\ndata: x\n\ndata: y\n\nid\ndata: z\n\n",
		"\"7\" \"\" \"x\"\n\"7\" \"\" \"y\"\n\"\" \"\" \"z\"\nretry 0s",
	},
	"an id without data stays": {"id: 7\nevent: a\n\ndata: y\n\n", "\"7\" \"\" \"y\"\nretry 0s"},
	"NUL in an id":             {"id: 7\nid: 8\x00\ndata: x\n\n", "\"7\" \"\" \"x\"\nretry 0s"},
	"CRLF": {
		"id: 7\r\ndata: x\r\n\r\ndata: y\r\n\r\n",
		"\"7\" \"\" \"x\"\n\"7\" \"\" \"y\"\nretry 0s",
	},
	"retry":                      {"retry: 1500\nretry: x\nretry: -1\n\n", "retry 1.5s"},
	"cut within an event":        {"data: x\n\ndata: y\n", "\"\" \"\" \"x\"\nretry 0s"},
	"cut within a line":          {"data: x\n\ndata: y", "\"\" \"\" \"x\"\nretry 0s"},
	"nothing":                    {"", "retry 0s"},
	"the kind is the event's":    {"event: a\ndata: x\n\ndata: y\n\n", "\"\" \"a\" \"x\"\n\"\" \"\" \"y\"\nretry 0s"},
	"a cut id counts for no one": {"id: 7\ndata: x\n\nid: 8", "\"7\" \"\" \"x\"\nretry 0s"},
}

func TestEventStreams(t *testing.T) {
	for what, test := range streams {
		for how, stream := range map[string]io.Reader{
			"at once":      strings.NewReader(test.stream),
			"byte by byte": iotest.OneByteReader(strings.NewReader(test.stream)),
		} {
			if got, err := render(stream); got != test.want || !errors.Is(err, io.EOF) {
				t.Errorf("%s, %s: got\n%s, %v, want\n%s", what, how, got, err, test.want)
			}
		}
	}
	huge := "data: " + strings.Repeat("x", eventBytesMax) + "\n\n"
	if _, err := render(strings.NewReader(huge)); !errors.Is(err, errEventTooLarge) {
		t.Errorf("a huge line: %v", err)
	}
	huge = strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 5) + "\n"
	if _, err := render(strings.NewReader(huge)); !errors.Is(err, errEventTooLarge) {
		t.Errorf("a huge event: %v", err)
	}
	if _, err := render(iotest.TimeoutReader(strings.NewReader("data: x\n\ndata: y\n"))); errors.Is(err, io.EOF) {
		t.Errorf("a reader that fails: %v", err)
	}
}

// However a stream is cut into reads, it has the same events.
func FuzzEventStreams(f *testing.F) {
	for _, test := range streams {
		f.Add(test.stream)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		whole, wholeErr := render(strings.NewReader(stream))
		pieces, piecesErr := render(iotest.OneByteReader(strings.NewReader(stream)))
		if whole != pieces || !errors.Is(wholeErr, piecesErr) {
			t.Errorf("%q is\n%s, %v\nat once, and\n%s, %v\nbyte by byte", stream, whole, wholeErr, pieces, piecesErr)
		}
	})
}
