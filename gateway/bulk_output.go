package gateway

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencegate/fencegate/gateway/api"
)

const (
	// bulkVerdictsMax is how many verdicts are taken from the window at a time.
	bulkVerdictsMax = 256
	// bulkAnswerBytes is how much is written at a time.
	bulkAnswerBytes = 32 << 10
)

// answer writes the verdicts until the stream has stopped and all lines that were taken are decided, and then why it has stopped. It returns
// the reason. Verdicts are sent when no more are ready: one at a time to a client that waits for each, many together to one that doesn't.
func (s *bulkStream) answer() string {
	out := make([]byte, 0, bulkAnswerBytes+4096)
	lines := make([]*bulkLine, 0, bulkVerdictsMax)
	gone := s.send(nil) != nil // the head goes first: the client may wait for it before it sends anything
	for {
		wait := len(out) == 0
		lines = s.window.next(lines[:0:bulkVerdictsMax], lines, wait)
		if wait && len(lines) == 0 {
			break
		}
		now := time.Now()
		for _, line := range lines {
			s.judge(line, now)
			if !gone {
				out = appendVerdict(out, line)
			}
		}
		if !gone && (len(lines) == 0 || len(out) >= bulkAnswerBytes) {
			gone = s.send(out) != nil
		}
		if gone {
			// What was taken is still decided, and counted.
			s.window.stop(endGone)
		}
		if gone || len(lines) == 0 || len(out) >= bulkAnswerBytes {
			out = out[:0]
		}
	}
	if gone {
		return endGone
	}
	why, nextLine := s.window.end()
	if s.send(appendEnd(out, why, nextLine)) != nil {
		return endGone
	}
	return why
}

// send returns an error if the client does not take the text in time.
func (s *bulkStream) send(text []byte) error {
	_ = s.controller.SetWriteDeadline(time.Now().Add(s.gateway.answerTimeout)) // fails where the write does
	_, err := s.writer.Write(text)
	if err == nil {
		err = s.controller.Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	// Over HTTP/2 a deadline that passes ends the stream, even if there is nothing to be written.
	_ = s.controller.SetWriteDeadline(time.Time{})
	return nil
}

// appendVerdict writes an api.BulkVerdict.
func appendVerdict(out []byte, line *bulkLine) []byte {
	out = append(out, `{"line":`...)
	out = strconv.AppendInt(out, line.number, 10)
	if line.err != nil {
		return appendRefusal(out, problemOf(line.err))
	}
	status := http.StatusOK
	if line.result.Created {
		status = http.StatusCreated
	}
	out = append(out, `,"status":`...)
	out = strconv.AppendInt(out, int64(status), 10)
	out = append(out, `,"version":`...)
	out = strconv.AppendInt(out, line.result.Version, 10)
	out = append(out, `,"fencing_token":`...)
	out = strconv.AppendInt(out, line.write.Token, 10)
	out = appendNumber(out, "sequence", line.write.Sequence)
	if line.result.Replayed {
		return append(out, `,"replayed":true}`+"\n"...)
	}
	return append(out, `,"replayed":false}`+"\n"...)
}

func appendRefusal(out []byte, answer *api.Problem) []byte {
	out = append(out, `,"status":`...)
	out = strconv.AppendInt(out, int64(answer.Status), 10)
	out = appendText(out, "code", string(answer.Code))
	out = append(out, `,"retryable":`...)
	out = strconv.AppendBool(out, answer.Retryable)
	out = appendText(out, "reason", answer.Reason)
	out = appendText(out, "resource", answer.Resource)
	out = appendNumber(out, "token", answer.Token)
	out = appendNumber(out, "sequence", answer.Sequence)
	out = appendNumber(out, "last_token", answer.LastToken)
	out = appendNumber(out, "last_sequence", answer.LastSequence)
	out = appendNumber(out, "granted_token", answer.GrantedToken)
	out = appendNumber(out, "version", answer.Version)
	out = appendText(out, "outcome", string(answer.Outcome))
	out = appendText(out, "detail", answer.Detail)
	return append(out, '}', '\n')
}

// appendText adds a field, unless it is empty.
func appendText(out []byte, field, text string) []byte {
	if text == "" {
		return out
	}
	out = appendField(out, field)
	out, _ = jsontext.AppendQuote(out, text) // what is not UTF-8 it replaces
	return out
}

// appendNumber adds a field, unless there is none.
func appendNumber(out []byte, field string, number *int64) []byte {
	if number == nil {
		return out
	}
	return strconv.AppendInt(appendField(out, field), *number, 10)
}

func appendField(out []byte, field string) []byte {
	out = append(out, ',', '"')
	out = append(out, field...)
	return append(out, '"', ':')
}

// appendEnd writes an api.BulkEnd.
func appendEnd(out []byte, why string, nextLine int64) []byte {
	out = append(out, `{"end":"`...)
	out = append(out, why...)
	out = append(out, `","next_line":`...)
	out = strconv.AppendInt(out, nextLine, 10)
	return append(out, '}', '\n')
}
