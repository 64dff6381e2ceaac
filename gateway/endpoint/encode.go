package endpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// Created is an answer with the status 201.
type Created struct{ Document any }

// AnswerJSON answers with a document, unless there is an error, which it returns.
func AnswerJSON(w http.ResponseWriter, document any, err error) error {
	if err != nil {
		return err
	}
	switch document := document.(type) {
	case api.Lease:
		if document.Metadata == nil {
			AnswerEncoded(w, JSONContentType, http.StatusOK, func(out []byte) []byte { return appendLease(out, &document) })
			return nil
		}
	case api.Released:
		AnswerEncoded(w, JSONContentType, http.StatusOK, func(out []byte) []byte { return appendReleased(out, document) })
		return nil
	}
	status := http.StatusOK
	if made, ok := document.(Created); ok {
		status, document = http.StatusCreated, made.Document
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	EncodeJSON(w, document)
	return nil
}

// EncodeJSON writes a document. It ignores errors: the client has left.
func EncodeJSON(w io.Writer, document any) {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(document)
}

// Answers to writes and operations on leases are encoded by hand: encoding/json takes as long for one as the gateway
// does for everything else. TestEncodings compares the two.

// The content types are shared by all answers: nothing changes the values of a header in place.
var (
	JSONContentType    = []string{"application/json"}
	problemContentType = []string{api.ProblemContentType}
)

// encodeRoom bounds most answers; the buffer of a longer one is not reused.
const encodeRoom = 4 << 10

var encodings = sync.Pool{New: func() any {
	room := make([]byte, 0, encodeRoom)
	return &room
}}

// AnswerEncoded answers with the text that encode appends.
func AnswerEncoded(w http.ResponseWriter, contentType []string, status int, encode func([]byte) []byte) {
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

// appendLease encodes a lease without its metadata.
func appendLease(out []byte, lease *api.Lease) []byte {
	out = AppendText(append(out, '{'), "lock", lease.Lock)
	out = AppendText(out, "owner_id", lease.OwnerID)
	out = AppendText(out, "lease_id", lease.LeaseID)
	out = AppendInt(out, "fencing_token", lease.FencingToken)
	out = AppendText(out, "mode", lease.Mode)
	out = AppendText(out, "scope", lease.Scope)
	out = AppendInt(out, "ttl_ms", lease.TTLMS)
	out = appendTime(out, "granted_at", lease.GrantedAt)
	out = appendTime(out, "expires_at", lease.ExpiresAt)
	if lease.HoldUntil != nil {
		out = appendTime(out, "hold_until", *lease.HoldUntil)
	}
	out = AppendOptionalInt(out, "hold_left_ms", lease.HoldLeftMS)
	out = AppendInt(out, "waited_ms", lease.WaitedMS)
	out = AppendOptionalText(out, "session_id", lease.SessionID)
	out = AppendOptionalText(out, "provider", lease.Provider)
	return append(out, '}', '\n')
}

func appendReleased(out []byte, released api.Released) []byte {
	return append(AppendBool(append(out, '{'), "released", released.Released), '}', '\n')
}

// AppendProblem encodes a problem.
func AppendProblem(out []byte, p *api.Problem) []byte {
	out, encoded := appendProblem(out, p)
	if !encoded {
		text := bytes.NewBuffer(out)
		EncodeJSON(text, p)
		out = text.Bytes()
	}
	return out
}

// appendProblem encodes the problem of a write. It returns false for problems with other fields.
func appendProblem(out []byte, p *api.Problem) ([]byte, bool) {
	if p.Holder != nil || p.Cycle != nil || p.Op != nil || p.QueueLength != nil || p.RecommendedRetryMS != nil ||
		p.Rows != nil || p.SQLState+p.Table+p.Column+p.Constraint != "" {
		return out, false
	}
	out = AppendText(append(out, '{'), "type", p.Type)
	out = AppendText(out, "title", p.Title)
	out = AppendInt(out, "status", int64(p.Status))
	out = AppendText(out, "detail", p.Detail)
	out = AppendOptionalText(out, "instance", p.Instance)
	out = AppendText(out, "code", string(p.Code))
	out = AppendBool(out, "retryable", p.Retryable)
	out = appendRejection(out, p)
	return append(out, '}', '\n'), true
}

// appendRejection encodes the fields of a problem that describe a rejected write.
func appendRejection(out []byte, p *api.Problem) []byte {
	out = AppendOptionalText(out, "reason", p.Reason)
	out = AppendOptionalText(out, "resource", p.Resource)
	out = AppendOptionalInt(out, "token", p.Token)
	out = AppendOptionalInt(out, "sequence", p.Sequence)
	out = AppendOptionalInt(out, "last_token", p.LastToken)
	out = AppendOptionalInt(out, "last_sequence", p.LastSequence)
	out = AppendOptionalInt(out, "granted_token", p.GrantedToken)
	out = AppendOptionalInt(out, "version", p.Version)
	return AppendOptionalText(out, "outcome", string(p.Outcome))
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

// AppendText encodes a field with a text.
func AppendText(out []byte, field, text string) []byte {
	out, _ = jsontext.AppendQuote(appendField(out, field), text) // it replaces what is not UTF-8
	return out
}

// AppendInt encodes a field with a number.
func AppendInt(out []byte, field string, number int64) []byte {
	return strconv.AppendInt(appendField(out, field), number, 10)
}

func appendTime(out []byte, field string, t api.Time) []byte {
	out, _ = t.AppendText(append(appendField(out, field), '"'))
	return append(out, '"')
}

// AppendBool encodes a field with true or false.
func AppendBool(out []byte, field string, value bool) []byte {
	return strconv.AppendBool(appendField(out, field), value)
}

// AppendOptionalText leaves out an empty text.
func AppendOptionalText(out []byte, field, text string) []byte {
	if text == "" {
		return out
	}
	return AppendText(out, field, text)
}

// AppendOptionalInt leaves out nil.
func AppendOptionalInt(out []byte, field string, number *int64) []byte {
	if number == nil {
		return out
	}
	return AppendInt(out, field, *number)
}

// AppendWriteResult encodes the result of a write.
func AppendWriteResult(out []byte, result *api.WriteResult) []byte {
	out = AppendText(append(out, '{'), "resource", result.Resource)
	out = AppendText(out, "key", result.Key)
	out = AppendInt(out, "version", result.Version)
	out = AppendInt(out, "fencing_token", result.FencingToken)
	out = AppendOptionalInt(out, "sequence", result.Sequence)
	out = AppendBool(out, "replayed", result.Replayed)
	return append(out, '}', '\n')
}

// Optional returns nil for the zero value: the field is absent then.
func Optional[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// OptionalTime returns nil for the zero time.
func OptionalTime(instant time.Time) *api.Time {
	if instant.IsZero() {
		return nil
	}
	return &api.Time{Time: instant}
}

// OptionalMS returns milliseconds; nil for nil.
func OptionalMS(duration *time.Duration) *int64 {
	if duration == nil {
		return nil
	}
	return new(duration.Milliseconds())
}

// OptionalID returns "" for the zero ID.
func OptionalID(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

// OptionalJSON returns nil for null, which means the same as an absent field.
func OptionalJSON(given json.RawMessage) json.RawMessage {
	if string(given) == "null" {
		return nil
	}
	return given
}

// LeaseRef reads a reference to a lease; the token is in the field tokenField.
func LeaseRef(lock store.Name, ownerID, leaseID, tokenField string, token int64) (store.LeaseRef, error) {
	if ownerID == "" {
		return store.LeaseRef{}, Invalid("owner_id is required.")
	}
	id, err := ParseLeaseID("lease_id", leaseID)
	if err != nil {
		return store.LeaseRef{}, err
	}
	return store.LeaseRef{Lock: lock, OwnerID: ownerID, ID: id, Token: token}, checkToken(tokenField, token)
}

func checkToken(field string, token int64) error {
	switch {
	case token == 0:
		return InvalidToken(field + " is missing or 0, it must be 1 to 2^53-1.")
	case token < 1 || token > api.MaxToken:
		return InvalidToken(fmt.Sprintf("%s is %d, it must be 1 to 2^53-1.", field, token))
	}
	return nil
}

// ParseLeaseID reads a lease_id.
func ParseLeaseID(field, text string) (uuid.UUID, error) {
	if text == "" {
		return uuid.UUID{}, Invalid("%s is missing or empty.", field)
	}
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.UUID{}, Invalid("%s is not a lease_id that an acquire returned.", field)
	}
	return id, nil
}

// HoldLeft is nil for a lease without a limit.
func HoldLeft(lease store.Lease) *int64 {
	if lease.HoldUntil.IsZero() {
		return nil
	}
	return OptionalMS(&lease.HoldLeft)
}

// LockAnswer is a lock as the API shows it.
func LockAnswer(lock store.Lock) api.Lock {
	return api.Lock{
		Lock: string(lock.Lock), State: string(lock.State), FencingToken: lock.Token,
		Holders: Convert(lock.Holders, holderAnswer), Queue: Convert(lock.Queue, waiterAnswer),
		QueueLength: lock.QueueLength,
	}
}

func holderAnswer(lease store.Lease) api.LockHolder {
	return api.LockHolder{
		OwnerID: lease.OwnerID, FencingToken: lease.Token, Mode: string(lease.Mode), Scope: string(lease.Scope),
		TTLMS: lease.TTL.Milliseconds(), GrantedAt: api.Time{Time: lease.GrantedAt},
		ExpiresAt: api.Time{Time: lease.ExpiresAt}, HoldUntil: OptionalTime(lease.HoldUntil), Metadata: lease.Metadata,
		Provider: OtherProvider(lease), Principal: lease.Principal,
	}
}

// OtherProvider is the provider of a lease; "" for PostgreSQL.
func OtherProvider(lease store.Lease) string {
	if lease.Provider == store.ProviderPostgres {
		return ""
	}
	return string(lease.Provider)
}

func waiterAnswer(waiter store.Waiter) api.Waiter {
	return api.Waiter{
		OwnerID: waiter.OwnerID, Principal: waiter.Principal, Mode: string(waiter.Mode), Scope: string(waiter.Scope),
		QueuedAt: api.Time{Time: waiter.QueuedAt},
	}
}

// LeaseInfo is a lease as lists show it.
func LeaseInfo(lease store.LeaseInfo) api.LeaseInfo {
	info := api.LeaseInfo{
		Lock: string(lease.Lock), LockHolder: holderAnswer(lease.Lease), WaitedMS: lease.Waited.Milliseconds(),
		State: string(lease.State), InSession: lease.InSession, EndReason: lease.EndReason, EndNote: lease.EndNote,
	}
	if lease.State == store.LeaseEnded {
		info.EndedAt = OptionalTime(lease.EndedAt)
	}
	return info
}

// PolicyAnswer is a policy as the API shows it.
func PolicyAnswer(policy store.Policy) api.Policy {
	return api.Policy{
		Prefix: policy.Prefix, Rule: string(policy.Rule), Authority: string(policy.Authority),
		RequireLeaseID: policy.RequireLeaseID, RequireLiveLease: policy.RequireLiveLease,
		MaxHoldMS: policy.MaxHold.Milliseconds(), Leases: string(policy.Leases),
		RequirePrincipalOwner: policy.RequirePrincipalOwner,
	}
}

// FenceAnswer is a fence as the API shows it.
func FenceAnswer(fence store.Fence) api.Fence {
	return api.Fence{
		Resource: string(fence.Resource), GrantedToken: fence.GrantedToken, Open: fence.Open,
		LastToken: fence.LastToken, LastSequence: fence.LastSequence, Policy: PolicyAnswer(fence.Policy),
	}
}
