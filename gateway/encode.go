package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// created is an answer with the status 201.
type created struct{ document any }

// answerJSON answers with a document, unless there is an error, which it returns.
func answerJSON(w http.ResponseWriter, document any, err error) error {
	if err != nil {
		return err
	}
	switch document := document.(type) {
	case api.Lease:
		if document.Metadata == nil {
			answerEncoded(w, jsonContentType, http.StatusOK, func(out []byte) []byte { return appendLease(out, &document) })
			return nil
		}
	case api.Released:
		answerEncoded(w, jsonContentType, http.StatusOK, func(out []byte) []byte { return appendReleased(out, document) })
		return nil
	}
	status := http.StatusOK
	if made, ok := document.(created); ok {
		status, document = http.StatusCreated, made.document
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encodeJSON(w, document)
	return nil
}

// encodeJSON writes a document. It ignores errors: the client has left.
func encodeJSON(w io.Writer, document any) {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(document)
}

// Answers to writes and operations on leases are encoded by hand: encoding/json takes as long for one as the gateway
// does for everything else. TestEncodings compares the two.

// The content types are shared by all answers: nothing changes the values of a header in place.
var (
	jsonContentType    = []string{"application/json"}
	problemContentType = []string{api.ProblemContentType}
)

// encodeRoom is the usual greatest size of an answer; the buffer of a longer one is not reused.
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
	_, _ = w.Write(text) // fails only if the client has left
	if cap(text) <= encodeRoom {
		*room = text[:0]
		encodings.Put(room)
	}
}

// answerWrite answers a write that was admitted.
func answerWrite(w http.ResponseWriter, write *store.Write, result store.Result) {
	w.Header()["Etag"] = []string{etag(result.Version)}
	answerEncoded(w, jsonContentType, writeStatus(result), func(out []byte) []byte {
		return appendWriteResult(out, &api.WriteResult{
			Resource: string(write.Resource), Key: string(write.Key), Version: result.Version,
			FencingToken: write.Token, Sequence: write.Sequence, Replayed: result.Replayed,
		})
	})
}

func writeStatus(result store.Result) int {
	if result.Created {
		return http.StatusCreated
	}
	return http.StatusOK
}

func appendWriteResult(out []byte, result *api.WriteResult) []byte {
	out = appendText(append(out, '{'), "resource", result.Resource)
	out = appendText(out, "key", result.Key)
	out = appendInt(out, "version", result.Version)
	out = appendInt(out, "fencing_token", result.FencingToken)
	out = appendOptionalInt(out, "sequence", result.Sequence)
	out = appendBool(out, "replayed", result.Replayed)
	return append(out, '}', '\n')
}

// appendLease encodes a lease without its metadata.
func appendLease(out []byte, lease *api.Lease) []byte {
	out = appendText(append(out, '{'), "lock", lease.Lock)
	out = appendText(out, "owner_id", lease.OwnerID)
	out = appendText(out, "lease_id", lease.LeaseID)
	out = appendInt(out, "fencing_token", lease.FencingToken)
	out = appendText(out, "mode", lease.Mode)
	out = appendText(out, "scope", lease.Scope)
	out = appendInt(out, "ttl_ms", lease.TTLMS)
	out = appendTime(out, "granted_at", lease.GrantedAt)
	out = appendTime(out, "expires_at", lease.ExpiresAt)
	if lease.HoldUntil != nil {
		out = appendTime(out, "hold_until", *lease.HoldUntil)
	}
	out = appendOptionalInt(out, "hold_left_ms", lease.HoldLeftMS)
	out = appendInt(out, "waited_ms", lease.WaitedMS)
	out = appendOptionalText(out, "session_id", lease.SessionID)
	out = appendOptionalText(out, "provider", lease.Provider)
	return append(out, '}', '\n')
}

func appendReleased(out []byte, released api.Released) []byte {
	return append(appendBool(append(out, '{'), "released", released.Released), '}', '\n')
}

// appendProblem encodes the problem of a write. It returns false for problems with other fields.
func appendProblem(out []byte, p *api.Problem) ([]byte, bool) {
	if p.Holder != nil || p.Cycle != nil || p.Op != nil || p.QueueLength != nil || p.RecommendedRetryMS != nil ||
		p.Rows != nil || p.SQLState+p.Table+p.Column+p.Constraint != "" {
		return out, false
	}
	out = appendText(append(out, '{'), "type", p.Type)
	out = appendText(out, "title", p.Title)
	out = appendInt(out, "status", int64(p.Status))
	out = appendText(out, "detail", p.Detail)
	out = appendOptionalText(out, "instance", p.Instance)
	out = appendText(out, "code", string(p.Code))
	out = appendBool(out, "retryable", p.Retryable)
	out = appendRejection(out, p)
	return append(out, '}', '\n'), true
}

// appendRejection encodes the fields of a problem that describe a rejected write.
func appendRejection(out []byte, p *api.Problem) []byte {
	out = appendOptionalText(out, "reason", p.Reason)
	out = appendOptionalText(out, "resource", p.Resource)
	out = appendOptionalInt(out, "token", p.Token)
	out = appendOptionalInt(out, "sequence", p.Sequence)
	out = appendOptionalInt(out, "last_token", p.LastToken)
	out = appendOptionalInt(out, "last_sequence", p.LastSequence)
	out = appendOptionalInt(out, "granted_token", p.GrantedToken)
	out = appendOptionalInt(out, "version", p.Version)
	return appendOptionalText(out, "outcome", string(p.Outcome))
}

// appendField begins a field of an object whose opening brace is in out.
func appendField(out []byte, field string) []byte {
	if out[len(out)-1] != '{' {
		out = append(out, ',')
	}
	out = append(out, '"')
	out = append(out, field...)
	return append(out, '"', ':')
}

func appendText(out []byte, field, text string) []byte {
	out, _ = jsontext.AppendQuote(appendField(out, field), text) // it replaces what is not UTF-8
	return out
}

func appendInt(out []byte, field string, number int64) []byte {
	return strconv.AppendInt(appendField(out, field), number, 10)
}

func appendTime(out []byte, field string, t api.Time) []byte {
	out, _ = t.AppendText(append(appendField(out, field), '"'))
	return append(out, '"')
}

func appendBool(out []byte, field string, value bool) []byte {
	return strconv.AppendBool(appendField(out, field), value)
}

// appendOptionalText leaves out an empty text.
func appendOptionalText(out []byte, field, text string) []byte {
	if text == "" {
		return out
	}
	return appendText(out, field, text)
}

// appendOptionalInt leaves out nil.
func appendOptionalInt(out []byte, field string, number *int64) []byte {
	if number == nil {
		return out
	}
	return appendInt(out, field, *number)
}
