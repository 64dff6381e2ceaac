package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

const bulkHead = "POST /v1/writes HTTP/1.1\nHost: gateway\nContent-Type: application/x-ndjson\n"

// wireBulk sends a body, as it is, over a connection of its own.
func (h *harness) wireBulk(t *testing.T, header, body string) net.Conn {
	t.Helper()
	connection := h.wire(t, bulkHead+header+"\n")
	if _, err := io.WriteString(connection, body); err != nil {
		t.Fatal(err)
	}
	return connection
}

// heardBulk reads an answer to its end.
func heardBulk(t *testing.T, connection net.Conn) (verdicts []bulkAnswer, end bulkAnswer) {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		verdicts = append(verdicts, bulkAnswerOf(t, lines.Text()))
	}
	if lines.Err() != nil || len(verdicts) == 0 {
		t.Fatalf("after %d lines: %v", len(verdicts), lines.Err())
	}
	return verdicts[:len(verdicts)-1], verdicts[len(verdicts)-1]
}

func chunk(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }

// A client that has sent all may close its half of the connection, and still hears all verdicts.
func TestBulkHalfClosed(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	letGo := h.holdFence(t, "job")
	body := putLine(lease, 1, "k", "1") + putLine(lease, 2, "k", "2")
	connection := h.wireBulk(t, fmt.Sprintf("Content-Length: %d\n", len(body)), body)
	if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	h.awaitWaiting(t, 1)
	letGo()
	if verdicts, end := heardBulk(t, connection); len(verdicts) != 2 || verdicts[1].Code != "" || end.End != api.BulkComplete || end.NextLine != 3 {
		t.Errorf("heard %v %s", verdicts, end.text)
	}
}

// Of a body that breaks off, the whole lines count; one that is cut is not taken, even if it looks whole.
func TestBulkBrokenBody(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	whole, cut := putLine(lease, 1, "k", "1"), strings.TrimSuffix(putLine(lease, 2, "k", "2"), "\n")
	for header, body := range map[string]string{
		fmt.Sprintf("Content-Length: %d\n", len(whole+cut)+1): whole + cut,
		"Transfer-Encoding: chunked\n":                        chunk(whole) + chunk(cut),
		"Transfer-Encoding: chunked\nX: y\n":                  chunk(whole) + chunk(cut) + "no chunk\r\n",
	} {
		connection := h.wireBulk(t, header, body)
		if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if verdicts, end := heardBulk(t, connection); len(verdicts) != 1 || verdicts[0].Code != "" || end.End != api.BulkBroken || end.NextLine != 2 {
			t.Errorf("%q: heard %v %s", header, verdicts, end.text)
		}
	}
	if got := h.get(t, recordPath("job", "k")); string(got.body) != "1" {
		t.Errorf("the record is %s", got.body)
	}
}

// A client that stops sending without a word is given up after the time that a line has, and told where. One that sends a line now and
// then is not, however long the body takes as a whole.
func TestBulkIdle(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		const patience = 400 * time.Millisecond
		h := newHarness(t, Config{BodyTimeout: patience, RequestTimeout: patience})
		h.http = newHTTPClient(t, http2)
		lease := h.acquire(t, "job", "worker")
		stream := h.openBulk(t)
		begun := time.Now()
		sent := int64(0)
		for time.Since(begun) < 3*patience {
			sent++
			stream.write(t, putLine(lease, sent, "k", "1"))
			if got := stream.next(t); got.End == api.BulkIdle && got.NextLine == sent {
				t.Skip("this machine is too slow: the test itself was idle")
			} else if got.Code != "" || got.Line != sent {
				t.Fatal(got.text)
			}
			time.Sleep(patience / 20)
		}
		stream.write(t, putLine(lease, sent+1, "k", "1")[:20])
		stream.ended(t, api.BulkIdle, sent+1)
	}
}

