package store

import "context"

// Probe finds out whether the database takes commits, on a connection outside of the pool.
type Probe interface {
	// Commit returns nil if the database can serve by this connection: it has this program's schema, takes writes, and has
	// committed one. Otherwise it returns ErrUnavailable, or an unknown error of the database. The text says what is wrong.
	Commit(ctx context.Context) error
	// UnderWay returns the commits that hang, of other connections. It returns ErrUnavailable.
	UnderWay(ctx context.Context) (ProbesUnderWay, error)
	// Close closes the connection, but does not wait long for a database that hangs.
	Close()
}

// ProbesUnderWay are the commits of all gateways' Probes that the database has not ended.
type ProbesUnderWay struct {
	Count int
	// WaitFor is what one of them waits for, as pg_stat_activity has it: type/event, or SyncRep if that is one.
	WaitFor string
}

// WaitsForStandby reports whether one of them waits for a synchronous standby.
func (u ProbesUnderWay) WaitsForStandby() bool { return u.WaitFor == "SyncRep" }
