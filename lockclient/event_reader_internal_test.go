package lockclient

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

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
