package store

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Sentinels, to be matched with errors.Is. Where a typed error is named, errors.As gives its data.
var (
	// ErrInvalidName says that a text is not a name.
	ErrInvalidName = errors.New("invalid name")
	// ErrInvalid says that an argument is outside its limits; the message names both.
	ErrInvalid = errors.New("invalid argument")
	// ErrRequestIDReused says that the request_id of an acquire is that of another owner or principal. It is always an
	// ErrInvalid, too.
	ErrRequestIDReused = fmt.Errorf("%w: request_id was used on this lock by another owner", ErrInvalid)
	// ErrNotFound says that there is no such lock, record or policy.
	ErrNotFound = errors.New("not found")

	// ErrLeaseHeld says that another owner's lease is live; see HeldError.
	ErrLeaseHeld = errors.New("the lock is held")
	// ErrLeaseLost says that the caller's lease is not the current one; see LostError.
	ErrLeaseLost = errors.New("the lease is lost")
	// ErrMoved is the cause of a wait's end where its caller is to wait elsewhere.
	ErrMoved = errors.New("the gateway sends its waiters to others")
	// ErrDeadlock says that the wait would close a cycle of owners that wait for each other; see DeadlockError.
	ErrDeadlock = errors.New("the wait would be a deadlock")
	// ErrSlowReader says that a stream was ended, since its events were not read.
	ErrSlowReader = errors.New("the events were not read in time")
	// ErrExternalAuthority says that a policy leaves the tokens of this name to another lock service.
	ErrExternalAuthority = errors.New("the policy says that another lock service issues the tokens of this name")

	// ErrBuiltinAuthority says that a policy, or the lack of one, leaves the tokens of this name to fencegate itself.
	ErrBuiltinAuthority = errors.New("fencegate issues the tokens of this name")

	// ErrUnsupported says that the provider of a name's leases can't keep what was asked for; see UnsupportedError.
	ErrUnsupported = errors.New("not supported by the provider of these leases")

	// ErrTokensExhausted says that no token below 2^53 is left, on the name or in the database. Nothing was changed, and
	// no retry can succeed.
	ErrTokensExhausted = errors.New("no fencing tokens are left")

	// Rejections by the rule, in its order; see RejectedError.
	ErrTokenRequired   = errors.New("the write has no fencing token")
	ErrUnknownToken    = errors.New("the fencing token was never granted on this name")
	ErrStaleToken      = errors.New("the fencing token is stale")
	ErrLeaseMismatch   = errors.New("the lease_id is not the one of the token")
	ErrLeaseExpired    = errors.New("the lease has expired")
	ErrVersionMismatch = errors.New("the record has another version")

	// ErrConstraint says that a user's table refused a row; see TableError.
	ErrConstraint = errors.New("the table refused the row")
	// ErrForbidden says that the role of a table lacks the right to a change; see TableError.
	ErrForbidden = errors.New("the role of the table may not do this")
	// ErrRowCount says that an operation matches an unexpected number of rows; see TableError.
	ErrRowCount = errors.New("unexpected number of matching rows")
	// ErrLimit says that the principal has reached the limit of what one may create; nothing was changed.
	ErrLimit = errors.New("the limit of one principal is reached")
	// ErrTooLarge says that a transaction writes or returns too many rows.
	ErrTooLarge = errors.New("too many rows")

	// ErrElsewhere says that the name is at another node of the cluster, or on its way there; nothing was changed.
	ErrElsewhere = errors.New("the name is at another node of the cluster")

	// ErrUnavailable says that the database could not be reached, or did not answer; see UnavailableError.
	ErrUnavailable = errors.New("the database is unavailable")
	// ErrProviderUnavailable says that the Redis that keeps the lease could not be reached, did not answer, or refused;
	// see ProviderError. It is always an ErrUnavailable, too.
	ErrProviderUnavailable = errors.New("the Redis that keeps the leases on this name is unavailable")
	// ErrLocked says that another session of the database did not release a lock that a statement needs. It is always
	// an ErrUnavailable, too, and nothing was applied.
	ErrLocked = errors.New("another session of the database holds a lock that this needs")
	// ErrSchemaMissing says that a statement needs what the database's schema does not have. It is always an
	// ErrUnavailable, too, and nothing was applied.
	ErrSchemaMissing = errors.New("the schema is missing, or a part of it")
	// ErrOverloaded says that too many writes wait already. It is always an ErrUnavailable, too, and nothing was applied.
	ErrOverloaded = errors.New("too many writes wait")
	// ErrNoConnection says that a statement was not sent, since no connection to the database became available in time.
	// It is always an ErrUnavailable, too, and nothing was applied.
	ErrNoConnection = errors.New("no database connection became available")
	// ErrDatabaseWentBack says that the database is in an older state than one seen before: an old primary is back, or
	// an older copy of its files. See WentBackError. It is always an ErrUnavailable, too.
	ErrDatabaseWentBack = errors.New("the database went back to an older state")
)

// Verdict is what the rule answers: "admitted", or the code of the first step that failed.
type Verdict string

