package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

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
