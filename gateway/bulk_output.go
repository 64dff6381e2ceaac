package gateway

import (
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

const (
	// bulkVerdictsMax is how many verdicts are taken from the window at a time.
	bulkVerdictsMax = 256
	// bulkAnswerBytes is how much is written at a time.
	bulkAnswerBytes = 32 << 10
)

// answer writes the verdicts until the stream has stopped and all lines that were taken are decided. Then it writes why
// the stream has stopped, and returns that. It sends verdicts when no more are ready: one at a time to a client that
// waits for each, many together to others.
func (s *bulkStream) answer() string {
	out := make([]byte, 0, bulkAnswerBytes+4096)
	lines := make([]*bulkLine, 0, bulkVerdictsMax)
	gone := s.send(nil) != nil // the header goes first: the client may wait for it before it sends anything
	for {
		wait := len(out) == 0
		lines = s.window.next(lines[:0:bulkVerdictsMax], lines, wait)
		if wait && len(lines) == 0 {
			break
		}
		now := time.Now()
		for _, line := range lines {
			s.count(line, now)
			if line.err != nil {
				line.err = redacted(s.writer.principal, line.err)
			}
			if !gone {
				out = appendVerdict(out, line)
			}
		}
		if !gone && (len(lines) == 0 || len(out) >= bulkAnswerBytes) {
			gone = s.send(out) != nil
		}
		if gone {
			// Lines that were taken are still decided and counted.
			s.window.stop(endGone)
		}
		if gone || len(lines) == 0 || len(out) >= bulkAnswerBytes {
			out = out[:0]
		}
		if cap(out) > 4*bulkAnswerBytes && len(out) == 0 { // it had the answer of a large transaction
			out = make([]byte, 0, bulkAnswerBytes+4096)
		}
	}
	if gone {
		return endGone
	}
	reason, nextLine := s.window.end()
	if s.send(appendEnd(out, reason, nextLine)) != nil {
		return endGone
	}
	return reason
}

// send returns an error if the client does not take the text in time.
func (s *bulkStream) send(text []byte) error {
	return s.writer.send(s.gateway.answerTimeout, text)
}

// appendVerdict writes an api.BulkVerdict.
func appendVerdict(out []byte, line *bulkLine) []byte {
	out = appendInt(append(out, '{'), "line", line.number)
	if line.err != nil {
		return appendRefusal(out, problemOf(line.err))
	}
	out = appendInt(out, "status", int64(writeStatus(line.result)))
	if line.answer != nil {
		return append(append(out, ','), line.answer[1:]...)
	}
	out = appendInt(out, "version", line.result.Version)
	out = appendInt(out, "fencing_token", line.write.Token)
	out = appendOptionalInt(out, "sequence", line.write.Sequence)
	out = appendBool(out, "replayed", line.result.Replayed)
	return append(out, '}', '\n')
}

func appendRefusal(out []byte, answer *api.Problem) []byte {
	out = appendInt(out, "status", int64(answer.Status))
	out = appendText(out, "code", string(answer.Code))
	out = appendBool(out, "retryable", answer.Retryable)
	out = appendRejection(out, answer)
	if answer.Op != nil {
		out = appendInt(out, "op", int64(*answer.Op))
	}
	out = appendOptionalText(out, "sqlstate", answer.SQLState)
	out = appendOptionalText(out, "table", answer.Table)
	out = appendOptionalText(out, "column", answer.Column)
	out = appendOptionalText(out, "constraint", answer.Constraint)
	out = appendOptionalInt(out, "rows", answer.Rows)
	out = appendOptionalText(out, "detail", answer.Detail)
	return append(out, '}', '\n')
}

// appendEnd writes an api.BulkEnd.
func appendEnd(out []byte, reason string, nextLine int64) []byte {
	out = appendText(append(out, '{'), "end", reason)
	out = appendInt(out, "next_line", nextLine)
	return append(out, '}', '\n')
}
