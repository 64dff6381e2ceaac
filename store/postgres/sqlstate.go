package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
)

// classify turns an error of the driver into one of package store; it is the only code that knows SQLSTATEs. It
// returns unknown errors as they are: they are defects, to be logged and not to be sent to clients.
//
// An error that PostgreSQL reports has rolled the transaction back: after the commit it can only end the session. But a
// pooler or a proxy reports the loss of its own connection as an error, too, which says nothing about the commit. Nor
// does a failure of the gateway's connection, unless nothing had been sent.
func classify(err error) error {
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pgErr):
		return classifyState(pgErr)
	case pgconn.SafeToRetry(err):
		return store.NotApplied(err)
	}
	return store.MayBeApplied(err)
}

func classifyState(err *pgconn.PgError) error {
	switch err.Code {
	case "LF002", "2200H":
		return fmt.Errorf("%w: %s", store.ErrTokensExhausted, err.Message)
	case "LF003":
		return store.ErrExternalAuthority
	case "LF004":
		return store.ErrBuiltinAuthority
	case "LF005":
		return fmt.Errorf("%w: %s", store.ErrUnsupported, err.Message)
	case "LF006":
		return store.NotApplied(&store.WentBackError{Sign: store.SignSuperseded, What: err.Message})
	case "LF007":
		return fmt.Errorf("%w: %s", store.ErrLimit, err.Message)
	case "LF008":
		return store.ErrElsewhere
	case "23514":
		if err.ConstraintName == "name_is_path" {
			return store.ErrInvalidName
		}
		return err
	case "42P01", "42883", "3F000", "42704": // table, function, schema, type missing
		return store.NotApplied(fmt.Errorf("%w: %w: %w", store.ErrSchemaMissing, migrations.ErrNotMigrated, err))
	case "57P01", "57P02", "57P05", // the session was ended, perhaps while it waited for a synchronous standby
		"25P04": // transaction_timeout, which may be raised when the commit is made already
		return store.MayBeApplied(err)
	case "55P03": // lock timeout
		return store.NotApplied(fmt.Errorf("%w: %w", store.ErrLocked, err))
	case "25006", // read-only: a standby, or a primary that was demoted
		"40001", "40P01", // serialization failure, deadlock
		"57014",          // statement timeout
		"57P03", "3D000", // starting up or shutting down, no such database: no session was begun
		"25P03": // idle in a transaction, which has not been committed
		return store.NotApplied(err)
	}
	switch err.Code[:min(2, len(err.Code))] {
	case "08", // connection: what a pooler reports that has lost the server
		"58": // the system below, which PostgreSQL finds before the commit; poolers report all that fails as 58000
		return store.MayBeApplied(err)
	case "53", "28": // resources, of which a commit needs none but the log, or PostgreSQL ends; authorization, before any statement
		return store.NotApplied(err)
	}
	return err
}

// noInitFile is how PostgreSQL ends a new session on a full disk, as XX000, if it has to write its cache of the catalogs
// first, as it has to after a change of the catalogs. It is not translated.
const noInitFile = "could not write init file"

// ReasonOf says why a statement or a connection failed; "" if the database answered as it should.
func (s *Store) ReasonOf(err error) store.Reason { return reasonOf(err) }

func reasonOf(err error) store.Reason {
	var pgErr *pgconn.PgError
	unavailable := errors.Is(err, store.ErrUnavailable)
	switch {
	case errors.Is(err, store.ErrDatabaseWentBack):
		return store.ReasonWentBack
	case errors.Is(err, store.ErrNotReplicated):
		return store.ReasonNotReplicated
	case errors.Is(err, migrations.ErrNotMigrated), errors.Is(err, migrations.ErrNewer),
		errors.Is(err, migrations.ErrPrerelease):
		return store.ReasonNotMigrated
	case errors.Is(err, errReadOnly):
		return store.ReasonReadOnly
	case errors.As(err, &pgErr):
		if pgErr.Message == noInitFile {
			return store.ReasonDiskFull
		}
		return reasonOfState(pgErr.Code, unavailable)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return store.ReasonTimeout
	case unavailable:
		return store.ReasonConnection
	}
	return ""
}

