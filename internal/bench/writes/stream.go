package writes

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"strconv"
)

// streamInFlight is how many times 100 writes of a stream are under way: enough that the gateway never waits for the
// client.
const streamInFlight = 2

// streamTarget writes through one request a client, which lasts. One write of the session is: hand over 100 lines, and
// take the 100 verdicts that come next, which are on lines handed over before.
func streamTarget(baseURL string, pids []int, st policies) target {
	t := target{name: nameNDJSONStream, role: roleGateway, pids: pids, perRequest: linesPerRequest}
	return t.overWires(baseURL, st, func(wires *wires, s setting) writeFunc {
		lines, streams := linesOf(s), make([]*stream, s.clients)
		for client := range streams {
			streams[client] = &stream{wire: wires.all[client], lines: &lines[client]}
		}
		return func(_ context.Context, client int, w *writer) error {
			s := streams[client]
			if !s.begun {
				if err := s.begin(w); err != nil {
					return err
				}
			}
			if err := s.send(w); err != nil {
				return err
			}
			return s.take()
		}
	})
}

// stream is one client's request and its answer, both under way. It ends with its connection.
type stream struct {
	wire     *wire
	lines    *lines
	begun    bool
	verdicts *bufio.Reader
}

func (s *stream) begin(w *writer) error {
	s.begun = true
	s.wire.beginBulk()
	s.wire.request = append(s.wire.request, "Transfer-Encoding: chunked\r\n\r\n"...)
	if _, err := s.wire.conn.Write(s.wire.request); err != nil {
		return err
	}
	for range streamInFlight {
		if err := s.send(w); err != nil {
			return err
		}
	}
	return nil
}

// send hands over 100 lines as one chunk.
func (s *stream) send(w *writer) error {
	text := s.lines.fill(w)
	s.wire.request = strconv.AppendInt(s.wire.request[:0], int64(len(text)), 16)
	s.wire.request = append(s.wire.request, "\r\n"...)
	s.wire.request = append(s.wire.request, text...)
	s.wire.request = append(s.wire.request, "\r\n"...)
	_, err := s.wire.conn.Write(s.wire.request)
	return err
}

// take reads 100 verdicts.
func (s *stream) take() error {
	if s.verdicts == nil {
		status, length, err := s.wire.readHead()
		if err != nil {
			return err
		}
		if status != http.StatusOK || length != chunked {
			return fmt.Errorf("%w: status %d", errAnswer, status)
		}
		s.verdicts = bufio.NewReaderSize(httputil.NewChunkedReader(s.wire.in), 16<<10)
	}
	for range linesPerRequest {
		line, err := s.verdicts.ReadSlice('\n')
		if err != nil {
			return err
		}
		if bytes.Contains(line, refusedLine) || !bytes.HasPrefix(line, []byte(`{"line":`)) {
			return fmt.Errorf("%w: %s", errAnswer, line)
		}
	}
	return nil
}
