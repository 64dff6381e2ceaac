package gateway

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// Answers to writes are encoded by hand: encoding/json takes as long for one as all else that the gateway does for it. TestEncodings holds
// them against it.

// contentTypes are shared by all answers: nobody changes a header's values in place.
var (
	jsonContentType    = []string{"application/json"}
	problemContentType = []string{api.ProblemContentType}
)

// encodeRoom is what an answer takes at most, as a rule; a longer one is not kept for use again.
const encodeRoom = 4 << 10

var encodings = sync.Pool{New: func() any {
	room := make([]byte, 0, encodeRoom)
	return &room
}}

// answerEncoded answers with what encode appends.
func answerEncoded(w http.ResponseWriter, contentType []string, status int, encode func([]byte) []byte) {
	w.Header()["Content-Type"] = contentType
	w.WriteHeader(status)
	room := encodings.Get().(*[]byte)
	text := encode((*room)[:0])
	_, _ = w.Write(text) // a client that is gone gets nothing, and there is nobody to tell
	if cap(text) <= encodeRoom {
		*room = text[:0]
		encodings.Put(room)
	}
}

// answerWrite answers a write that was admitted.
func answerWrite(w http.ResponseWriter, write *store.Write, result store.Result) {
	w.Header()["Etag"] = []string{etag(result.Version)}
	status := http.StatusOK
	if result.Created {
		status = http.StatusCreated
	}
	answerEncoded(w, jsonContentType, status, func(out []byte) []byte {
		return appendWriteResult(out, &api.WriteResult{
			Resource: string(write.Resource), Key: string(write.Key), Version: result.Version,
			FencingToken: write.Token, Sequence: write.Sequence, Replayed: result.Replayed,
		})
	})
}

func appendWriteResult(out []byte, result *api.WriteResult) []byte {
	out = append(out, `{"resource":`...)
	out, _ = jsontext.AppendQuote(out, result.Resource)
	out = append(out, `,"key":`...)
	out, _ = jsontext.AppendQuote(out, result.Key)
	out = append(out, `,"version":`...)
	out = strconv.AppendInt(out, result.Version, 10)
	out = append(out, `,"fencing_token":`...)
	out = strconv.AppendInt(out, result.FencingToken, 10)
	out = appendNumber(out, "sequence", result.Sequence)
	out = append(out, `,"replayed":`...)
	out = strconv.AppendBool(out, result.Replayed)
	return append(out, '}', '\n')
}

// appendProblem encodes a problem of a write, whose fields are all of text, numbers and truth; it returns false for others.
func appendProblem(out []byte, p *api.Problem) ([]byte, bool) {
	if p.Holder != nil || p.Cycle != nil || p.Op != nil || p.QueueLength != nil || p.RecommendedRetryMS != nil {
		return out, false
	}
	out = append(out, `{"type":`...)
	out, _ = jsontext.AppendQuote(out, p.Type)
	out = append(out, `,"title":`...)
	out, _ = jsontext.AppendQuote(out, p.Title)
	out = append(out, `,"status":`...)
	out = strconv.AppendInt(out, int64(p.Status), 10)
	out = append(out, `,"detail":`...)
	out, _ = jsontext.AppendQuote(out, p.Detail)
	out = appendText(out, "instance", p.Instance)
	out = append(out, `,"code":`...)
	out, _ = jsontext.AppendQuote(out, string(p.Code))
	out = append(out, `,"retryable":`...)
	out = strconv.AppendBool(out, p.Retryable)
	out = appendText(out, "reason", p.Reason)
	out = appendText(out, "resource", p.Resource)
	out = appendNumber(out, "token", p.Token)
	out = appendNumber(out, "sequence", p.Sequence)
	out = appendNumber(out, "last_token", p.LastToken)
	out = appendNumber(out, "last_sequence", p.LastSequence)
	out = appendNumber(out, "granted_token", p.GrantedToken)
	out = appendNumber(out, "version", p.Version)
	out = appendText(out, "outcome", string(p.Outcome))
	return append(out, '}', '\n'), true
}
