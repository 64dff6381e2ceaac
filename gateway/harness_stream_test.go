package gateway

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// stream is a client of a stream of events.
type stream struct {
	response *http.Response
	events   <-chan streamEvent // closed when the stream has ended
	comments <-chan struct{}    // one or more have come
	close    context.CancelFunc

	lastID atomic.Value // a string: the last id that came, with an event or alone
}

// open begins a stream, whose events are read as they come; headers are written "Name: value".
func (c client) open(t testing.TB, path string, headers ...string) *stream {
	t.Helper()
	s := c.openUnread(t, path, headers...)
	s.read(t)
	return s
}

// openUnread begins a stream that nobody reads yet.
func (c client) openUnread(t testing.TB, path string, headers ...string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Add(name, value)
	}
	response, err := c.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = response.Body.Close()
	})
	if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || kind != eventStreamType {
		t.Fatalf("GET %s: answered %d, %s", path, response.StatusCode, kind)
	}
	return &stream{response: response, close: cancel}
}

// read begins to read what comes.
func (s *stream) read(t testing.TB) {
	t.Helper()
	events, comments := make(chan streamEvent, 10_000), make(chan struct{}, 1)
	s.events, s.comments = events, comments
	go func() {
		defer close(events)
		reader := bufio.NewReader(s.response.Body)
		var block strings.Builder
		for {
			line, err := reader.ReadString('\n')
			if err != nil {
				return // the gateway has ended the stream, or the test has
			}
			block.WriteString(line)
			if id, found := strings.CutPrefix(line, "id: "); found {
				s.lastID.Store(strings.TrimSpace(id))
			}
			if line != "\n" {
				continue
			}
			parsed, rest, err := parseEvents(block.String())
			if err != nil || rest != "" {
				t.Errorf("%q is no event: %v", block.String(), err)
			}
			for _, event := range parsed {
				events <- event
			}
			if len(parsed) == 0 {
				select {
				case comments <- struct{}{}:
				default:
				}
			}
			block.Reset()
		}
	}()
}

// next waits for an event, which must be of the given kind.
func (s *stream) next(t testing.TB, kind string) streamEvent {
	t.Helper()
	select {
	case event, ok := <-s.events:
		if !ok || event.kind != kind {
			t.Fatalf("the event is %+v, want %s; the stream goes on: %v", event, kind, ok)
		}
		return event
	case <-time.After(time.Minute):
		t.Fatalf("waited in vain for the event %s", kind)
	}
	return streamEvent{}
}

// over waits for the end of the stream, before which no event may come.
func (s *stream) over(t testing.TB) {
	t.Helper()
	select {
	case event, ok := <-s.events:
		if ok {
			t.Errorf("after the end came %+v", event)
		}
	case <-time.After(time.Minute):
		t.Error("the stream did not end")
	}
}

// number is the id of an event.
func (e streamEvent) number(t testing.TB) int64 {
	t.Helper()
	id, err := strconv.ParseInt(e.id, 10, 64)
	if err != nil {
		t.Fatalf("the id of %+v: %v", e, err)
	}
	return id
}

// dataOf reads the data of an event.
func dataOf[T any](t testing.TB, event streamEvent) T {
	t.Helper()
	var document T
	decodeStrictly(t, answer{request: event.kind, body: []byte(event.data)}, &document)
	return document
}

func (s *stream) nextEvent(t testing.TB, kind string) api.Event {
	t.Helper()
	return dataOf[api.Event](t, s.next(t, kind))
}

// endedFor waits for the last event, and the end after it.
func (s *stream) endedFor(t testing.TB, reason string) {
	t.Helper()
	if end := dataOf[api.WatchEnd](t, s.next(t, api.EventEnd)); end.Reason != reason {
		t.Errorf("the stream ended for %s, want %s", end.Reason, reason)
	}
	s.over(t)
}

// awaitStreams returns when the gateway has n streams open.
func (h *harness) awaitStreams(t *testing.T, n float64) {
	t.Helper()
	eventually(t, strconv.FormatFloat(n, 'f', 0, 64)+" streams are open", func() bool {
		metrics, _ := h.scrape(t)
		return metrics.value("fencegate_open_watches") == n
	})
}
