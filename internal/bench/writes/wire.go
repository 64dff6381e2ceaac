package writes

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
)

// wire is one HTTP/1.1 connection, written and read by hand: net/http's client costs as much CPU as its server does,
// and the load has to leave the machine to what it measures. It understands what Go's server sends: a status line,
// headers, a body that is chunked or of a stated length.
type wire struct {
	conn       net.Conn
	in         *bufio.Reader
	credential string // "": none
	request    []byte
	body       []byte
}

// wires are the connections of a session, one a client.
type wires struct {
	all  []*wire
	stop func() bool
}

// clientAccess is what a server asks of its clients: a credential, TLS, or nothing.
type clientAccess struct {
	credential string
	tls        *tls.Config
}

func (a clientAccess) dial(ctx context.Context, address string) (net.Conn, error) {
	if a.tls != nil {
		return (&tls.Dialer{Config: a.tls}).DialContext(ctx, "tcp", address)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// dialWires connects to the addresses in turn. When ctx ends the connections are closed, and what waits for an answer fails.
func dialWires(ctx context.Context, addresses []string, count int, a clientAccess) (*wires, error) {
	w := &wires{}
	for client := range count {
		conn, err := a.dial(ctx, addresses[client%len(addresses)])
		if err != nil {
			w.close()
			return nil, err
		}
		w.all = append(w.all, &wire{conn: conn, in: bufio.NewReaderSize(conn, 16<<10), credential: a.credential})
	}
	w.stop = context.AfterFunc(ctx, func() {
		for _, wire := range w.all {
			_ = wire.conn.Close()
		}
	})
	return w, nil
}

func (w *wires) close() {
	if w.stop != nil {
		w.stop()
	}
	for _, wire := range w.all {
		_ = wire.conn.Close()
	}
}

// errAnswer says that the other side answered something else than was expected.
var errAnswer = errors.New("unexpected answer")

// begin begins a request in the buffer; the caller adds headers, each ended by \r\n.
func (w *wire) begin(method, path string) {
	w.request = append(w.request[:0], method...)
	w.request = append(w.request, ' ')
	w.request = append(w.request, path...)
	w.request = append(w.request, " HTTP/1.1\r\nHost: localhost\r\n"...)
	if w.credential != "" {
		w.request = append(w.request, "Authorization: Bearer "...)
		w.request = append(w.request, w.credential...)
		w.request = append(w.request, "\r\n"...)
	}
}

// send ends the headers, adds the body and sends all at once.
func (w *wire) send(body []byte) error {
	w.request = append(w.request, "Content-Length: "...)
	w.request = strconv.AppendInt(w.request, int64(len(body)), 10)
	w.request = append(w.request, "\r\n\r\n"...)
	w.request = append(w.request, body...)
	_, err := w.conn.Write(w.request)
	return err
}

// answer reads an answer, and returns its status and its body, which is valid until the next.
func (w *wire) answer() (status int, body []byte, err error) {
	status, length, err := w.readHead()
	if err != nil {
		return 0, nil, err
	}
	if length == chunked {
		body, err = io.ReadAll(httputil.NewChunkedReader(w.in))
		if err == nil {
			_, err = w.in.ReadSlice('\n') // the empty line after the last chunk
		}
		return status, body, err
	}
	if cap(w.body) < length {
		w.body = make([]byte, length)
	}
	w.body = w.body[:length]
	_, err = io.ReadFull(w.in, w.body)
	return status, w.body, err
}

// chunked is the length of a body in chunks.
const chunked = -1

var (
	contentLength    = []byte("content-length:")
	transferEncoding = []byte("transfer-encoding:")
)

func (w *wire) readHead() (status, length int, err error) {
	line, err := w.in.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	const versionLen = len("HTTP/1.1 ")
	if len(line) < versionLen+3 {
		return 0, 0, fmt.Errorf("%w: %q", errAnswer, line)
	}
	if status, err = strconv.Atoi(string(line[versionLen : versionLen+3])); err != nil {
		return 0, 0, fmt.Errorf("%w: %q", errAnswer, line)
	}
	for {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			return 0, 0, err
		}
		switch {
		case len(line) <= 2:
			return status, length, nil
		case hasPrefixFold(line, contentLength):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(contentLength):]))); err != nil {
				return 0, 0, fmt.Errorf("%w: %q", errAnswer, line)
			}
		case hasPrefixFold(line, transferEncoding):
			length = chunked
		}
	}
}

func hasPrefixFold(line, prefix []byte) bool {
	return len(line) >= len(prefix) && bytes.EqualFold(line[:len(prefix)], prefix)
}
