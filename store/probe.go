package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/migrations"
)

// ProbeSQL is the statement by which Probe commits. pg_stat_activity shows it while the commit waits.
const ProbeSQL = "select fence.probe()"

var errReadOnly = errors.New("it is read-only: a standby, or default_transaction_read_only is set")

// Connect opens a connection outside of the pool. It returns ErrUnavailable.
func (s *Store) Connect(ctx context.Context, application string) (*pgx.Conn, error) {
	config := s.ConnConfig()
	config.RuntimeParams["application_name"] = application
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, notConnected(err)
	}
	return conn, nil
}

// Probe returns nil if the database can serve by this connection: it has this program's schema, takes writes, and has
// committed one (fence.probe). Otherwise it returns ErrUnavailable, or an unknown error of the database. The text says
// what is wrong, and ReasonOf returns its kind; migrations.ErrNewer is in it where that is the reason.
func (s *Store) Probe(ctx context.Context, conn *pgx.Conn) error {
	if err := s.judgeAnew(ctx, conn); err != nil {
		return probeFailed(err)
	}
	var readOnly bool
	const sql = "select pg_is_in_recovery() or current_setting('transaction_read_only')::boolean"
	if err := conn.QueryRow(ctx, sql).Scan(&readOnly); err != nil {
		return probeFailed(err)
	}
	if readOnly {
		return NotApplied(errReadOnly)
	}
	if err := migrations.Check(ctx, conn); err != nil {
		return probeFailed(err)
	}
	if _, err := conn.Exec(ctx, ProbeSQL); err != nil {
		return probeFailed(err)
	}
	return nil
}

// probeFailed is classify for a statement that changes nothing that anybody sees.
func probeFailed(err error) error {
	if _, reported := errors.AsType[*pgconn.PgError](err); reported {
		return classify(err)
	}
	return NotApplied(err)
}

// RequireConnection returns ErrUnavailable if the pool has no connection and can't make one. An idle connection that was
// cut does not count, and leaves the pool.
func (s *Store) RequireConnection(ctx context.Context) error {
	for s.pool.Stat().AcquiredConns() == 0 {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return NotApplied(err)
		}
		err = conn.Ping(ctx)
		conn.Release()
		if err == nil {
			return nil
		}
	}
	return nil
}
