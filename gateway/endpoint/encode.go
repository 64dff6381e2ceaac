package endpoint

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

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
	status := http.StatusOK
	if made, ok := document.(Created); ok {
		status, document = http.StatusCreated, made.Document
	}
	AnswerDocument(w, JSONContentType, status, document)
	return nil
}

// AnswerDocument answers with a document.
func AnswerDocument(w http.ResponseWriter, contentType []string, status int, document any) {
	w.Header()["Content-Type"] = contentType
	w.WriteHeader(status)
	EncodeJSON(w, document)
}

// EncodeJSON writes a document. It ignores errors: the client has left.
func EncodeJSON(w io.Writer, document any) {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(document)
}

// The content types are shared by all answers: nothing changes the values of a header in place.
var (
	JSONContentType    = []string{"application/json"}
	problemContentType = []string{api.ProblemContentType}
)

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
