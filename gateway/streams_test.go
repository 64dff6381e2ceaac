package gateway

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/openapi"
	"github.com/fencegate/fencegate/lockclient/api"
)

// stream is a client of a stream of events.
type stream struct {
	response *http.Response
	events   <-chan streamEvent // closed when the stream has ended
	comments <-chan struct{}    // has an element after one or more comments
	close    context.CancelFunc

	lastID atomic.Value // a string: the last id received, with an event or alone
}

// open opens a stream and reads its events as they come.
func (c client) open(t testing.TB, path string, headers ...string) *stream {
	t.Helper()
	s := c.openUnread(t, path, headers...)
	s.read(t)
	return s
}

// openUnread opens a stream that is not read yet.
func (c client) openUnread(t testing.TB, path string, headers ...string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	addHeaders(request.Header, headers...)
	response, err := c.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = response.Body.Close()
	})
	if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Fatalf("GET %s: answered %d %s, want a stream of events", path, response.StatusCode, kind)
	}
	return &stream{response: response, close: cancel}
}

// read starts to read events into s.events.
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
				return // the gateway or the test has ended the stream
			}
			block.WriteString(line)
			if id, found := strings.CutPrefix(line, "id: "); found {
				s.lastID.Store(strings.TrimSpace(id))
			}
			if line != "\n" {
				continue
			}
			parsed, rest, err := openapi.ParseEvents(block.String())
			if err != nil || rest != "" {
				t.Errorf("received %q, want an event: %v", block.String(), err)
			}
			for _, event := range parsed {
				events <- streamEvent{event}
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

// streamEvent is an event as a test looks at it.
type streamEvent struct{ openapi.Event }

// next waits for an event of the given kind.
func (s *stream) next(t testing.TB, kind string) streamEvent {
	t.Helper()
	select {
	case event, ok := <-s.events:
		if !ok || event.Kind != kind {
			t.Fatalf("received the event %+v, want %s; the stream is open: %v", event, kind, ok)
		}
		return event
	case <-time.After(await.Limit):
		t.Fatalf("waited in vain for the event %s", kind)
	}
	return streamEvent{}
}

// over waits for the end of the stream and expects no event before it.
func (s *stream) over(t testing.TB) {
	t.Helper()
	select {
	case event, ok := <-s.events:
		if ok {
			t.Errorf("received %+v, want the end of the stream", event)
		}
	case <-time.After(await.Limit):
		t.Error("waited in vain for the end of the stream")
	}
}

// number is the id of an event.
func (e streamEvent) number(t testing.TB) int64 {
	t.Helper()
	id, err := strconv.ParseInt(e.ID, 10, 64)
	if err != nil {
		t.Fatalf("the id of %+v: %v", e, err)
	}
	return id
}

// dataOf decodes the data of an event.
func dataOf[T any](t testing.TB, event streamEvent) T {
	t.Helper()
	var document T
	decodeStrictly(t, answer{request: event.Kind, body: []byte(event.Data)}, &document)
	return document
}

// endedFor waits for the event end with this reason, and for the end of the stream.
func (s *stream) endedFor(t testing.TB, reason string) {
	t.Helper()
	if end := dataOf[api.WatchEnd](t, s.next(t, api.EventEnd)); end.Reason != reason {
		t.Errorf("the stream ended with the reason %s, want %s", end.Reason, reason)
	}
	s.over(t)
}

// awaitEvent waits for the next event that a function accepts, and returns its data.
func awaitEvent[T any](t testing.TB, s *stream, kind string, accept func(T) bool) T {
	t.Helper()
	for {
		if data := dataOf[T](t, s.next(t, kind)); accept(data) {
			return data
		}
	}
}

// awaitKeptAlive returns when comments have arrived for that long.
func (s *stream) awaitKeptAlive(t testing.TB, interval time.Duration) {
	t.Helper()
	for until := time.Now().Add(interval); time.Now().Before(until); {
		select {
		case <-s.comments:
		case <-time.After(await.Limit):
			t.Fatal("waited in vain for a comment on an idle stream")
		}
	}
}

// awaitStreams returns when n streams of events are open.
func (h *harness) awaitStreams(t testing.TB, n int64) {
	t.Helper()
	await.True(t, strconv.FormatInt(n, 10)+" streams are open", func() bool { return h.gateway.Streams.Load() == n })
}

// bulkAnswer is the result of one write of an array.
type bulkAnswer struct {
	api.BulkResult

	Code api.Code // of the problem, if there is one
}

// bulk sends an array of writes, which are one a line, and returns the result of each.
func (c client) bulk(t testing.TB, lines string) []bulkAnswer {
	t.Helper()
	return bulkAnswers(t, c.post(t, "/v1/writes", arrayOf(lines)))
}

// arrayOf makes a JSON array of documents, one a line.
func arrayOf(lines string) string {
	return "[" + strings.Join(strings.FieldsFunc(lines, func(r rune) bool { return r == '\n' }), ",") + "]"
}

func bulkAnswers(t testing.TB, got answer) (results []bulkAnswer) {
	t.Helper()
	for _, result := range as[api.BulkResults](t, got, http.StatusOK).Results {
		one := bulkAnswer{BulkResult: result}
		if result.Problem != nil {
			one.Code = result.Problem.Code
		}
		results = append(results, one)
	}
	return results
}

// putLine is a write that puts a JSON value, in a line.
func putLine(lease api.Lease, sequence int64, key, value string) string {
	return fmt.Sprintf(`{"op":"put","resource":%s,"key":%s,"fencing_token":%d,"sequence":%d,"value":%s}`+"\n",
		encode(lease.Lock), encode(key), lease.FencingToken, sequence, value)
}
