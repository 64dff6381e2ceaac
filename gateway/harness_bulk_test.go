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

// bulkClient is a client of POST /v1/writes that sends and reads as the test says.
type bulkClient struct {
	send     *io.PipeWriter
	response *http.Response
	lines    *bufio.Scanner
	hangUp   func()
}

// openBulk begins a stream.
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
		// Over HTTP/2 the transport hears of the end of ctx only when it is done with the body.
		_ = send.CloseWithError(context.Canceled)
		_ = response.Body.Close()
	}
	t.Cleanup(hangUp)
	if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || kind != api.BulkContentType {
		t.Fatalf("answered %d, %s", response.StatusCode, kind)
	}
	return &bulkClient{send: send, response: response, lines: bufio.NewScanner(response.Body), hangUp: hangUp}
}

// write sends text as it is.
func (b *bulkClient) write(t testing.TB, text string) {
	t.Helper()
	if _, err := io.WriteString(b.send, text); err != nil {
		t.Fatalf("the gateway does not read: %v", err)
	}
}

// next waits for the next line of the answer.
func (b *bulkClient) next(t testing.TB) bulkAnswer {
	t.Helper()
	if !b.lines.Scan() {
		t.Fatalf("the answer broke off: %v", b.lines.Err())
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

// ended waits for the end.
func (b *bulkClient) ended(t testing.TB, why string, nextLine int64) {
	t.Helper()
	if got := b.next(t); got.End != why || got.NextLine != nextLine {
		t.Fatalf("the end is %s, want %s before line %d", got.text, why, nextLine)
	}
	if b.lines.Scan() || b.lines.Err() != nil {
		t.Fatalf("after the end came %q, %v", b.lines.Text(), b.lines.Err())
	}
}

// bulkAnswer is a line of an answer, of either kind.
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

// bulk sends a whole body, and returns the verdicts and the end.
func (c client) bulk(t testing.TB, body string) (verdicts []bulkAnswer, end bulkAnswer) {
	t.Helper()
	got := c.send(t, http.MethodPost, "/v1/writes", body, "Content-Type: "+api.BulkContentType)
	if got.status != http.StatusOK {
		t.Fatalf("answered %d %s", got.status, got.body)
	}
	for line := range strings.Lines(string(got.body)) {
		verdicts = append(verdicts, bulkAnswerOf(t, line))
	}
	if len(verdicts) == 0 || verdicts[len(verdicts)-1].End == "" {
		t.Fatalf("the answer has no end: %s", got.body)
	}
	return verdicts[:len(verdicts)-1], verdicts[len(verdicts)-1]
}

// putLine is a line that puts a value, which is JSON.
func putLine(lease api.Lease, sequence int64, key, value string) string {
	return fmt.Sprintf(`{"op":"put","resource":%q,"key":%q,"fencing_token":%d,"sequence":%d,"value":%s}`+"\n",
		lease.Lock, key, lease.FencingToken, sequence, value)
}