func reasonOfState(code string, unavailable bool) store.Reason {
	switch code {
	case "55P03":
		return store.ReasonBusy
	case "40P01":
		return store.ReasonDeadlock
	case "40001":
		return store.ReasonSerialization
	case "57014", "25P03", "25P04":
		return store.ReasonTimeout
	case "25006":
		return store.ReasonReadOnly
	case "53300":
		return store.ReasonConnectionsExhausted
	case "53100":
		return store.ReasonDiskFull
	case "53200":
		return store.ReasonOther
	}
	if !unavailable || code[:min(2, len(code))] == "58" {
		return store.ReasonOther
	}
	return store.ReasonConnection
}

// reasonCounts counts from the beginning.
type reasonCounts map[store.Reason]*atomic.Uint64

func newReasonCounts(reasons []store.Reason) reasonCounts {
	c := reasonCounts{}
	for _, reason := range reasons {
		c[reason] = new(atomic.Uint64)
	}
	return c
}

func (c reasonCounts) add(reason store.Reason, n int) {
	if count := c[reason]; count != nil {
		count.Add(uint64(n))
	}
}

func (c reasonCounts) read() map[store.Reason]uint64 {
	got := map[store.Reason]uint64{}
	for reason, count := range c {
		got[reason] = count.Load()
	}
	return got
}

// counts are those of a Store.
type counts struct{ failures, retries reasonCounts }

// Failures returns how many statements have failed, those that were tried again among them. Verdicts are no failures.
func (s *Store) Failures() map[store.Reason]uint64 { return s.counts.failures.read() }

// Retries returns how often the Store and its machines tried something again: the writes that went back to their queue
// as busy; the statements that the database had rolled back; and calls repeated after an outage of the database:
// acquires of waiters, grants to them, and the record of rejections.
func (s *Store) Retries() map[store.Reason]uint64 { return s.counts.retries.read() }

// failed counts the failure of a statement.
func (s *Store) failed(err error) error {
	if err != nil {
		s.counts.failures.add(reasonOf(err), 1)
	}
	return err
}

// CountRetry counts that something is tried again after the failure.
func (s *Store) CountRetry(err error) {
	switch reason := reasonOf(err); reason {
	case store.ReasonBusy: // counted by the writes that it was for
	case store.ReasonDeadlock, store.ReasonSerialization:
		s.counts.retries.add(reason, 1)
	default:
		s.counts.retries.add(store.ReasonConnection, 1)
	}
}

// CountBusy counts writes that went back to their queue, since another session has locked their fence.
func (s *Store) CountBusy(writes int) { s.counts.retries.add(store.ReasonBusy, writes) }

// notReplicated is the key of a warning in a connection's own data.
const notReplicated = "fencegate: not replicated"

// noteNotReplicated makes a connection remember PostgreSQL's warning that a commit was not replicated. Apart from the
// warning, the commit looks like any other. The warning comes before the statement ends, so a caller that has read to
// the end of the statement finds it. The configuration of the role must not hide it (client_min_messages).
func noteNotReplicated(config *pgx.ConnConfig) {
	config.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if isNotReplicated(notice) {
			conn.CustomData()[notReplicated] = notice
		}
	}
}

// isNotReplicated distinguishes the warning from those of triggers on users' tables, which name their function. The
// warning of a commit names none. Its code is 01000 where the wait was canceled, and 57P01 where the session was ended.
func isNotReplicated(notice *pgconn.Notice) bool {
	return notice.SeverityUnlocalized == "WARNING" && notice.Where == "" &&
		(notice.Code == "01000" || notice.Code == "57P01")
}

// takeNotReplicated returns ErrNotReplicated, as an UnavailableError, if a connection remembers such a commit, and
// clears the memory.
func takeNotReplicated(conn *pgconn.PgConn) error {
	notice, found := conn.CustomData()[notReplicated].(*pgconn.Notice)
	if !found {
		return nil
	}
	delete(conn.CustomData(), notReplicated)
	return store.MayBeApplied(fmt.Errorf("%w (%s %s)", store.ErrNotReplicated, notice.Code, notice.Message))
}
