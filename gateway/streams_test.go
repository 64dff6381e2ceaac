package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
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

func (s *stream) nextEvent(t testing.TB, kind string) api.Event {
	t.Helper()
	return dataOf[api.Event](t, s.next(t, kind))
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

// bulkClient is a client of POST /v1/writes that a test controls line by line.
type bulkClient struct {
	send     *io.PipeWriter
	response *http.Response
	lines    *bufio.Scanner
	hangUp   func()
}

// openBulk opens a stream of writes.
func (c client) openBulk(t testing.TB) *bulkClient {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	body, send := io.Pipe()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/v1/writes", body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", api.BulkContentType)
	response, err := c.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	hangUp := func() {
		cancel()
		// Over HTTP/2 the transport notices the end of ctx only after it has closed the body.
		_ = send.CloseWithError(context.Canceled)
		_ = response.Body.Close()
	}
	t.Cleanup(hangUp)
	if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || kind != api.BulkContentType {
		t.Fatalf("answered %d %s, want 200 %s", response.StatusCode, kind, api.BulkContentType)
	}
	return &bulkClient{send: send, response: response, lines: bufio.NewScanner(response.Body), hangUp: hangUp}
}

// write sends text.
func (b *bulkClient) write(t testing.TB, text string) {
	t.Helper()
	if _, err := io.WriteString(b.send, text); err != nil {
		t.Fatalf("the gateway stopped reading: %v", err)
	}
}

// next waits for the next line of the answer.
func (b *bulkClient) next(t testing.TB) bulkAnswer {
	t.Helper()
	if !b.lines.Scan() {
		t.Fatalf("the answer ended, want another line: %v", b.lines.Err())
	}
	return bulkAnswerOf(t, b.lines.Text())
}

// verdict waits for the verdict on a line.
func (b *bulkClient) verdict(t testing.TB, line int64, status int) bulkAnswer {
	t.Helper()
	got := b.next(t)
	if got.Line != line || got.Status != status {
		t.Fatalf("the verdict is %s, want line %d with %d", got.text, line, status)
	}
	return got
}

// ended waits for the line of the end, and for the end of the answer.
func (b *bulkClient) ended(t testing.TB, why string, nextLine int64) {
	t.Helper()
	if got := b.next(t); got.End != why || got.NextLine != nextLine {
		t.Fatalf("received %s, want the end %s with next_line %d", got.text, why, nextLine)
	}
	if b.lines.Scan() || b.lines.Err() != nil {
		t.Fatalf("received %q (%v), want the end of the answer", b.lines.Text(), b.lines.Err())
	}
}

// bulkAnswer is a line of an answer: a verdict or the end.
type bulkAnswer struct {
	api.BulkVerdict
	api.BulkEnd

	text string
}

func bulkAnswerOf(t testing.TB, text string) bulkAnswer {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	got := bulkAnswer{text: text}
	if err := decoder.Decode(&got); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return got
}

// bulk sends a whole body and returns the verdicts and the end.
func (c client) bulk(t testing.TB, body string) (verdicts []bulkAnswer, end bulkAnswer) {
	t.Helper()
	got := c.send(t, http.MethodPost, "/v1/writes", body, "Content-Type: "+api.BulkContentType)
	return splitBulk(t, got)
}

// splitBulk decodes the verdicts and the end of an answer.
func splitBulk(t testing.TB, got answer) (verdicts []bulkAnswer, end bulkAnswer) {
	t.Helper()
	if got.status != http.StatusOK {
		t.Fatalf("answered %d, want 200: %s", got.status, got.body)
	}
	for line := range strings.Lines(string(got.body)) {
		verdicts = append(verdicts, bulkAnswerOf(t, line))
	}
	if len(verdicts) == 0 || verdicts[len(verdicts)-1].End == "" {
		t.Fatalf("the answer has no end: %s", got.body)
	}
	return verdicts[:len(verdicts)-1], verdicts[len(verdicts)-1]
}

// putLine is a line that puts a JSON value.
func putLine(lease api.Lease, sequence int64, key, value string) string {
	return fmt.Sprintf(`{"op":"put","resource":%s,"key":%s,"fencing_token":%d,"sequence":%d,"value":%s}`+"\n",
		encode(lease.Lock), encode(key), lease.FencingToken, sequence, value)
}
