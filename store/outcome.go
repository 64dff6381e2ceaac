package store

import (
	"errors"
	"fmt"
)

// Outcome says whether a failed call may have been applied.
type Outcome string

const (
	// OutcomeNotApplied means that nothing was changed.
	OutcomeNotApplied Outcome = "not_applied"
	// OutcomeUnknown means that the commit was sent and no answer came.
	OutcomeUnknown Outcome = "unknown"
)

// UnavailableError is a failure to reach the database or to receive its answer. It is ErrUnavailable.
type UnavailableError struct {
	Outcome Outcome
	Err     error
}

func (e *UnavailableError) Error() string {
	// These are not the database's fault.
	if errors.Is(e.Err, ErrOverloaded) || errors.Is(e.Err, ErrProviderUnavailable) {
		return fmt.Sprintf("%v (outcome %s)", e.Err, e.Outcome)
	}
	return fmt.Sprintf("%v (outcome %s): %v", ErrUnavailable, e.Outcome, e.Err)
}

// Is reports whether target is ErrUnavailable.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns the error of the driver.
func (e *UnavailableError) Unwrap() error { return e.Err }

// NotApplied returns the UnavailableError of a call that changed nothing.
func NotApplied(err error) error { return &UnavailableError{OutcomeNotApplied, err} }

// MayBeApplied returns the UnavailableError of a call that was sent, and whose answer did not come.
func MayBeApplied(err error) error { return &UnavailableError{OutcomeUnknown, err} }

// OutcomeOf returns the outcome of an UnavailableError; empty: err is none.
func OutcomeOf(err error) Outcome {
	if unavailable, ok := errors.AsType[*UnavailableError](err); ok {
		return unavailable.Outcome
	}
	return ""
}

// Sign is how a database was found to be in an older state than one that was seen before.
type Sign string

// The signs.
const (
	// SignTimeline: its timeline is lower than one that was seen: an old primary is back.
	SignTimeline Sign = "timeline"
	// SignSystem: it is a cluster that was left for another one.
	SignSystem Sign = "system"
	// SignTokens: its token sequence is lower than it was: older files are back, or a sibling that was promoted apart.
	SignTokens Sign = "tokens"
	// SignSuperseded: a gateway has marked it, or says so now.
	SignSuperseded Sign = "superseded"
	// SignStatement: a statement ended on a database after another one had taken over from it.
	SignStatement Sign = "statement"
	// SignClient: a granted token is not greater than one that the client knows of.
	SignClient Sign = "client"
)

// Signs are all that there are.
var Signs = []Sign{SignTimeline, SignSystem, SignTokens, SignSuperseded, SignStatement, SignClient}

// WentBackError is a database that is in an older state than one that was seen before. It is ErrDatabaseWentBack.
type WentBackError struct {
	Sign Sign
	What string // what was seen before, and what there is now
}

func (e *WentBackError) Error() string { return fmt.Sprintf("%v: %s", ErrDatabaseWentBack, e.What) }

// Is reports whether target is ErrDatabaseWentBack.
func (e *WentBackError) Is(target error) bool { return target == ErrDatabaseWentBack }

// Reason says why a statement failed, or was retried.
type Reason string

// The reasons of failures; the first four are those of retries, too.
const (
	// ReasonBusy: another session kept something locked, mostly a fence. Such writes return to their queue.
	ReasonBusy Reason = "busy"
	// ReasonDeadlock and ReasonSerialization: the database has rolled the statement back because of concurrent
	// transactions.
	ReasonDeadlock      Reason = "deadlock"
	ReasonSerialization Reason = "serialization"
	// ReasonConnection: there was none, or it was refused or lost.
	ReasonConnection Reason = "connection"
	// ReasonConnectionsExhausted: the database has as many connections as it takes.
	ReasonConnectionsExhausted Reason = "connections_exhausted"
	// ReasonDiskFull: the database has no disk space left.
	ReasonDiskFull Reason = "disk_full"
	// ReasonTimeout: the statement took longer than --statement-timeout, or than its caller had time.
	ReasonTimeout Reason = "timeout"
	// ReasonNotReplicated: a commit was made, and no standby has confirmed it; see ErrNotReplicated.
	ReasonNotReplicated Reason = "not_replicated"
	// ReasonReadOnly: the database is a standby, or takes no writes.
	ReasonReadOnly Reason = "read_only"
	// ReasonNotMigrated: the schema is not this program's.
	ReasonNotMigrated Reason = "not_migrated"
	// ReasonWentBack: it is in an older state than one that was seen; see ErrDatabaseWentBack.
	ReasonWentBack Reason = "went_back"
	// ReasonOther is a database that is out of memory, or a defect.
	ReasonOther Reason = "other"
)

// FailureReasons and RetryReasons are all that there are.
var (
	FailureReasons = reasons[:]
	RetryReasons   = reasons[:4]
)

var reasons = [...]Reason{
	ReasonBusy, ReasonDeadlock, ReasonSerialization, ReasonConnection,
	ReasonConnectionsExhausted, ReasonDiskFull, ReasonTimeout, ReasonNotReplicated, ReasonReadOnly,
	ReasonNotMigrated, ReasonWentBack, ReasonOther,
}

// ErrNotReplicated says that a commit was made, but its wait for a synchronous standby ended without a confirmation: a
// failover may take the commit back. It is always an ErrUnavailable, too, of unknown outcome.
var ErrNotReplicated = errors.New("the commit was made, and its wait for a synchronous standby was ended: " +
	"a failover may take it back")
