package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store/postgres"
)

const bulkHead = "POST /v1/writes HTTP/1.1\nHost: gateway\nContent-Type: application/x-ndjson\n"

func chunk(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }

// bulkAnswer reads an answer to a stream of writes.
func (r raw) bulkAnswer(t testing.TB) (verdicts []bulkAnswer, end bulkAnswer) {
	t.Helper()
	got, _ := r.answer(t)
	return splitBulk(t, got)
}

// A client that has sent all its lines may close its half of the connection. It still receives all verdicts.
func TestBulkHalfClosed(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	unlock := h.holdFence(t, "job")
	body := putLine(lease, 1, "k", "1") + putLine(lease, 2, "k", "2")
	connection := h.wire(t, bulkHead+fmt.Sprintf("Content-Length: %d\n\n", len(body)))
	connection.write(t, body)
	connection.closeWrite(t)
	h.awaitWaiting(t, 1)
	unlock()
	verdicts, end := connection.bulkAnswer(t)
	if len(verdicts) != 2 || verdicts[1].Code != "" || end.End != api.BulkComplete || end.NextLine != 3 {
		t.Errorf("the answer is %v %s, want two verdicts and complete", verdicts, end.text)
	}
}

// Of a body that breaks off, the whole lines are applied. The cut line is not, even if it looks whole.
func TestBulkBrokenBody(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	whole, cut := putLine(lease, 1, "k", "1"), strings.TrimSuffix(putLine(lease, 2, "k", "2"), "\n")
	for header, body := range map[string]string{
		fmt.Sprintf("Content-Length: %d\n", len(whole+cut)+1): whole + cut,
		"Transfer-Encoding: chunked\n":                        chunk(whole) + chunk(cut),
		"Transfer-Encoding: chunked\nX: y\n":                  chunk(whole) + chunk(cut) + "no chunk\r\n",
	} {
		connection := h.wire(t, bulkHead+header+"\n")
		connection.write(t, body)
		connection.closeWrite(t)
		verdicts, end := connection.bulkAnswer(t)
		if len(verdicts) != 1 || verdicts[0].Code != "" || end.End != api.BulkBroken || end.NextLine != 2 {
			t.Errorf("%q: the answer is %v %s, want one verdict and broken", header, verdicts, end.text)
		}
	}
	h.expectRecord(t, recordPath("job", "k"), "1", "application/json")
}

// The gateway ends a stream on which no line arrives within BodyTimeout. Lines now and then keep the stream
// open for longer than any timeout.
func TestBulkIdle(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		const timeout = 4 * time.Second
		h := newHarness(t, Config{BodyTimeout: timeout, RequestTimeout: timeout})
		h.http = newHTTPClient(t, http2)
		lease := h.acquire(t, "job", "worker")
		stream := h.openBulk(t)
		sent := int64(0)
		for begun := time.Now(); time.Since(begun) < timeout*3/2; time.Sleep(timeout / 20) {
			sent++
			stream.write(t, putLine(lease, sent, "k", "1"))
			if got := stream.next(t); got.Code != "" || got.Line != sent {
				t.Fatalf("received %s, want line %d admitted", got.text, sent)
			}
		}
		stream.write(t, putLine(lease, sent+1, "k", "1")[:20])
		stream.ended(t, api.BulkIdle, sent+1)
	})
}

// The gateway stops reading from a client that reads no verdicts, and cuts it off. Other writes are not delayed.
func TestBulkSlowReader(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := newTimed(t, Config{}, 3*time.Second, time.Minute) // other requests on a busy machine take less
		h.http = newHTTPClient(t, http2)
		lease := h.acquire(t, "job", "worker")
		stream := h.openBulk(t)
		// The verdicts on refused lines are long, and they are quick to make.
		lines := strings.Repeat(`{"op":"`+strings.Repeat("x", 100)+`","resource":"job","key":"k"}`+"\n", 100)
		const most = 100_000
		sent := 0
		for sent < most {
			if _, err := io.WriteString(stream.send, lines); err != nil {
				break
			}
			sent++
		}
		if sent == most {
			t.Fatal("the gateway read ten million lines of a client that reads nothing")
		}
		await.True(t, "the stream has ended", func() bool { return h.gateway.writes.BulkStreams.Load() == 0 })
		as[api.WriteResult](t, h.put(t, lease, 1, "x"), http.StatusCreated)
	})
}

