package openapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
)

// Conforming passes requests to next and fails t if the path, method, status, headers or body of an exchange differs
// from the description. Of the requests it checks those that succeed. Bodies are not buffered and connections can be
// reached, so limits of size and time are the same as without it. A server in front of it must end before t does.
func (d *Description) Conforming(t testing.TB, next http.Handler) http.Handler {
	t.Helper()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The check uses the request as it arrived. The server's own request keeps its body: the server drains it.
		arrived := r.Clone(context.WithoutCancel(r.Context()))
		copied := r.WithContext(r.Context())
		body := &copyingBody{ReadCloser: r.Body}
		copied.Body = body
		answer := &copyingWriter{ResponseWriter: w}
		next.ServeHTTP(answer, copied)
		answer.begin(http.StatusOK)

		e := exchange{arrived, body.read.Bytes(), answer.status, answer.sent, answer.body.Bytes()}
		if err := d.check(e); err != nil {
			t.Errorf("%s %s was answered %d, which differs from openapi.yaml: %v\nthe answer: %.2000s",
				arrived.Method, arrived.URL, e.status, err, e.body)
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

// copyingBody keeps the bytes read.
type copyingBody struct {
	io.ReadCloser

	read bytes.Buffer
}

func (b *copyingBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.read.Write(into[:n])
	return n, err
}

// copyingWriter keeps the answer.
type copyingWriter struct {
	http.ResponseWriter

	status int
	sent   http.Header
	body   bytes.Buffer
}

// begin notes the status and the headers of the first status that is not 1xx.
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
