package readiness

import (
	"time"

	"github.com/fencegate/fencegate/store"
)

// Reason says why no commit succeeds.
type Reason string

const (
	// Unreachable means that there is no connection to the database, or it does not answer.
	Unreachable Reason = "database_unreachable"
	// ConnectionsExhausted means that the database has as many connections as it takes, and this gateway has none.
	ConnectionsExhausted Reason = "connections_exhausted"
	// DiskFull means that the database has no disk space left.
	DiskFull Reason = "disk_full"
	// WaitsForStandby means that commits wait for a synchronous standby that does not confirm them.
	WaitsForStandby Reason = "waits_for_standby"
	// ReadOnly means that the database is a standby, or takes no writes.
	ReadOnly Reason = "read_only"
	// WentBack means that the database is in an older state than one that was seen.
	WentBack Reason = "went_back"
	// NotMigrated means that the schema is not this program's.
	NotMigrated Reason = "not_migrated"
	// Slow means that the database answers, but a commit takes longer than slowAfter.
	Slow Reason = "slow"
	// Other is anything else, such as a lack of memory or of a right.
	Other Reason = "other"
)

// Reasons are all that there are.
var Reasons = []Reason{
	Unreachable, ConnectionsExhausted, DiskFull, WaitsForStandby, ReadOnly, WentBack, NotMigrated, Slow, Other,
}

// NotReadyError says why the database takes no commits of this gateway, and since when.
type NotReadyError struct {
	Reason Reason
	Since  time.Time // by this process's clock
	Err    error
}

func (e *NotReadyError) Error() string { return e.Err.Error() }

// Unwrap returns the failure of the last probe.
func (e *NotReadyError) Unwrap() error { return e.Err }

// reasonOf returns the reason of the failure of a probe.
func (p *Prober) reasonOf(err error) Reason {
	if hung, ok := err.(hungError); ok { //nolint:errorlint // it is never wrapped
		return hung.reason
	}
	switch p.db.ReasonOf(err) {
	case store.ReasonConnection:
		return Unreachable
	case store.ReasonConnectionsExhausted:
		return ConnectionsExhausted
	case store.ReasonDiskFull:
		return DiskFull
	case store.ReasonNotReplicated:
		return WaitsForStandby
	case store.ReasonReadOnly:
		return ReadOnly
	case store.ReasonWentBack:
		return WentBack
	case store.ReasonNotMigrated:
		return NotMigrated
	case store.ReasonTimeout, store.ReasonBusy:
		return Slow
	default:
		return Other
	}
}
