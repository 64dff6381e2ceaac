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

// Problem is an error as the gateway answers it (RFC 9457). It implements error.
type Problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Instance string `json:"instance,omitempty"`

	Code      Code `json:"code"`
	Retryable bool `json:"retryable"`

	// Reason refines token_stale (superseded, released, reused, shared), lease_lost (expired, released, broken,
	// superseded, mismatch) and the unavailable of /readyz (database_unreachable, …).
	Reason string `json:"reason,omitempty"`

	// These describe a rejected write and its fence.
	Resource     string `json:"resource,omitempty"`
	Token        *int64 `json:"token,omitempty"`
	Sequence     *int64 `json:"sequence,omitempty"`
	LastToken    *int64 `json:"last_token,omitempty"`
	LastSequence *int64 `json:"last_sequence,omitempty"`
	GrantedToken *int64 `json:"granted_token,omitempty"`

	// Version is the record's current one (version_mismatch); 0 where there is no record.
	Version *int64 `json:"version,omitempty"`
	// Op is the index, from 0, of the rejected operation of a transaction.
	Op *int `json:"op,omitempty"`

	// These describe the refusal of a row by a table (constraint_violation, forbidden): PostgreSQL's code for it, and the
	// table, column and constraint that it concerns, as far as they are known.
	SQLState   string `json:"sqlstate,omitempty"`
	Table      string `json:"table,omitempty"`
	Column     string `json:"column,omitempty"`
	Constraint string `json:"constraint,omitempty"`
	// Rows is how many rows the operation would have written (rows_mismatch).
	Rows *int64 `json:"rows,omitempty"`

	// These describe a held lock. Holder is absent if the lock is free and the caller is behind other waiters.
	Holder             *Holder `json:"holder,omitempty"`
	QueueLength        *int    `json:"queue_length,omitempty"`
	RecommendedRetryMS *int64  `json:"recommended_retry_ms,omitempty"`

	// Cycle describes a deadlock. Each owner waits for the lock, and the next one holds it or is ahead in its queue. The
	// first is the caller, and the last waits for it.
	Cycle []Wait `json:"cycle,omitempty"`

	// Outcome is set where Code is unavailable.
	Outcome Outcome `json:"outcome,omitempty"`
}

// Error returns the code and what to do next.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return string(p.Code) + ": " + http.StatusText(p.Status)
	}
	return string(p.Code) + ": " + p.Detail
}

// Holder is the holder of a lock. It never has a lease_id.
type Holder struct {
	OwnerID string `json:"owner_id"`
	// Principal acquired it, by SQL "sql:" and a role; absent without authentication.
	Principal string `json:"principal,omitempty"`
	ExpiresAt Time   `json:"expires_at"`
}

// Wait is an owner and the lock that it waits for.
type Wait struct {
	OwnerID string `json:"owner_id"`
	// Principal sent the acquire; absent without authentication, or where the owner is hidden.
	Principal string `json:"principal,omitempty"`
	Lock      string `json:"lock"`
}