// A client that sends and never reads holds up itself only: the gateway stops reading, and cuts it off in the end. What was taken is decided.
func TestBulkSlowReader(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h := newTimed(t, Config{}, 500*time.Millisecond, time.Minute)
		h.http = newHTTPClient(t, http2)
		lease := h.acquire(t, "job", "worker")
		stream := h.openBulk(t)
		sent, cut := int64(0), false
		long := strings.Repeat("x", 100)
		for ; sent < 10_000_000; sent++ {
			// Refused lines are long in their answer and short to decide.
			if _, err := io.WriteString(stream.send, `{"op":"`+long+`","resource":"job","key":"k"}`+"\n"); err != nil {
				cut = true
				break
			}
		}
		if !cut {
			t.Fatal("it took ten million lines of a client that does not read")
		}
		t.Logf("cut off after %d lines", sent)
		eventually(t, "the stream is over", func() bool { return h.gateway.bulkStreams.Load() == 0 })
		as[api.WriteResult](t, h.put(t, lease, 1, "x"), http.StatusCreated)
	}
}

// A client that is gone changes nothing about what was taken.
func TestBulkClientGone(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h := newHarness(t, Config{})
		h.http = newHTTPClient(t, http2)
		lease := h.acquire(t, "job", "worker")
		letGo := h.holdFence(t, "job")
		stream := h.openBulk(t)
		stream.write(t, putLine(lease, 1, "k", "1")+putLine(lease, 2, "k", "2"))
		h.awaitWaiting(t, 1)
		before := h.sessions(t)
		stream.hangUp()
		letGo()
		eventually(t, "the writes are finished, and the stream is over", func() bool {
			return string(h.get(t, recordPath("job", "k")).body) == "2" && h.gateway.bulkStreams.Load() == 0
		})
		if verdicts, _ := h.bulk(t, putLine(lease, 2, "k", "2")); !*verdicts[0].Replayed {
			t.Errorf("sent again: %s", verdicts[0].text)
		}
		if after := h.sessions(t); !containsAll(after, before) {
			t.Errorf("of the sessions %q are left %q", before, after)
		}
	}
}

// A gateway that ends decides what it took, and says which line was the first that it did not take.
func TestBulkAtShutdown(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h, s, lease := newServed(t, Config{})
		h.http = newHTTPClient(t, http2)
		letGo := h.holdFence(t, "job")
		stream := h.openBulk(t)
		stream.write(t, putLine(lease, 2, "k", "1")+putLine(lease, 3, "k", "2"))
		h.awaitWaiting(t, 1)
		s.ask()
		s.awaitRefusal(t)
		// It may be taken yet, or not.
		_, _ = io.WriteString(stream.send, putLine(lease, 4, "k", "3"))
		letGo()
		stream.verdict(t, 1, http.StatusOK)
		stream.verdict(t, 2, http.StatusOK)
		end := stream.next(t)
		if end.End != api.BulkShutdown || end.NextLine != 3 {
			t.Errorf("the end is %s", end.text)
		}
		_ = stream.send.Close()
		if err := <-s.ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
		if left := h.count(t, "select last_sequence from fence.fences where resource = 'job'"); left != 3 {
			t.Errorf("the last write is number %d", left)
		}
	}
}

// Of a client that sends on and on when the gateway ends, every line is either answered or not taken, and it is told which.
func TestBulkAtShutdownUnderLoad(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h, s, lease := newServed(t, Config{})
		h.http = newHTTPClient(t, http2)
		stream := h.openBulk(t)
		sending := make(chan int64, 1)
		go func() {
			sequence := int64(1)
			for ; ; sequence++ {
				if _, err := io.WriteString(stream.send, putLine(lease, sequence+1, "k", fmt.Sprint(sequence))); err != nil {
					break
				}
			}
			sending <- sequence
		}()
		for line := int64(1); ; line++ {
			got := stream.next(t)
			if got.End != "" {
				if got.End != api.BulkShutdown || got.NextLine != line {
					t.Errorf("the end is %s, after %d verdicts", got.text, line-1)
				}
				if last := h.count(t, "select last_sequence from fence.fences where resource = 'job'"); last != line {
					t.Errorf("the last write is number %d, want %d", last, line)
				}
				break
			}
			if got.Line != line || got.Code != "" {
				t.Fatal(got.text)
			}
			if line == 500 {
				s.ask()
			}
		}
		_ = stream.response.Body.Close()
		_ = stream.send.CloseWithError(context.Canceled)
		t.Logf("of %d lines that were sent", <-sending)
		if err := <-s.ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	}
}