// The verdicts, in the order of the rule's steps.
const (
	Admitted               Verdict = "admitted"
	VerdictTokenRequired   Verdict = "token_required"
	VerdictTokenUnknown    Verdict = "token_unknown"
	VerdictTokenStale      Verdict = "token_stale"
	VerdictLeaseMismatch   Verdict = "lease_mismatch"
	VerdictLeaseExpired    Verdict = "lease_expired"
	VerdictVersionMismatch Verdict = "version_mismatch"
)

// Superseded is the Reason of a RejectedError where a newer token was granted.
const Superseded = "superseded"

var verdictErrors = map[Verdict]error{
	VerdictTokenRequired:   ErrTokenRequired,
	VerdictTokenUnknown:    ErrUnknownToken,
	VerdictTokenStale:      ErrStaleToken,
	VerdictLeaseMismatch:   ErrLeaseMismatch,
	VerdictLeaseExpired:    ErrLeaseExpired,
	VerdictVersionMismatch: ErrVersionMismatch,
}

// Err returns the sentinel of a rejection; nil if the rule has no such verdict.
func (v Verdict) Err() error { return verdictErrors[v] }

// RejectedError is a write that the rule did not admit. It is the sentinel of its verdict.
type RejectedError struct {
	Verdict  Verdict
	Reason   string // of token_stale: superseded, released, reused or shared
	Resource Name
	Key      Name // empty where a transaction was refused for its token

	Token    int64 // that was presented; 0: none
	Sequence *int64

	// The fence as it stood; zero for the version_mismatch of a transaction.
	GrantedToken, LastToken, LastSequence int64
	// Remembered says that the database did not decide this write. The fence is the one that this process saw last; the
	// current one may be newer, never older.
	Remembered bool

	Version int64 // of version_mismatch: the record's; 0: there is none
	// Table is the table, with its schema, that has a row of Resource; empty for records.
	Table string
	// the operation of a transaction that was refused, from 0; nil of a single write or a transaction's token
	Op *int
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("write to %s: %v", e.Resource, verdictErrors[e.Verdict])
}

// Is reports whether target is the sentinel of the verdict.
func (e *RejectedError) Is(target error) bool { return target == verdictErrors[e.Verdict] }

// HeldError names the lease that blocks an acquire. It is ErrLeaseHeld.
type HeldError struct {
	Lock Name
	// OwnerID is the holder whose lease lasts longest; empty if the lock is free and others precede the caller in the
	// queue.
	OwnerID   string
	Principal string // of the holder, see AcquireRequest
	ExpiresAt time.Time
	// By is the name of the holder's lock if it differs from Lock (one of the two leases covers a subtree); else empty.
	By Name
	// Hidden says that there is a holder, and that the caller may not know who it is.
	Hidden bool
	// Remaining is the time to expiry by the database's clock, so that a caller's clock need not agree with it.
	Remaining time.Duration
	// QueueLength is how many wait for the lock.
	QueueLength int
}

func (e *HeldError) Error() string {
	if e.Hidden {
		return fmt.Sprintf("lock %s overlaps with a lease on another name", e.Lock)
	}
	if e.OwnerID == "" {
		return fmt.Sprintf("lock %s is free, and %d are before you in the queue", e.Lock, e.QueueLength)
	}
	return fmt.Sprintf("lock %s is held by %s until %s", e.Lock, e.OwnerID, e.ExpiresAt.UTC().Format(time.RFC3339Nano))
}

// Is reports whether target is ErrLeaseHeld.
func (e *HeldError) Is(target error) bool { return target == ErrLeaseHeld }

// Wait says that an owner waits for a lock.
type Wait struct {
	OwnerID   string `json:"owner_id"`
	Principal string `json:"principal"` // see AcquireRequest
	Lock      Name   `json:"lock"`
}

// DeadlockError is the cycle that a wait would close: each owner waits for a lock that the next one holds, or queues
// for earlier. The caller is the first, and the last waits for the caller. It is ErrDeadlock.
type DeadlockError struct {
	Cycle []Wait
}

func (e *DeadlockError) Error() string {
	var text strings.Builder
	for _, wait := range e.Cycle {
		fmt.Fprintf(&text, "%s waits for %s, which is in the hands of ", wait.OwnerID, wait.Lock)
	}
	return fmt.Sprintf("%v: %s%s", ErrDeadlock, text.String(), e.Cycle[0].OwnerID)
}

// Is reports whether target is ErrDeadlock.
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// LostError says why the caller has lost a lease, or the session for one. It is ErrLeaseLost.
type LostError struct {
	Lock   Name   // empty where it is a session that ended
	Reason string // expired, released, broken, superseded or mismatch
	// Late is how long after a third of the TTL the renewal or keepalive came, if it found its lease or session
	// expired; 0: unknown.
	Late time.Duration
}

func (e *LostError) Error() string {
	if e.Lock == "" {
		return "the session has ended: " + e.Reason
	}
	return fmt.Sprintf("the lease on %s is lost: %s", e.Lock, e.Reason)
}

// Is reports whether target is ErrLeaseLost.
func (e *LostError) Is(target error) bool { return target == ErrLeaseLost }