// The lines taken from a client that hangs up are applied.
func TestBulkClientGone(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := newHarness(t, Config{})
		h.http = newHTTPClient(t, http2)
		lease := h.acquire(t, "job", "worker")
		unlock := h.holdFence(t, "job")
		stream := h.openBulk(t)
		stream.write(t, putLine(lease, 1, "k", "1")+putLine(lease, 2, "k", "2"))
		h.awaitWaiting(t, 1)
		expectKept := h.expectSessionsKept(t)
		stream.hangUp()
		unlock()
		await.True(t, "the writes are applied and the stream has ended", func() bool {
			return string(h.get(t, recordPath("job", "k")).body) == "2" && h.gateway.writes.BulkStreams.Load() == 0
		})
		if verdicts, _ := h.bulk(t, putLine(lease, 2, "k", "2")); !*verdicts[0].Replayed {
			t.Errorf("the line sent again got %s, want a replay", verdicts[0].text)
		}
		expectKept()
	})
}

// A shutdown answers the lines taken and reports the first line that was not.
func TestBulkAtShutdown(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h, s, lease := newServed(t, Config{ShutdownTimeout: time.Minute})
		h.http = newHTTPClient(t, http2)
		unlock := h.holdFence(t, "job")
		stream := h.openBulk(t)
		stream.write(t, putLine(lease, 2, "k", "1")+putLine(lease, 3, "k", "2"))
		h.awaitWaiting(t, 1)
		s.stop()
		s.awaitRefusal(t)
		_, _ = io.WriteString(stream.send, putLine(lease, 4, "k", "3")) // the connection may accept it or not
		unlock()
		stream.verdict(t, 1, http.StatusOK)
		stream.verdict(t, 2, http.StatusOK)
		if end := stream.next(t); end.End != api.BulkShutdown || end.NextLine != 3 {
			t.Errorf("received %s, want the end shutdown with next_line 3", end.text)
		}
		_ = stream.send.Close()
		s.expectEnd(t)
		h.expectLastSequence(t, 3)
	})
}

func (h *harness) expectLastSequence(t testing.TB, want int64) {
	t.Helper()
	if last := h.count(t, "select last_sequence from fence.fences where resource = 'job'"); last != want {
		t.Errorf("the last applied sequence is %d, want %d", last, want)
	}
}

// During a shutdown, every line of a client that goes on sending is either answered or not taken.
func TestBulkAtShutdownUnderLoad(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h, s, lease := newServed(t, Config{ShutdownTimeout: time.Minute})
		h.http = newHTTPClient(t, http2)
		stream := h.openBulk(t)
		sending := make(chan struct{})
		go func() {
			defer close(sending)
			for sequence := int64(2); ; sequence++ {
				if _, err := io.WriteString(stream.send, putLine(lease, sequence, "k", "1")); err != nil {
					return
				}
			}
		}()
		line := int64(1)
		got := stream.next(t)
		for ; got.End == ""; got = stream.next(t) {
			if got.Line != line || got.Code != "" {
				t.Fatalf("received %s, want line %d admitted", got.text, line)
			}
			if line == 200 {
				s.stop()
			}
			line++
		}
		if got.End != api.BulkShutdown || got.NextLine != line {
			t.Errorf("received %s after %d verdicts, want the end shutdown", got.text, line-1)
		}
		h.expectLastSequence(t, line)
		_ = stream.response.Body.Close()
		_ = stream.send.CloseWithError(context.Canceled)
		<-sending
		s.expectEnd(t)
	})
}

// A stream waits where the queue of writes is full. No line is refused, and the lines of a resource keep their order.
func TestBulkWaitsForRoom(t *testing.T) {
	h := newCramped(t, 4)
	const streams, each = 6, 100
	var sending sync.WaitGroup
	for i := range streams {
		lease := h.acquire(t, fmt.Sprintf("job/%d", i), "worker")
		sending.Go(func() {
			var body strings.Builder
			for n := range int64(each) {
				body.WriteString(putLine(lease, n+1, "k", fmt.Sprint(n)))
			}
			verdicts, end := h.bulk(t, body.String())
			if len(verdicts) != each || end.End != api.BulkComplete {
				t.Errorf("received %d verdicts and the end %s, want %d and complete", len(verdicts), end.text, each)
			}
			for n, got := range verdicts {
				if got.Code != "" || *got.Version != int64(n)+1 {
					t.Errorf("the verdict on line %d is %s, want version %d", n+1, got.text, n+1)
					return
				}
			}
		})
	}
	sending.Wait()
	if h.engine.GroupStats().Refused == 0 {
		t.Error("the queue was never full")
	}
}

