package api

import "net/http"

// Code identifies an error. A client decides on the code, never on the text or the HTTP status.
type Code string

// The codes. openapi.yaml describes their statuses and meanings.
const (
	CodeInvalidRequest      Code = "invalid_request"
	CodeInvalidName         Code = "invalid_name"
	CodeInvalidToken        Code = "invalid_token"
	CodeUnsupported         Code = "unsupported_by_provider"
	CodeUnauthenticated     Code = "unauthenticated"
	CodeForbidden           Code = "forbidden"
	CodeUnknownHost         Code = "unknown_host"
	CodeNotFound            Code = "not_found"
	CodeLockHeld            Code = "lock_held"
	CodeDeadlock            Code = "deadlock"
	CodeLeaseLost           Code = "lease_lost"
	CodeNotExternal         Code = "not_external"
	CodeTokenRequired       Code = "token_required"
	CodeTokenUnknown        Code = "token_unknown"
	CodeTokenStale          Code = "token_stale"
	CodeTokenReused         Code = "token_reused"
	CodeLeaseMismatch       Code = "lease_mismatch"
	CodeLeaseExpired        Code = "lease_expired"
	CodeVersionMismatch     Code = "version_mismatch"
	CodeTooLarge            Code = "too_large"
	CodeConstraintViolation Code = "constraint_violation"
	CodeRowsMismatch        Code = "rows_mismatch"
	CodeRateLimited         Code = "rate_limited"
	CodeUnavailable         Code = "unavailable"
	CodeInternal            Code = "internal"
)

// Outcome says whether a write that failed as unavailable may have been applied.
type Outcome string

const (
	// OutcomeNotApplied means that nothing was changed.
	OutcomeNotApplied Outcome = "not_applied"
	// OutcomeUnknown means that the commit was sent and no answer came: send the same again, with the same token and
	// sequence.
	OutcomeUnknown Outcome = "unknown"
)

// ProblemContentType is the content type of every error.
const ProblemContentType = "application/problem+json"

// Problem is an error (RFC 9457). It implements error.
type Problem struct {
	// `urn:fencegate:problem:` and the code.
	Type  string `json:"type" schema:"format=uri"`
	Title string `json:"title"`
	// The HTTP status.
	Status int `json:"status"`
	// What happened and what to do next, for people.
	Detail string `json:"detail"`
	// The path of the request.
	Instance string `json:"instance,omitempty"`

	// What to decide on.
	Code Code `json:"code"`
	// Whether the same request may succeed later.
	Retryable bool `json:"retryable"`

	// Refines `token_stale`, `lease_lost`, and the `unavailable` of `/readyz`.
	Reason string `json:"reason,omitempty"`

	// Of the write that was rejected, like token and sequence.
	Resource string `json:"resource,omitempty" schema:"Name"`
	Token    *int64 `json:"token,omitempty" schema:"Token"`
	Sequence *int64 `json:"sequence,omitempty" schema:"Sequence"`
	// Of the last write that the fence accepted, like last_sequence.
	LastToken    *int64 `json:"last_token,omitempty" schema:"TokenOrNone"`
	LastSequence *int64 `json:"last_sequence,omitempty" schema:"Sequence"`
	// The newest granted on the name.
	GrantedToken *int64 `json:"granted_token,omitempty" schema:"TokenOrNone"`

	// The record's version now; 0: there is no record.
	Version *int64 `json:"version,omitempty" schema:"minimum=0"`
	// The operation of the transaction that was refused, from 0; absent where one of its tokens was.
	Op *int `json:"op,omitempty" schema:"minimum=0 maximum=999"`

	// PostgreSQL's code for the refusal of a row, like table, column and constraint.
	SQLState string `json:"sqlstate,omitempty"`
	// The table with its schema.
	Table      string `json:"table,omitempty"`
	Column     string `json:"column,omitempty"`
	Constraint string `json:"constraint,omitempty"`
	// Of `rows_mismatch`: how many rows the operation would have written.
	Rows *int64 `json:"rows,omitempty" schema:"minimum=0"`

	Holder *Holder `json:"holder,omitempty"`
	// How many wait for the lock.
	QueueLength *int `json:"queue_length,omitempty" schema:"minimum=0"`
	// When a try is worth while.
	RecommendedRetryMS *int64 `json:"recommended_retry_ms,omitempty" schema:"minimum=1"`

	// Of `deadlock`: each owner waits for the lock, and the next one holds it or is ahead in its queue. The first is
	// the caller, and the last waits for it. `…` stands for an owner and a lock that the caller may not see.
	Cycle []Wait `json:"cycle,omitempty"`

	// Of `unavailable`: whether the change was made.
	Outcome Outcome `json:"outcome,omitempty" schema:"enum=not_applied|unknown"`
}

// Error returns the code and what to do next.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return string(p.Code) + ": " + http.StatusText(p.Status)
	}
	return string(p.Code) + ": " + p.Detail
}

// Holder is the holder of the lock; of several, the one whose lease lasts longest. Absent if the lock is free and
// others are ahead of you in the queue. It never has a `lease_id`.
type Holder struct {
	OwnerID string `json:"owner_id" schema:"OwnerID"`
	// Who sent the acquire; by SQL `sql:` and a role. Absent without authentication.
	Principal string `json:"principal,omitempty"`
	ExpiresAt Time   `json:"expires_at"`
}

// Wait is an owner and the lock that it waits for.
type Wait struct {
	OwnerID string `json:"owner_id" schema:"OwnerID"`
	// Who sent the acquire; by SQL `sql:` and a role. Absent without authentication.
	Principal string `json:"principal,omitempty"`
	Lock      string `json:"lock" schema:"Name"`
}
