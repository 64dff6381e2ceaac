package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/migrations"
)

const (
	probeApplication = "fencegate prober"
	closeTimeout     = time.Second

	// probeSQL is the statement by which a Probe commits. pg_stat_activity shows it while the commit waits.
	probeSQL = "select fence.probe()"

	probesSQL = `
		select count(*), coalesce(max(a.wait_event) filter (where a.wait_event = 'SyncRep'),
			max(a.wait_event_type || '/' || a.wait_event), 'nothing')
		from pg_stat_activity a
		where a.query = $1 and a.state = 'active' and a.datname = current_database()`
)

var errReadOnly = errors.New("it is read-only: a standby, or default_transaction_read_only is set")

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

// probe is a Probe.
type probe struct {
	store *Store
	conn  *pgx.Conn
}

// OpenProbe connects. It returns ErrUnavailable.
func (s *Store) OpenProbe(ctx context.Context) (Probe, error) {
	config := s.ConnConfig()
	config.RuntimeParams["application_name"] = probeApplication
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, notConnected(err)
	}
	return &probe{s, conn}, nil
}

// Close is that of a Probe.
func (p *probe) Close() { CloseSoon(p.conn) }

// CloseSoon closes a connection outside the pool, but does not wait long for a database that hangs.
func CloseSoon(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// Commit is that of a Probe; fence.probe is what it commits. ReasonOf returns the kind of its errors; migrations.ErrNewer
// is in one where that is the reason.
func (p *probe) Commit(ctx context.Context) error {
	if err := p.store.judgeAnew(ctx, p.conn); err != nil {
		return probeFailed(err)
	}
	var readOnly bool
	const sql = "select pg_is_in_recovery() or current_setting('transaction_read_only')::boolean"
	if err := p.conn.QueryRow(ctx, sql).Scan(&readOnly); err != nil {
		return probeFailed(err)
	}
	if readOnly {
		return NotApplied(errReadOnly)
	}
	if err := migrations.Check(ctx, p.conn); err != nil {
		return probeFailed(err)
	}
	if _, err := p.conn.Exec(ctx, probeSQL); err != nil {
		return probeFailed(err)
	}
	return takeNotReplicated(p.conn.PgConn())
}

// ProbesUnderWay are the commits of all gateways' Probes that the database has not ended.
type ProbesUnderWay struct {
	Count int
	// WaitFor is what one of them waits for, as pg_stat_activity has it: type/event, or SyncRep if that is one.
	WaitFor string
}

// WaitsForStandby reports whether one of them waits for a synchronous standby.
func (u ProbesUnderWay) WaitsForStandby() bool { return u.WaitFor == "SyncRep" }

// UnderWay is that of a Probe.
func (p *probe) UnderWay(ctx context.Context) (found ProbesUnderWay, err error) {
	err = p.conn.QueryRow(ctx, probesSQL, probeSQL).Scan(&found.Count, &found.WaitFor)
	if err != nil {
		return ProbesUnderWay{}, NotApplied(err)
	}
	return found, nil
}

// probeFailed is classify for a statement that changes nothing that anybody sees.
func probeFailed(err error) error {
	if _, reported := errors.AsType[*pgconn.PgError](err); reported {
		return classify(err)
	}
	return NotApplied(err)
}

// RequireConnection returns ErrUnavailable if the pool has no connection and can't make one. An idle connection that
// was cut does not count, and leaves the pool.
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