// After a line with an unknown outcome, no later line of its resource is admitted. A holder may conclude from an
// admitted write that the earlier ones were applied, or refused for their data.
func TestBulkAfterAnUndecidedLine(t *testing.T) {
	database := postgres.Config{DatabaseURL: pgtest.Migrated(t)}
	lease := newHarnessOn(t, Config{}, database).acquire(t, "job", "worker")
	database.StatementTimeout = 150 * time.Millisecond
	h := newHarnessOn(t, Config{}, database)
	sequence := int64(0)
	// The first round holds the fence until a line fails. The others unlock it about that time.
	patience, undecided := time.Minute, 0
	const rounds = 8
	for round := range rounds {
		unlock := sync.OnceFunc(h.holdFence(t, "job"))
		stream := h.openBulk(t)
		begun := time.Now()
		free := time.AfterFunc(patience-10*time.Millisecond+time.Duration(round)*time.Millisecond, unlock)
		sending := make(chan struct{})
		go func() {
			defer close(sending)
			for range 300 {
				sequence++
				if _, err := io.WriteString(stream.send, putLine(lease, sequence, "k", "1")); err != nil {
					return
				}
			}
			_ = stream.send.Close()
		}()
		failed := stream.failedInOrder(t, func() {
			if round == 0 {
				patience = time.Since(begun)
			}
			unlock()
		})
		if failed {
			undecided++
		}
		free.Stop()
		unlock()
		stream.hangUp()
		<-sending
	}
	t.Logf("in %d of %d rounds the outcome of a line was unknown", undecided, rounds)
}

// failedInOrder reads all verdicts on lines of one resource, and returns whether one was unavailable. After it none may
// be admitted.
func (b *bulkClient) failedInOrder(t *testing.T, first func()) (failed bool) {
	t.Helper()
	for {
		switch got := b.next(t); {
		case got.End == api.BulkUnavailable && failed, got.End == api.BulkComplete:
			return failed
		case got.Code == api.CodeUnavailable && !failed:
			failed = true
			first()
		case got.Code != "" && got.Code != api.CodeUnavailable, got.End != "":
			t.Fatalf("received %s, want a verdict that admits or is unavailable", got.text)
		case failed && got.Code == "":
			t.Fatalf("the line %s was admitted after an unavailable one", got.text)
		}
	}
}

// After a bulk stream over HTTP/1.1, its connection serves a request that waits. A read deadline that the stream left
// on the connection would count as the client's end, and the waiter would get no answer.
func TestBulkThenWaitOnItsConnection(t *testing.T) {
	h, lease := newWatchful(t)
	line := putLine(lease, 1, "k", "1") // the first one is applied, the others are replays
	body := encode(api.AcquireRequest{OwnerID: "waiter", WaitMS: 20})
	wait := fmt.Sprintf("POST /v1/locks/job/acquire HTTP/1.1\nHost: gateway\n%s\nContent-Length: %d\n\n%s",
		jsonType, len(body), body)
	for framing, lines := range map[string]string{
		fmt.Sprintf("Content-Length: %d", len(line)): line,
		"Transfer-Encoding: chunked":                 chunk(line) + "0\r\n\r\n",
	} {
		stream := strings.ReplaceAll(bulkHead+framing+"\n\n", "\n", "\r\n") + lines
		connection := h.wire(t, "")
		for range 20 {
			connection.write(t, stream)
			if verdicts, end := connection.bulkAnswer(t); len(verdicts) != 1 || end.End != api.BulkComplete {
				t.Fatalf("%s: the answer is %v %s, want one verdict and complete", framing, verdicts, end.text)
			}
			connection.write(t, strings.ReplaceAll(wait, "\n", "\r\n"))
			if got, _ := connection.answer(t); got.status != http.StatusConflict {
				t.Fatalf("%s: the acquire after the stream got %d, want 409", framing, got.status)
			}
		}
	}
}

// After the gateway has ended a stream whose body is not whole, the rest of the body is never taken for another request.
func TestRestOfABulkBodyIsNoRequest(t *testing.T) {
	parallel(t)
	h := newHarness(t, Config{BodyTimeout: 300 * time.Millisecond})
	for _, framing := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
		connection := h.wire(t, bulkHead+framing+"\n\n")
		if _, end := connection.bulkAnswer(t); end.End != api.BulkIdle {
			t.Fatalf("%s: the end is %s, want idle", framing, end.text)
		}
		_, _ = connection.Write([]byte("GET /healthz HTTP/1.1\r\nHost: gateway\r\n\r\n"))
		if n, err := connection.Read(make([]byte, 100)); err == nil {
			t.Errorf("%s: the rest of the body was answered with %d bytes, want the end of the connection", framing, n)
		}
	}
}
