package writes

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
)

// linesPerRequest is how many writes one request of the ndjson target carries, and how many the stream hands over at
// once.
const linesPerRequest = 100

// ndjsonTarget sends requests of 100 writes, each when the one before is answered.
func ndjsonTarget(baseURL string, pids []int, st policies) target {
	t := target{name: nameNDJSON, role: roleGateway, pids: pids, perRequest: linesPerRequest}
	return t.overWires(baseURL, st, func(wires *wires, s setting) writeFunc {
		lines := linesOf(s)
		return func(_ context.Context, client int, w *writer) error {
			wire := wires.all[client]
			wire.beginBulk()
			if err := wire.send(lines[client].fill(w)); err != nil {
				return err
			}
			status, answer, err := wire.answer()
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("%w: status %d: %s", errAnswer, status, answer)
			}
			if err != nil {
				return err
			}
			return checkVerdicts(answer)
		}
	})
}

func (w *wire) beginBulk() {
	w.begin(http.MethodPost, "/v1/writes")
	w.request = append(w.request, "Content-Type: application/x-ndjson\r\n"...)
}

// lines are the text of one client's next writes.
type lines struct {
	numbered bool
	text     []byte
}

// linesOf are those of each client.
func linesOf(s setting) []lines {
	all := make([]lines, s.clients)
	for client := range all {
		all[client].numbered = !s.shared()
	}
	return all
}

// fill makes the next 100 lines; they are valid until the next call.
func (l *lines) fill(w *writer) []byte {
	text := l.text[:0]
	for range linesPerRequest {
		r, value := w.next()
		text = append(text, `{"op":"put","resource":"`...)
		text = append(text, r.name...)
		text = append(text, `","key":"`+benchKey+`","fencing_token":`...)
		text = strconv.AppendInt(text, r.token, 10)
		if l.numbered {
			r.sequence++
			text = append(text, `,"sequence":`...)
			text = strconv.AppendInt(text, r.sequence, 10)
		}
		text = append(text, `,"value_base64":"`...)
		text = base64.StdEncoding.AppendEncode(text, value)
		text = append(text, "\"}\n"...)
	}
	l.text = text
	return text
}

// refusedLine is in the verdict on a write that was not admitted, and in no other.
var refusedLine = []byte(`"code":`)

// checkVerdicts sees that all lines have their verdict, and that none is a refusal. The last line is the end's.
func checkVerdicts(answer []byte) error {
	if count := bytes.Count(answer, []byte{'\n'}); count != linesPerRequest+1 || bytes.Contains(answer, refusedLine) {
		return fmt.Errorf("%w: %d lines: %.300s", errAnswer, count, answer)
	}
	return nil
}
