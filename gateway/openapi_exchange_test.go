package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
)

// conforming passes requests on to next and fails t where an answer is not as openapi.yaml says: its path, method, status,
// headers or body. A request that succeeds must be as described, too. Bodies stream through and connections can be
// reached, so limits of size and time hold as without it. A server in front of it must have ended before t does.
func conforming(t testing.TB, next http.Handler) http.Handler {
	t.Helper()
	described, err := described()
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// What came is judged, whatever the handler makes of its request. The server's own request keeps its body: by that it
		// decides what to do with what was not read.
		came := r.Clone(context.WithoutCancel(r.Context()))
		copied := r.WithContext(r.Context())
		body := &copyingBody{ReadCloser: r.Body}
		copied.Body = body
		answer := &copyingWriter{ResponseWriter: w}
		next.ServeHTTP(answer, copied)
		answer.begin(http.StatusOK)

		e := exchange{came, body.read.Bytes(), answer.status, answer.sent, answer.body.Bytes()}
		if err := described.check(e); err != nil {
			t.Errorf("%s %s was answered %d, not as openapi.yaml says: %v\nthe answer: %.2000s", came.Method, came.URL, e.status, err, e.body)
		}
	})
}

// exchange is a request and the answer to it.
type exchange struct {
	request     *http.Request
	requestBody []byte // as far as it was read
	status      int
	header      http.Header
	body        []byte
}

// copyingBody keeps what is read.
type copyingBody struct {
	io.ReadCloser

	read bytes.Buffer
}

func (b *copyingBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.read.Write(into[:n])
	return n, err
}

// copyingWriter keeps what is answered.
type copyingWriter struct {
	http.ResponseWriter

	status int
	sent   http.Header
	body   bytes.Buffer
}

// begin notes the status and the headers, once; a 1xx is no answer yet.
func (w *copyingWriter) begin(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status, w.sent = status, w.Header().Clone()
	}
}

func (w *copyingWriter) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *copyingWriter) Write(body []byte) (int, error) {
	w.begin(http.StatusOK)
	w.body.Write(body)
	return w.ResponseWriter.Write(body)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *copyingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
