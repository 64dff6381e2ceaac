package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/migrations"
)

// classify turns an error of the driver into one of this package's; it is the only code that knows SQLSTATEs. It
// returns unknown errors as they are: they are defects, to be logged and not to be sent to clients.
//
// An error that PostgreSQL reports has rolled the transaction back: after the commit it can only end the session. But
// what is between it and the gateway, such as a pooler or a proxy, reports the loss of its own connection as an
// error, too, and that says nothing about the commit. A failure of the connection says nothing about it either, unless
// nothing had been sent.
func classify(err error) error {
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pgErr):
		return classifyState(pgErr)
	case pgconn.SafeToRetry(err):
		return &UnavailableError{Outcome: OutcomeNotApplied, Err: err}
	}
	return &UnavailableError{Outcome: OutcomeUnknown, Err: err}
}

func classifyState(err *pgconn.PgError) error {
	switch err.Code {
	case "LF002", "2200H":
		return fmt.Errorf("%w: %s", ErrTokensExhausted, err.Message)
	case "LF003":
		return ErrExternalAuthority
	case "LF004":
		return ErrBuiltinAuthority
	case "LF005":
		return fmt.Errorf("%w: %s", ErrUnsupported, err.Message)
	case "LF006":
		return NotApplied(&WentBackError{SignSuperseded, err.Message})
	case "LF007":
		return fmt.Errorf("%w: %s", ErrLimit, err.Message)
	case "23514":
		if err.ConstraintName == "name_is_path" {
			return ErrInvalidName
		}
		return err
	case "42P01", "42883", "3F000", "42704": // table, function, schema, type missing
		return &UnavailableError{OutcomeNotApplied, fmt.Errorf("%w: %w", migrations.ErrNotMigrated, err)}
	case "57P01", "57P02", "57P05", // the session was ended, perhaps while it waited for a synchronous standby
		"25P04": // transaction_timeout, which may be raised when the commit is made already
		return &UnavailableError{OutcomeUnknown, err}
	case "55P03": // lock timeout
		return &UnavailableError{OutcomeNotApplied, fmt.Errorf("%w: %w", ErrLocked, err)}
	case "25006", // read-only: a standby, or a primary that was demoted
		"40001", "40P01", // serialization failure, deadlock
		"57014",          // statement timeout
		"57P03", "3D000", // starting up or shutting down, no such database: no session was begun
		"25P03": // idle in a transaction, which has not been committed
		return NotApplied(err)
	}
	switch err.Code[:min(2, len(err.Code))] {
	case "08", // connection: what a pooler reports that has lost the server
		"58": // the system below, which PostgreSQL finds before the commit; poolers report all that fails as 58000
		return &UnavailableError{OutcomeUnknown, err}
	case "53", "28": // resources, of which a commit needs none but the log, or PostgreSQL ends; authorization, before any statement
		return NotApplied(err)
	}
	return err
}

// ReasonOf says why a statement failed, or a connection was not made; "" where it has answered as it should.
func (s *Store) ReasonOf(err error) Reason { return reasonOf(err) }

func reasonOf(err error) Reason {
	var pgErr *pgconn.PgError
	unavailable := errors.Is(err, ErrUnavailable)
	switch {
	case errors.Is(err, ErrDatabaseWentBack):
		return ReasonWentBack
	case errors.Is(err, ErrNotReplicated):
		return ReasonNotReplicated
	case errors.Is(err, migrations.ErrNotMigrated), errors.Is(err, migrations.ErrNewer), errors.Is(err, migrations.ErrPrerelease):
		return ReasonNotMigrated
	case errors.Is(err, errReadOnly):
		return ReasonReadOnly
	case errors.As(err, &pgErr):
		return reasonOfState(pgErr.Code, unavailable)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ReasonTimeout
	case unavailable:
		return ReasonConnection
	}
	return ""
}

func reasonOfState(code string, unavailable bool) Reason {
	switch code {
	case "55P03":
		return ReasonBusy
	case "40P01":
		return ReasonDeadlock
	case "40001":
		return ReasonSerialization
	case "57014", "25P03", "25P04":
		return ReasonTimeout
	case "25006":
		return ReasonReadOnly
	case "53300":
		return ReasonConnectionsExhausted
	case "53100":
		return ReasonDiskFull
	case "53200":
		return ReasonOther
	}
	if !unavailable || code[:min(2, len(code))] == "58" {
		return ReasonOther
	}
	return ReasonConnection
}
