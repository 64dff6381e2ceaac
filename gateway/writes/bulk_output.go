package writes

import (
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	// bulkVerdictsMax is how many verdicts are taken from the window at a time.
	bulkVerdictsMax = 256
	// bulkAnswerBytes is how much is written at a time.
	bulkAnswerBytes = 32 << 10
)

// answer writes the verdicts until the stream has stopped and all lines that were taken are decided. Then it writes the
// reason of the stop, and returns it. It sends verdicts when no more are ready: one at a time to a client that waits
// for each, many together to others.
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
				line.err = endpoint.Redacted(s.writer.Principal, line.err)
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
	return s.writer.Send(s.endpoints.AnswerTimeout, text)
}

// appendVerdict writes an api.BulkVerdict.
func appendVerdict(out []byte, line *bulkLine) []byte {
	out = endpoint.AppendInt(append(out, '{'), "line", line.number)
	if line.err != nil {
		return appendRefusal(out, endpoint.ProblemOf(line.err))
	}
	out = endpoint.AppendInt(out, "status", int64(writeStatus(line.result)))
	if line.answer != nil {
		return append(append(out, ','), line.answer[1:]...)
	}
	out = endpoint.AppendInt(out, "version", line.result.Version)
	out = endpoint.AppendInt(out, "fencing_token", line.write.Token)
	out = endpoint.AppendOptionalInt(out, "sequence", line.write.Sequence)
	out = endpoint.AppendBool(out, "replayed", line.result.Replayed)
	return append(out, '}', '\n')
}

func appendRefusal(out []byte, answer *api.Problem) []byte {
	out = endpoint.AppendInt(out, "status", int64(answer.Status))
	out = endpoint.AppendText(out, "code", string(answer.Code))
	out = endpoint.AppendBool(out, "retryable", answer.Retryable)
	out = endpoint.AppendRejection(out, answer)
	if answer.Op != nil {
		out = endpoint.AppendInt(out, "op", int64(*answer.Op))
	}
	out = endpoint.AppendOptionalText(out, "sqlstate", answer.SQLState)
	out = endpoint.AppendOptionalText(out, "table", answer.Table)
	out = endpoint.AppendOptionalText(out, "column", answer.Column)
	out = endpoint.AppendOptionalText(out, "constraint", answer.Constraint)
	out = endpoint.AppendOptionalInt(out, "rows", answer.Rows)
	out = endpoint.AppendOptionalText(out, "detail", answer.Detail)
	return append(out, '}', '\n')
}

// appendEnd writes an api.BulkEnd.
func appendEnd(out []byte, reason string, nextLine int64) []byte {
	out = endpoint.AppendText(append(out, '{'), "end", reason)
	out = endpoint.AppendInt(out, "next_line", nextLine)
	return append(out, '}', '\n')
}
